import { randomInt } from 'node:crypto'
import { type CompiledPolicy, compilePolicy, type PolicyOptions } from '../../policy/policy.ts'
import { PolicyError } from '../../policy/problem.ts'
import type { Authority } from '../authority.ts'
import { checkDomain, type DomainCodes, isInternal } from '../domain-name.ts'
import type { EndpointRegistry } from '../endpoint-registry.ts'
import { checkLength, ServiceError } from '../service-error.ts'
import type { BindRequest } from './control-message.ts'

const BIND_CODES: DomainCodes = {
  character: 326,
  'wildcard-place': 326,
  'repeated-dot': 327,
  'first-character': 328,
  'last-character': 329,
  hyphens: 330,
  'top-level': 331,
  'not-qualified': 331,
  punycode: 347,
  underscore: 355,
  'label-length': 396,
  length: 397,
}

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
const MAX_INTERNAL_PARTS = 5
/** Problems of a policy that fit into one message. */
const MAX_PROBLEMS = 5
const RANDOM_ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789'
const RANDOM_LENGTH = 10
/** Hosts whose last policy is remembered. */
const MAX_REMEMBERED = 1_000

export interface BinderDeps {
  readonly authority: Authority
  readonly registry: EndpointRegistry
  readonly policyOptions: PolicyOptions
  /** Where the ingress listens; known only once it does. */
  readonly ingressPort: (protocol: 'http' | 'https') => number
}

/** What an accepted bind comes down to. */
export interface Binding {
  readonly host: string
  readonly url: string
  readonly protocol: 'http' | 'https'
  readonly forwardsTo: string
  readonly metadata: string
  readonly trafficPolicy: string | null
  readonly policy: CompiledPolicy
}

/** Judges binds: protocol, name, authority, policy. Every refusal is a ServiceError. */
export class Binder {
  readonly #deps: BinderDeps
  readonly #lastPolicies = new Map<string, CompiledPolicy>()

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
    checkBindings(request, host)
    this.#deps.authority.checkBind(credentialId, host)
    const trafficPolicy = request.Opts.TrafficPolicy || null
    return {
      host,
      url: this.#urlOf(protocol, host),
      protocol,
      forwardsTo: request.ForwardsTo,
      metadata,
      trafficPolicy,
      policy: this.#compile(trafficPolicy, host),
    }
  }

  /** Keeps the counters of a policy for the next endpoint on the host, such as after a reconnect. */
  remember(host: string, policy: CompiledPolicy): void {
    this.#lastPolicies.delete(host)
    this.#lastPolicies.set(host, policy)
    const [oldest] = this.#lastPolicies.keys()
    if (oldest !== undefined && this.#lastPolicies.size > MAX_REMEMBERED) {
      this.#lastPolicies.delete(oldest)
    }
  }

  #hostOf({ Opts }: BindRequest, credentialId: string): string {
    const asked = (Opts.Domain || Opts.Hostname).toLowerCase()
    if (!asked) return this.#drawHost(Opts.Subdomain.toLowerCase(), credentialId)
    return checkHost(asked)
  }

  /** A name under the credential's own wildcard. */
  #drawHost(label: string, credentialId: string): string {
    const suffix = this.#deps.authority.wildcardFor(credentialId).slice(1)
    if (label) return checkHost(`${label}${suffix}`)
    let host: string
    do host = `${randomLabel()}${suffix}`
    while (this.#deps.registry.match(host)?.host === host)
    return host
  }

  #urlOf(protocol: 'http' | 'https', host: string): string {
    const port = this.#deps.ingressPort(protocol)
    const isDefault = isInternal(host) || port === (protocol === 'https' ? 443 : 80)
    return `${protocol}://${host}${isDefault ? '' : `:${port}`}`
  }

  #compile(trafficPolicy: string | null, host: string): CompiledPolicy {
    try {
      return compilePolicy(trafficPolicy, {
        ...this.#deps.policyOptions,
        previous: this.#lastPolicies.get(host),
      })
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      const shown = error.problems
        .slice(0, MAX_PROBLEMS)
        .map(({ pointer, message, code }) => `${pointer || '/'}: ${message} (${code})`)
      throw new ServiceError(9026, `The traffic policy cannot be used. ${shown.join(' ')}`)
    }
  }
}

function checkHost(host: string): string {
  checkDomain(host, BIND_CODES)
  checkDepth(host)
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

/** An endpoint that was meant for the inside must not come up in public, nor the other way round. */
function checkBindings({ Extra }: BindRequest, host: string): void {
  const asked = Extra?.Bindings ?? []
  const foreign = asked.find((binding) => binding !== 'public' && binding !== 'internal')
  if (foreign !== undefined) {
    throw new ServiceError(301, `The binding ${foreign} is not supported here.`)
  }
  const wants = isInternal(host) ? 'internal' : 'public'
  if (asked.every((binding) => binding === wants)) return
  throw new ServiceError(
    9029,
    `The domain ${host} does not go with the binding ${asked.join(', ')}: internal endpoints, and only they, end in ".internal".`,
  )
}

/** Throws ServiceError 9031 for an internal name with too many parts. */
function checkDepth(host: string): void {
  const parts = host.split('.').length
  if (!isInternal(host) || parts <= MAX_INTERNAL_PARTS) return
  throw new ServiceError(
    9031,
    `The internal domain ${host} has ${parts} parts; at most ${MAX_INTERNAL_PARTS} will do.`,
  )
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
