import { randomInt } from 'node:crypto'
import { PolicyError } from '../../policy/document/problem.ts'
import type { CompiledPolicy } from '../../policy/policy.ts'
import type { Authority, BindRight } from '../access/authority.ts'
import { checkBindings, checkEndpointHost } from '../endpoints/endpoint-host.ts'
import { type EndpointPolicies, problemsText } from '../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { EndpointUrls } from '../endpoints/endpoint-urls.ts'
import { checkLength, ServiceError } from '../records/service-error.ts'
import type { BindRequest } from './control-message.ts'

/** What the SDK can ask the hosted service for beside a policy; each has an action that does it. */
const MODULES = [
  'Auth',
  'BasicAuth',
  'CircuitBreaker',
  'Compression',
  'HostHeaderRewrite',
  'IPRestriction',
  'MutualTLSCA',
  'OAuth',
  'OIDC',
  'ProxyProto',
  'RequestHeaders',
  'ResponseHeaders',
  'UserAgentFilter',
  'WebhookVerification',
  'WebsocketTCPConverter',
]
const MAX_METADATA = 4_096
const RANDOM_ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789'
const RANDOM_LENGTH = 10

export interface BinderDeps {
  readonly authority: Authority
  readonly registry: EndpointRegistry
  readonly policies: EndpointPolicies
  readonly urls: EndpointUrls
}

/** What an accepted bind comes down to. */
export interface Binding extends BindRight {
  readonly host: string
  readonly url: string
  readonly protocol: 'http' | 'https'
  readonly forwardsTo: string
  readonly metadata: string
  readonly trafficPolicy: string | null
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

  judge(request: BindRequest, credentialId: string): Binding {
    const { Proto: protocol } = request
    if (protocol !== 'http' && protocol !== 'https') {
      throw new ServiceError(
        332,
        `The protocol ${protocol} is not supported here: use http or https.`,
      )
    }
    checkModules(request)
    const metadata = request.Extra?.Metadata ?? ''
    checkLength(metadata, MAX_METADATA, 301, 'metadata')
    const host = this.#hostOf(request, credentialId)
    checkBindings(request.Extra?.Bindings ?? [], host, 301)
    const right = this.#deps.authority.checkBind(credentialId, host)
    const trafficPolicy = request.Opts.TrafficPolicy || null
    return {
      ...right,
      host,
      url: this.#deps.urls.of(protocol, host),
      protocol,
      forwardsTo: request.ForwardsTo,
      metadata,
      trafficPolicy,
    }
  }

  /** Compiles the policy in turns with everything else; the right to bind is the one after it. */
  async compile(binding: Binding, credentialId: string): Promise<CompiledBinding> {
    const policy = await this.#compile(binding)
    return { ...binding, ...this.#deps.authority.checkBind(credentialId, binding.host), policy }
  }

  #hostOf({ Opts }: BindRequest, credentialId: string): string {
    const asked = (Opts.Domain || Opts.Hostname).toLowerCase()
    if (!asked) return this.#drawHost(Opts.Subdomain.toLowerCase(), credentialId)
    return checked(asked)
  }

  /** A name under the credential's own wildcard. */
  #drawHost(label: string, credentialId: string): string {
    const suffix = this.#deps.authority.wildcardFor(credentialId).slice(1)
    if (label) return checked(`${label}${suffix}`)
    let host: string
    do host = `${randomLabel()}${suffix}`
    while (this.#deps.registry.match(host)?.host === host)
    return host
  }

  /** With the counters of the policy that it takes over from, if the name is online. */
  async #compile({ host, ownerId, trafficPolicy }: Binding): Promise<CompiledPolicy> {
    const { policies, registry } = this.#deps
    const place = { host, ownerId }
    const previousOf = () => {
      const holder = registry.holderOf(host, ownerId)
      return holder?.ownerId === ownerId ? holder.policy : policies.last(place)
    }
    try {
      return await policies.compileInTurns(trafficPolicy, place, previousOf)
    } catch (error) {
      if (error instanceof PolicyError) throw new ServiceError(9026, problemsText(error))
      throw error
    }
  }
}

function checked(host: string): string {
  checkEndpointHost(host)
  return host
}

/** Ignoring such a wish in silence would open what its owner believes closed. */
function checkModules({ Opts }: BindRequest): void {
  if (Opts.Policy && Opts.TrafficPolicy) {
    throw new ServiceError(9025, 'Policy and TrafficPolicy are both set: use TrafficPolicy alone.')
  }
  const asked = [...MODULES, 'Policy'].filter((module) => isSet(Opts[module]))
  if (asked.length > 0) {
    throw new ServiceError(
      301,
      `This gateway does not know ${asked.join(', ')}: write it as an action of the traffic policy.`,
    )
  }
}

const isSet = (value: unknown) =>
  value !== undefined && value !== null && value !== '' && value !== false && value !== 0

function randomLabel(): string {
  let label = ''
  while (label.length < RANDOM_LENGTH) {
    label += RANDOM_ALPHABET.charAt(randomInt(RANDOM_ALPHABET.length))
  }
  return label
}
