import { createHmac, randomInt, timingSafeEqual } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import { PolicyError } from '../../policy/document/problem.ts'
import type { CompiledPolicy } from '../../policy/policy.ts'
import type { AccountSecrets } from '../access/account-secrets.ts'
import type { Authority, BindRight } from '../access/authority.ts'
import type { AppProtocol } from '../endpoints/endpoint.ts'
import {
  checkBindings,
  checkEndpointHost,
  type EndpointUrls,
  internalAddress,
} from '../endpoints/endpoint-host.ts'
import { type EndpointPolicies, problemsText } from '../endpoints/endpoint-policies.ts'
import { isPooled } from '../endpoints/endpoint-pool.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { TcpAddresses } from '../endpoints/tcp-addresses.ts'
import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointAddress,
  type EndpointProtocol,
  PROTOCOLS,
} from '../records/endpoint-protocol.ts'
import { checkLength, refusalOf, ServiceError } from '../records/service-error.ts'
import { upstreamNoticeIn } from './agent-notice.ts'
import type { BindRequest } from './control-message.ts'
import { isAsked, type OptionRules, oldPolicyText, optionRules } from './option-rules.ts'

const SCHEME = /^([a-z][a-z0-9+.-]*):\/\/(.*)$/is
const PLACE = /^(\[[0-9a-f:.]+\]|[^[\]:\s]*)(?::(\d*))?$/i
const MAX_PORT = 65_535

/** What the URL of a bind asks for. */
interface AskedPlace {
  readonly protocol: EndpointProtocol
  /** Lower case; with its port for TCP. Empty: any that the gateway chooses. */
  readonly host: string
}

/**
 * Reads the URL of a bind: `host`, `scheme://host`, `scheme://host:port`, or `scheme://` for an address
 * that the gateway chooses. `proto` is the protocol of the same bind and has to agree; empty means the
 * scheme of the URL, or https.
 *
 * Throws a ServiceError with the code of the hosted service: 9030 for a port out of range, 9034 for text
 * that is no URL, 9035 for a port that the scheme cannot have here, 9036 for a scheme, 9037 for a user,
 * path, query or fragment, 9038 for a slash at the end.
 */
