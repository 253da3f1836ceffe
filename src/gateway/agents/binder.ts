import { createHmac, timingSafeEqual } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { AppError } from '../../base/app-error.ts'
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
import { randomLabel } from './random-name.ts'

const SCHEME = /^([a-z][a-z0-9+.-]*):\/\/(.*)$/is
const PLACE = /^(\[[0-9a-f:.]+\]|[^[\]:\s]*)(?::(\d*))?$/i
const MAX_PORT = 65_535

/** Address in the URL of a bind. */
interface AskedPlace {
  readonly protocol: EndpointProtocol
  /** Lower case; with its port for TCP. Empty: the gateway chooses. */
  readonly host: string
}

/**
 * Reads the URL of a bind: `host`, `scheme://host`, `scheme://host:port`, or `scheme://` for an address that
 * the gateway chooses. `proto` is the protocol of the same bind and must match. If it is empty, the scheme of
 * the URL or https is used.
 *
 * Throws a ServiceError with the code of the hosted service:
 *
 * - 9030: port out of range.
 * - 9034: not a URL.
 * - 9035: port that the scheme cannot use here.
 * - 9036: scheme not allowed.
 * - 9037: user, path, query or fragment.
 * - 9038: trailing slash.
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

/** Removes a possible password. */
const shown = (text: string) => text.replace(/[^/@]*@/, '…@')

const MAX_METADATA = 4_096
const MAX_NAME = 255
const FIELDS: ReadonlySet<string> = new Set([
  ...['Id', 'Proto', 'ForwardsTo', 'ForwardsProto', 'Opts', 'Extra'],
])
/** Random label of an earlier version, whose tokens were the bare name. */
const EARLIER_LABEL = /^[a-km-np-z2-9]{10}$/

export interface BinderDeps {
  readonly authority: Authority
  readonly registry: EndpointRegistry
  readonly policies: EndpointPolicies
  readonly urls: EndpointUrls
  readonly secrets: Pick<AccountSecrets, 'secretFor'>
  /** Undefined: TCP endpoints are refused. */
  readonly tcpAddresses?: TcpAddresses | undefined
}

/** The agent that binds. */
export interface BinderOf {
  readonly credentialId: string
  readonly ownerId: string | null
  readonly deviceId?: string | undefined
  readonly instance?: string | undefined
  /** Random host of its endpoint for the same service, at the other of HTTP and HTTPS. */
  readonly pairedHost?: (protocol: EndpointProtocol, forwardsTo: string) => string | undefined
}

/** An accepted bind. */
export interface Binding extends BindRight, EndpointAddress {
  readonly credentialId: string
  readonly url: string
  /** Whether the gateway has chosen the address. */
  readonly isDrawn: boolean
  readonly forwardsTo: string
  readonly proxyProtocol: ProxyProtocol | undefined
  readonly appProtocol: AppProtocol
  /** Visitors speak WebSocket, the upstream TCP. */
  readonly isBehindWebSocket: boolean
  readonly metadata: string
  /** For people; empty if the agent gave no name. */
  readonly name: string
  readonly description: string
  readonly trafficPolicy: string | null
  /** Proof that the agent presents to get the same random name again. Empty for a name that it asked for. */
  readonly token: string
  /** Rules from its options, besides the policy. */
  readonly around: OptionRules | undefined
  /** Whether it shares its address with other pooling endpoints of the account. */
  readonly isPooled: boolean
  /** Its member id in the pool, if known. A device has one place in a pool. */
  readonly poolMember: string | undefined
}

export interface CompiledBinding extends Binding {
  readonly policy: CompiledPolicy
}