function readBindUrl(text: string, proto: string, urls: EndpointUrls): AskedPlace {
  const [, scheme, place = text] = SCHEME.exec(text) ?? []
  const protocol = protocolOf(scheme?.toLowerCase(), proto.toLowerCase())
  if (/[@?#]/.test(place) || /\/./s.test(place)) {
    throw new ServiceError(
      9037,
      `The URL ${shown(text)} cannot be used: leave out user, path, query and fragment.`,
    )
  }
  if (place.endsWith('/')) {
    throw new ServiceError(9038, `The URL ${text} cannot be used: leave out the slash at its end.`)
  }
  const match = PLACE.exec(place)
  const [, name = '', digits] = match ?? []
  if (!match || digits === '' || (name === '' && digits !== undefined)) {
    throw new ServiceError(
      9034,
      `The URL ${text} is malformed: write scheme://host or scheme://host:port.`,
    )
  }
  const host = name.toLowerCase()
  const port = digits === undefined ? undefined : Number(digits)
  if (port !== undefined && (port < 1 || port > MAX_PORT)) {
    throw new ServiceError(9030, `The URL ${text} cannot be used: a port is from 1 to ${MAX_PORT}.`)
  }
  if (protocol === 'tcp') return { protocol, host: addressOf(text, host, port) }
  if (port !== undefined && !urls.mayName(protocol, host, port)) {
    throw new ServiceError(
      9035,
      `The URL ${text} cannot be used: this gateway has no ${protocol} endpoints on port ${port}. Leave the port out.`,
    )
  }
  return { protocol, host }
}

function protocolOf(scheme: string | undefined, proto: string): EndpointProtocol {
  const asked = scheme ?? (proto || 'https')
  const protocol = PROTOCOLS.find((known) => known === asked)
  if (!protocol) {
    throw new ServiceError(
      scheme === undefined ? 332 : 9036,
      `The scheme ${asked} is not supported. Use http, https, tcp or tls.`,
    )
  }
  if (proto === '' || proto === protocol) return protocol
  throw new ServiceError(
    9036,
    `The URL has the scheme ${protocol}, but the bind asks for ${proto}.`,
  )
}

function addressOf(text: string, host: string, port: number | undefined): string {
  if (host === '') return ''
  if (port !== undefined) return `${host}:${port}`
  throw new ServiceError(9034, `The URL ${text} needs a port: write tcp://host:port.`)
}

/** Without what may be a password. */
const shown = (text: string) => text.replace(/[^/@]*@/, '…@')

const MAX_METADATA = 4_096
const MAX_NAME = 255
const FIELDS: ReadonlySet<string> = new Set([
  ...['Id', 'Proto', 'ForwardsTo', 'ForwardsProto', 'Opts', 'Extra'],
])
const RANDOM_ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789'
const RANDOM_LENGTH = 10
const RANDOM_LABEL = new RegExp(`^[${RANDOM_ALPHABET}]{${RANDOM_LENGTH}}$`)

export interface BinderDeps {
  readonly authority: Authority
  readonly registry: EndpointRegistry
  readonly policies: EndpointPolicies
  readonly urls: EndpointUrls
  readonly secrets: Pick<AccountSecrets, 'secretFor'>
  /** Without them TCP endpoints are refused. */
  readonly tcpAddresses?: TcpAddresses | undefined
}

/** Who binds. */
export interface BinderOf {
  readonly credentialId: string
  readonly ownerId: string | null
  readonly deviceId?: string | undefined
  readonly instance?: string | undefined
  /** The random host that it has at the other of HTTP and HTTPS, for the same service. */
  readonly pairedHost?: (protocol: EndpointProtocol, forwardsTo: string) => string | undefined
}

/** What an accepted bind comes down to. */
export interface Binding extends BindRight, EndpointAddress {
  readonly url: string
  /** The gateway has chosen the address. */
  readonly isDrawn: boolean
  readonly forwardsTo: string
  readonly proxyProtocol: ProxyProtocol | undefined
  readonly appProtocol: AppProtocol
  /** Visitors speak WebSocket, and the service TCP. */
  readonly isBehindWebSocket: boolean
  readonly metadata: string
  /** For people; empty when the agent gave none. */
  readonly name: string
  readonly description: string
  readonly trafficPolicy: string | null
  /** What the agent shows to get the same random name again; empty for a name that it asked for. */
  readonly token: string
  /** What its options beside the policy come to. */
  readonly around: OptionRules | undefined
  /** It shares its address with others of the account that do the same. */
  readonly isPooled: boolean
  /** Which member of the pool it is, as far as that is known: a device has one place in it. */
  readonly poolMember: string | undefined
}

export interface CompiledBinding extends Binding {
  readonly policy: CompiledPolicy
}

/** Judges binds: protocol, name, authority, then the policy. Every refusal is a ServiceError. */
export class Binder {
  readonly #deps: BinderDeps

  constructor(deps: BinderDeps) {
    this.#deps = deps
  }

  judge(asked: BindRequest, who: BinderOf): Binding {
    const { credentialId } = who
    refuseUnknownFields(asked)
    const request = this.#withPlace(asked)
    const protocol = this.#protocolOf(request)
    const carries = protocol === 'tcp' || protocol === 'tls' ? 'connections' : 'requests'
    const options = optionsOf(request)
    const around = optionRules(options, carries)
    const isPooled = options.PoolingEnabled === true || options.AllowsPooling === true
    const {
      Metadata: metadata = '',
      Name: name = '',
      Description: description = '',
    } = request.Extra ?? {}
    checkTexts({ metadata, name, description })
    requireInternalName(request)
    const host =
      protocol === 'tcp'
        ? this.#addressOf(request, who)
        : this.#hostOf(request, who, protocol, isPooled)
    const appProtocol = appProtocolOf(request, carries)
    checkBindings(request.Extra?.Bindings ?? [], host, 301)
    const isChosen = isDrawn(request, protocol)
    const right = this.#deps.authority.checkBind(credentialId, host, protocol, isChosen)
    if (protocol === 'tcp' && !isInternal(host)) {
      this.#checkKept(host, right.ownerId)
      this.#deps.tcpAddresses?.requireShare(right.ownerId, host)
    }
    const trafficPolicy = policyOf(request)
    return {
      ...right,
      host,
      url: this.#deps.urls.of(protocol, host),
      protocol,
      isDrawn: isChosen,
      forwardsTo: request.ForwardsTo,
      proxyProtocol:
        proxyProtocolOf(options.ProxyProto) ?? upstreamNoticeIn(metadata)?.proxyProtocol,
      appProtocol,
      isBehindWebSocket: convertsWebSocket(options.WebsocketTCPConverter, carries),
      metadata,
      name,
      description,
      trafficPolicy,
      around,
      token: isChosen ? this.#tokenOf(host, who.ownerId) : '',
      isPooled,
      poolMember: isPooled ? (who.deviceId ?? (request.Id || undefined)) : undefined,
    }
  }

  /** Compiles the policy in turns with everything else; the right to bind is the one after it. */
  async compile(binding: Binding, credentialId: string): Promise<CompiledBinding> {
    const policy = await this.#compile(binding)
    const { host, protocol, isDrawn } = binding
    const right = this.#deps.authority.checkBind(credentialId, host, protocol, isDrawn)
    return { ...binding, ...right, policy }
  }

  /** A bind with a URL is one with the older fields that say the same. */
  #withPlace(request: BindRequest): BindRequest {
    const { Proto, Opts } = request
    if (Opts.URL === '' && Proto === '') {
      throw new ServiceError(301, 'The bind has no protocol: use http, https, tcp or tls.')
    }
    if (Opts.URL === '') return request
    const other = (['Domain', 'Hostname', 'Subdomain', 'Addr'] as const).find((it) => Opts[it])
    if (other) {
      throw new ServiceError(301, `The options URL and ${other} are both set. Use only URL.`)
    }
    const { protocol, host } = readBindUrl(Opts.URL, Proto, this.#deps.urls)
    const place = protocol === 'tcp' ? { Addr: host } : { Domain: host }
    return { ...request, Proto: protocol, Opts: { ...Opts, ...place, URL: '' } }
  }

  #protocolOf({ Proto: protocol }: BindRequest): EndpointProtocol {
    if (protocol === 'http' || protocol === 'https' || protocol === 'tls') return protocol
    if (protocol === 'tcp') return protocol
    throw new ServiceError(
      332,
      `The protocol ${protocol} is not supported. Use http, https, tcp or tls.`,
    )
  }

  #addressOf({ Id, Opts, ForwardsTo, Extra }: BindRequest, who: BinderOf) {
    const { ownerId, ...device } = who
    const { authority, tcpAddresses: addresses } = this.#deps
    const asked = Opts.Addr.toLowerCase()
    if (isInternal(asked)) {
      const [host = '', port] = asked.split(':')
      if (port !== undefined) return internalAddress(host, Number(port))
      throw new ServiceError(301, `The address ${asked} needs a port, such as ${asked}:22.`)
    }
    if (!addresses) {
      throw new ServiceError(
        332,
        'TCP endpoints are off at this gateway. To enable them, set GATEWAY_TCP_LISTEN, such as 0.0.0.0:20000-20100.',
      )
    }
    if (Opts.Addr !== '') return addresses.read(Opts.Addr, 301)
    const token = Extra?.Token ?? ''
    const [given = ''] = token.split(' ')
    return addresses.draw({
      given: isSame(token, this.#tokenOf(given, ownerId)) ? given : undefined,
      ...device,
      ownerId,
      endpointId: Id,
      forwardsTo: ForwardsTo,
      mayBind: authority.addressesOf(device.credentialId),
    })
  }

  /** An address that was given to a device stays its account's, until nobody knows of it any more. */
  #checkKept(host: string, ownerId: string | null): void {
    const holder = this.#deps.registry.match(host, 'tcp')
    if (!holder || holder.ownerId === ownerId) return
    throw new ServiceError(334, `The endpoint tcp://${host} belongs to another account.`)
  }

  #hostOf(
    { Opts, Extra, ForwardsTo }: BindRequest,
    who: BinderOf,
    protocol: EndpointProtocol,
    mayJoin: boolean,
  ): string {
    const { credentialId, ownerId } = who
    const asked = (Opts.Domain || Opts.Hostname).toLowerCase()
    if (asked) return checked(asked)
    const { authority, registry } = this.#deps
    const suffix = authority.wildcardFor(credentialId).slice(1)
    if (Opts.Subdomain) return checked(`${Opts.Subdomain.toLowerCase()}${suffix}`)
    const mayHave = (host: string) => {
      if (registry.foreignHolder({ host, protocol }, ownerId)) return false
      const [holder] = registry.holdersOf({ host, protocol }, ownerId)
      return !holder || (mayJoin && isPooled(holder))
    }
    const given = this.#givenBefore(Extra?.Token ?? '', { credentialId, ownerId }, suffix)
    if (given !== undefined && mayHave(given)) return given
    const paired = who.pairedHost?.(protocol, ForwardsTo)
    if (paired?.endsWith(suffix) && mayHave(paired)) return paired
    return drawHost(suffix, mayHave)
  }

  /**
   * The random name of a token. The SDK brings the token along when it reconnects, so that the tunnel keeps
   * its name. Tokens of earlier versions are the bare name: good for whoever may bind that name anyway.
   */
  #givenBefore(token: string, { credentialId, ownerId }: BinderOf, suffix: string) {
    const [host = ''] = token.split(' ')
    if (!host.endsWith(suffix) || !RANDOM_LABEL.test(host.slice(0, -suffix.length)))
      return undefined
    const isOurs =
      token === host
        ? !refusalOf(() => void this.#deps.authority.checkBind(credentialId, host))
        : isSame(token, this.#tokenOf(host, ownerId))
    return isOurs ? host : undefined
  }

  /** Shows that the gateway has chosen a name for this account. */
  #tokenOf(host: string, ownerId: string | null): string {
    const key = this.#deps.secrets.secretFor(ownerId, 'names that the gateway has chosen')
    return `${host} ${createHmac('sha256', key).update(host).digest('base64url')}`
  }

  /** With the counters of the policy that it takes over from, if the name is online. */
  async #compile(binding: Binding): Promise<CompiledPolicy> {
    const { policies, registry } = this.#deps
    const { ownerId, trafficPolicy, isPooled, poolMember } = binding
    const previousOf = () => {
      const holder = registry
        .holdersOf(binding, ownerId)
        .find((one) => one.ownerId === ownerId && one.poolMember === poolMember)
      // A member of a pool that nobody knows yet begins anew: each counts for itself.
      if (isPooled && poolMember === undefined) return undefined
      return holder ? holder.policy : policies.last(binding)
    }
    try {
      return await policies.compileInTurns(trafficPolicy, binding, previousOf)
    } catch (error) {
      if (error instanceof PolicyError) throw new ServiceError(9026, problemsText(error))
      throw error
    }
  }
}