/** Validates binds: protocol, name, authority, then the policy. Every refusal is a ServiceError. */
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
      credentialId,
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

  /**
   * Compiles the policy in small steps that let other work run. Checks the right to bind again afterwards.
   */
  async compile(binding: Binding, credentialId: string): Promise<CompiledBinding> {
    const policy = await this.#compile(binding)
    const { host, protocol, isDrawn } = binding
    const right = this.#deps.authority.checkBind(credentialId, host, protocol, isDrawn)
    return { ...binding, ...right, policy }
  }

  /** Converts a bind with a URL to the older fields. */
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

  /**
   * Throws ServiceError 334 for an address of another account. An assigned address belongs to its account
   * until it is forgotten.
   */
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
   * Returns the random name of a token. The SDK sends the token when it reconnects, so that the tunnel keeps
   * its name. Tokens of earlier versions are the bare name. They are valid for an agent that may bind that
   * name anyway.
   */
  #givenBefore(token: string, { credentialId, ownerId }: BinderOf, suffix: string) {
    const [host = ''] = token.split(' ')
    if (!host.endsWith(suffix)) return undefined
    const isEarlier = token === host && EARLIER_LABEL.test(host.slice(0, -suffix.length))
    const isOurs = isEarlier
      ? !refusalOf(() => void this.#deps.authority.checkBind(credentialId, host))
      : isSame(token, this.#tokenOf(host, ownerId))
    return isOurs ? host : undefined
  }

  /** Proves that the gateway has chosen a name for this account. */
  #tokenOf(host: string, ownerId: string | null): string {
    const key = this.#deps.secrets.secretFor(ownerId, 'names that the gateway has chosen')
    return `${host} ${createHmac('sha256', key).update(host).digest('base64url')}`
  }

  /**
   * Keeps the counters of the policy that it replaces, if the name is online. The agent may have stored the
   * policy in an earlier version, and checks new policies itself. The gateway refuses only what cannot run.
   */
  async #compile(binding: Binding): Promise<CompiledPolicy> {
    const { policies, registry } = this.#deps
    const { ownerId, trafficPolicy, isPooled, poolMember } = binding
    const previousOf = () => {
      const holder = registry
        .holdersOf(binding, ownerId)
        .find((one) => one.ownerId === ownerId && one.poolMember === poolMember)
      // A pool member without an id starts new counters: each member counts separately.
      if (isPooled && poolMember === undefined) return undefined
      return holder ? holder.policy : policies.last(binding)
    }
    try {
      const asked = { ...binding, isStored: true }
      return await policies.compileInTurns(trafficPolicy, asked, previousOf)
    } catch (error) {
      throw bindRefusal(error)
    }
  }
}

/** The refusal of a bind whose policy could not be compiled. After 802, agents try again. */
export function bindRefusal(error: unknown): unknown {
  if (error instanceof PolicyError) return new ServiceError(9026, problemsText(error))
  const isPassing = error instanceof AppError && error.code === 'policy-not-checked'
  return isPassing ? new ServiceError(802, error.message, { cause: error }) : error
}

/** Throws ServiceError 301 for metadata, names or descriptions that are too long. */
export function checkTexts(texts: {
  readonly metadata: string
  readonly name: string
  readonly description: string
}): void {
  checkLength(texts.metadata, MAX_METADATA, 301, 'metadata')
  checkLength(texts.name, MAX_NAME, 301, 'name')
  checkLength(texts.description, MAX_NAME, 301, 'description')
}

/** Refuses unknown fields, because they may be meant to protect the endpoint. */
function refuseUnknownFields(request: BindRequest): void {
  for (const [name, value] of Object.entries(request)) {
    if (FIELDS.has(name) || !isAsked(value)) continue
    throw new ServiceError(301, `The field ${name} is unknown to this gateway.`)
  }
}

/** Requires a name for an internal endpoint: policies could not address it by a random name. */
function requireInternalName({ Opts, Extra }: BindRequest): void {
  const isNamed = Opts.Domain || Opts.Hostname || Opts.Subdomain || Opts.Addr
  if (isNamed || !Extra?.Bindings?.includes('internal')) return
  throw new ServiceError(
    9028,
    'An internal endpoint needs a domain that ends in ".internal": give it one.',
  )
}

/** Version of the PROXY header that tells the upstream the visitor's address. */
function proxyProtocolOf(asked: unknown): ProxyProtocol | undefined {
  if (!isAsked(asked)) return undefined
  if (asked === 1 || asked === 2) return asked
  throw new ServiceError(301, 'The option ProxyProto cannot be used: it must be 1 or 2.')
}

/** Protocol of requests to the upstream. The gateway does not support others. */
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

/** A WebSocket starts with an HTTP request, so this is only for HTTP endpoints. */
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

/** Merges the options of both parts of the bind. Policies are only read in `Opts`. */
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

/** Returns the policy as text, in whichever form the client sent it. Null: no policy. */
function policyOf({ Opts }: BindRequest): string | null {
  if (!isAsked(Opts.Policy)) return Opts.TrafficPolicy || null
  if (!Opts.TrafficPolicy) return oldPolicyText(Opts.Policy)
  throw new ServiceError(9025, 'Policy and TrafficPolicy are both set. Use only TrafficPolicy.')
}

/** Compares in constant time, because the token grants the name. */
function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Returns a random name that is free, or a pool with room. */
function drawHost(suffix: string, mayHave: (host: string) => boolean): string {
  let host: string
  do host = `${randomLabel()}${suffix}`
  while (!mayHave(host))
  return host
}