/** Throws ServiceError 301 for what an agent says of its endpoint at too great a length. */
export function checkTexts(texts: {
  readonly metadata: string
  readonly name: string
  readonly description: string
}): void {
  checkLength(texts.metadata, MAX_METADATA, 301, 'metadata')
  checkLength(texts.name, MAX_NAME, 301, 'name')
  checkLength(texts.description, MAX_NAME, 301, 'description')
}

/** A field that this gateway does not know may protect the endpoint. */
function refuseUnknownFields(request: BindRequest): void {
  for (const [name, value] of Object.entries(request)) {
    if (FIELDS.has(name) || !isAsked(value)) continue
    throw new ServiceError(301, `The field ${name} is unknown to this gateway.`)
  }
}

/** Nobody finds an internal endpoint by a name that the gateway has drawn. */
function requireInternalName({ Opts, Extra }: BindRequest): void {
  const isNamed = Opts.Domain || Opts.Hostname || Opts.Subdomain || Opts.Addr
  if (isNamed || !Extra?.Bindings?.includes('internal')) return
  throw new ServiceError(
    9028,
    'An internal endpoint needs a domain that ends in ".internal": give it one.',
  )
}

/** How the service is told who visits it. */
function proxyProtocolOf(asked: unknown): ProxyProtocol | undefined {
  if (!isAsked(asked)) return undefined
  if (asked === 1 || asked === 2) return asked
  throw new ServiceError(301, 'The option ProxyProto cannot be used: it must be 1 or 2.')
}

/** What requests go to the service in. Another protocol would be the service's alone to know. */
function appProtocolOf(
  { ForwardsProto: asked }: BindRequest,
  carries: 'requests' | 'connections',
): AppProtocol {
  if (asked === '') return 'http1'
  if (carries === 'connections') {
    throw new ServiceError(
      301,
      `The application protocol ${asked} cannot be used with a TCP or TLS endpoint.`,
    )
  }
  if (asked === 'http1' || asked === 'http2') return asked
  throw new ServiceError(301, `The application protocol ${asked} is unknown. Use http1 or http2.`)
}

/** Its visitors have to send requests, which a WebSocket begins with. */
function convertsWebSocket(asked: unknown, carries: 'requests' | 'connections'): boolean {
  if (!isAsked(asked)) return false
  if (carries === 'requests' && isDeepStrictEqual(asked, {})) return true
  const sentence =
    'The option WebsocketTCPConverter cannot be used: it must be empty, on an HTTP endpoint.'
  throw new ServiceError(301, sentence)
}

function checked(host: string): string {
  checkEndpointHost(host)
  return host
}

/** In one, whichever part of the bind they stand in; a policy is read in `Opts` alone. */
function optionsOf({ Opts, Extra }: BindRequest): Record<string, unknown> {
  const asked = Object.entries(Extra ?? {}).filter(([, value]) => isAsked(value))
  for (const [name, value] of asked) {
    const isElsewhere = name === 'TrafficPolicy' || name === 'Policy'
    if (isElsewhere || (isAsked(Opts[name]) && Opts[name] !== value)) {
      throw new ServiceError(301, `The option ${name} is not allowed in this part of the request.`)
    }
  }
  return { ...Opts, ...Object.fromEntries(asked) }
}

/** Whether the gateway chooses the address. */
function isDrawn({ Opts }: BindRequest, protocol: EndpointProtocol): boolean {
  if (protocol === 'tcp') return Opts.Addr === ''
  return !(Opts.Domain || Opts.Hostname || Opts.Subdomain)
}

/** As text, whichever form the client has for it; null when it has none. */
function policyOf({ Opts }: BindRequest): string | null {
  if (!isAsked(Opts.Policy)) return Opts.TrafficPolicy || null
  if (!Opts.TrafficPolicy) return oldPolicyText(Opts.Policy)
  throw new ServiceError(9025, 'Policy and TrafficPolicy are both set. Use only TrafficPolicy.')
}

/** In constant time: a name is as good as its token. */
function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** A random name that may be had: nobody has it, or a pool that takes one more. */
function drawHost(suffix: string, mayHave: (host: string) => boolean): string {
  let host: string
  do host = `${randomLabel()}${suffix}`
  while (!mayHave(host))
  return host
}

function randomLabel(): string {
  let label = ''
  while (label.length < RANDOM_LENGTH) {
    label += RANDOM_ALPHABET.charAt(randomInt(RANDOM_ALPHABET.length))
  }
  return label
}
