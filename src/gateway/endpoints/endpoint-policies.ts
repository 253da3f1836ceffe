import type { Duplex } from 'node:stream'
import type { AddressRanges } from '../../base/net/network.ts'
import { KnownDocuments } from '../../policy/document/known-documents.ts'
import type { PolicyReading } from '../../policy/document/policy-text.ts'
import {
  PolicyError,
  type PolicyProblem,
  ProblemList,
  placedMessage,
} from '../../policy/document/problem.ts'
import { YamlReader } from '../../policy/document/yaml-reader.ts'
import { FairScheduler } from '../../policy/limit/fair-scheduler.ts'
import {
  type AllowEntry,
  type Asker,
  mayDial,
  mayRead,
  type PolicyReach,
} from '../../policy/outbound/outbound-allow.ts'
import {
  type CompiledPolicy,
  compilePolicy,
  compilePolicyInTurns,
  type PolicyOptions,
} from '../../policy/policy.ts'
import { BodyRewriter } from '../../policy/rewriting/body-rewriter.ts'
import type { AccountSecrets } from '../access/account-secrets.ts'
import type { SecretAccess, SecretUser } from '../access/endpoint-secrets.ts'
import { isInternal } from '../records/domain-name.ts'
import {
  carriesRequests,
  type EndpointAddress,
  ingressTypeOf,
} from '../records/endpoint-protocol.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

/** Entry for requests of policies, which are then served like requests of visitors. */
interface InternalEntry {
  /** See `PolicyReach`. Finds the endpoints that policies of this account can reach. */
  connectInternal(url: URL, ownerId: string | null, asker: Asker | undefined): Duplex | undefined
  /** See `PolicyReach`. */
  sealDepth(depth: number): string
}

interface PolicyReachDeps extends Pick<PolicyReach, 'hasTable'> {
  /** Address ranges of each IP policy. */
  readonly ranges: { of(id: string): AddressRanges | undefined }
  /** PEM of authorities of client certificates. */
  readonly certificateAuthorities: {
    pemFor(id: string, ownerId: string | null): string | undefined
  }
  /** Internal endpoints, at this node or at another node. */
  readonly registry: Pick<EndpointRegistry, 'hasInternal'>
  readonly ingress: InternalEntry
  readonly secrets: AccountSecrets
  readonly secretAccess: Pick<SecretAccess, 'for'>
  /** Addresses that policies may connect to, besides internal endpoints, and files that they may read. */
  readonly outboundAllow: readonly AllowEntry[]
}

/**
 * Returns a function that tells which resources the policy of an endpoint can use: internal endpoints, IP
 * policies, certificate authorities, secrets and listed addresses.
 */
export function policyReach({
  registry,
  ingress,
  secrets,
  secretAccess,
  outboundAllow,
  hasTable,
  ranges,
  certificateAuthorities,
}: PolicyReachDeps): (user: SecretUser) => PolicyReach {
  return ({ ownerId, credentialId, host }) => ({
    hasTable,
    secrets: secretAccess.for({ ownerId, credentialId, host }),
    ipPolicy: (id) => ranges.of(id),
    certificateAuthority: (id) => certificateAuthorities.pemFor(id, ownerId),
    mayDial: (target) => mayDial(outboundAllow, target),
    mayRead: (path) => mayRead(outboundAllow, path),
    secretFor: (purpose) => secrets.secretFor(ownerId, purpose),
    hasInternal: (url) => registry.hasInternal(url, ownerId),
    connectInternal: (url, asker) => ingress.connectInternal(url, ownerId, asker),
    sealDepth: (depth) => ingress.sealDepth(depth),
  })
}

/**
 * States (such as counters) of former policies that are remembered; 5 KB each, plus the keys that they count.
 */
const MAX_REMEMBERED = 4_096
/** Maximum number of problems in one message. */
const MAX_PROBLEMS = 5

/** Requests reach an internal endpoint only through another endpoint, never directly from a client. */
const NO_CONNECTIONS = new ProblemList()
NO_CONNECTIONS.add(
  'noConnections',
  '/on_tcp_connect',
  'An internal HTTP endpoint has no visitor connections. Move these rules to on_http_request, or to the endpoint that forwards to it.',
)

const NO_TLS = new ProblemList()
NO_TLS.add(
  'actionNotForProtocol',
  '/on_tcp_connect',
  'terminate-tls is only for HTTPS and TLS endpoints.',
)

const NO_REQUESTS =
  'A TCP or TLS endpoint has no HTTP requests. Move these rules to on_tcp_connect, or remove them.'

export interface EndpointPoliciesOptions
  extends Pick<PolicyOptions, 'clock' | 'log' | 'limits' | 'lane'> {
  /** Resources that the policy of an endpoint can use. Default: no resources. */
  readonly reachOf?: (user: SecretUser) => PolicyReach
  readonly yaml?: YamlReader
}

/** The endpoint that a policy is for. */
export interface PolicyPlace extends EndpointAddress {
  readonly ownerId: string | null
  /** Each member of a pool has its own counters. */
  readonly poolMember?: string | undefined
}

/** The same, with the author of the policy: the authtoken of a device, or null for a cloud endpoint. */
export interface AuthoredPlace extends PolicyPlace, SecretUser {}

/** How a policy is compiled. */
interface CompileOptions {
  /** Rules around the policy that come from endpoint options of the agent. */
  readonly around?: object | undefined
  /** See `PolicyOptions`. */
  readonly isStored?: boolean | undefined
}

/** States of a policy, such as counters. */
type PolicyStates = Pick<CompiledPolicy, 'states'>

/** States of the policy at a place. */
export interface PlacedStates extends PolicyPlace, PolicyStates {}

/** Remembered states of one account. */
interface OwnRemembered {
  /** By address, the most recently remembered last. */
  readonly byPlace: Map<string, { readonly place: PolicyPlace; readonly policy: PolicyStates }>
  /** Number of states in all entries. */
  count: number
}

/**
 * Compiles the policies of endpoints. Passes the counters of a policy on to the next policy on the same host.
 */
export class EndpointPolicies {
  readonly #options: EndpointPoliciesOptions
  readonly #lane: FairScheduler
  readonly #rewriter = new BodyRewriter()
  readonly #documents = new KnownDocuments()
  readonly #yaml: YamlReader
  /** Shared by all endpoints without rules: it has no counters. */
  #none: CompiledPolicy | undefined
  /**
   * By account, so that counters and fetched data of an account never reach another account on the same host.
   */
  readonly #last = new Map<string | null, OwnRemembered>()
  #remembered = 0

  constructor(options: EndpointPoliciesOptions) {
    this.#options = options
    this.#lane = options.lane ?? new FairScheduler()
    this.#yaml = options.yaml ?? new YamlReader()
  }

  /**
   * Reads a text, YAML in a thread. Undefined for a text that needs no reading. Throws AppError
   * `policy-not-checked` if the thread fails.
   */
  async read(text: string, ownerId: string | null): Promise<PolicyReading | undefined> {
    return this.#documents.find(text) ? undefined : this.#yaml.read(text, ownerId)
  }

  /**
   * Compiles the stored policy of the next endpoint on a host; null: no rules. Continues with the counters of
   * `previous` or the remembered counters. Reads YAML here unless it comes with its `reading`. Throws
   * PolicyError with every problem.
   */
  compile(
    trafficPolicy: string | null,
    place: AuthoredPlace,
    previous: PolicyStates | undefined = this.last(place),
    reading?: PolicyReading,
  ): CompiledPolicy {
    if (trafficPolicy === null) return this.#withoutRules()
    const options = { ...this.#compilerOptions(place, previous), reading, isStored: true }
    return checked(compilePolicy(trafficPolicy, options), place)
  }

  /**
   * Compiles a policy in small steps that let other work run. If the previous policy changes meanwhile,
   * compiles again with the counters of the latest policy. Throws PolicyError with every problem, and like `read`.
   */
  async compileInTurns(
    trafficPolicy: string | null,
    { around, isStored, ...place }: AuthoredPlace & CompileOptions,
    previousOf: () => PolicyStates | undefined = () => this.last(place),
  ): Promise<CompiledPolicy> {
    if (trafficPolicy === null && !around) return this.#withoutRules()
    let previous: PolicyStates | undefined
    let policy: CompiledPolicy
    do {
      const reading =
        trafficPolicy === null ? undefined : await this.read(trafficPolicy, place.ownerId)
      previous = previousOf()
      const options = { ...this.#compilerOptions(place, previous), reading, around, isStored }
      policy = await compilePolicyInTurns(trafficPolicy, options)
    } while (previousOf() !== previous)
    return checked(policy, place)
  }

  /** States of the policy that was last in force at an address, if remembered. */
  last(place: PolicyPlace): PolicyStates | undefined {
    return this.#last.get(place.ownerId)?.byPlace.get(keyOf(place))?.policy
  }

  /** All remembered states. */
  *remembered(): Generator<PlacedStates> {
    for (const { byPlace } of this.#last.values()) {
      for (const { place, policy } of byPlace.values()) yield { ...place, states: policy.states }
    }
  }

  #withoutRules(): CompiledPolicy {
    const { clock, log } = this.#options
    this.#none ??= compilePolicy(null, { clock, log })
    return this.#none
  }

  #compilerOptions(place: AuthoredPlace, previous: PolicyStates | undefined) {
    const { clock, log, limits, reachOf } = this.#options
    return {
      ...reachOf?.(place),
      clock,
      log,
      limits,
      lane: this.#lane,
      rewriter: this.#rewriter,
      documents: this.#documents,
      previous,
    }
  }

  /** Remembers the counters of a policy for the next endpoint on the host, for example after a reconnect. */
  remember({ ownerId, protocol, host, poolMember }: PolicyPlace, { states }: PolicyStates): void {
    const place = { ownerId, protocol, host, poolMember }
    const own = this.#last.get(ownerId) ?? { byPlace: new Map(), count: 0 }
    this.#forget(ownerId, own, keyOf(place))
    // A policy without counters must not take the place of a policy with counters.
    if (states.size === 0) return
    this.#last.set(ownerId, own)
    own.byPlace.set(keyOf(place), { place, policy: { states } })
    own.count += states.size
    this.#remembered += states.size
    while (this.#remembered > MAX_REMEMBERED) this.#forgetOne()
  }

  /**
   * Forgets the oldest entry of the account with the most states. So an account cannot displace the states of
   * others.
   */
  #forgetOne(): void {
    let greediest: [ownerId: string | null, own: OwnRemembered] | undefined
    for (const entry of this.#last) {
      if (entry[1].count > (greediest?.[1].count ?? 0)) greediest = entry
    }
    if (!greediest) throw new Error('more policies are counted than all accounts have')
    const [ownerId, own] = greediest
    const [oldest = ''] = own.byPlace.keys()
    this.#forget(ownerId, own, oldest)
  }

  #forget(ownerId: string | null, own: OwnRemembered, key: string): void {
    const count = own.byPlace.get(key)?.policy.states.size ?? 0
    own.byPlace.delete(key)
    own.count -= count
    this.#remembered -= count
    if (own.byPlace.size === 0) this.#last.delete(ownerId)
  }
}

function keyOf({ protocol, host, poolMember = '' }: PolicyPlace): string {
  return `${ingressTypeOf(protocol)} ${host} ${poolMember}`
}

function checked(policy: CompiledPolicy, { protocol, host }: PolicyPlace): CompiledPolicy {
  const isOfRequests = carriesRequests(protocol)
  if (isOfRequests && isInternal(host) && policy.hasConnectRules) {
    throw new PolicyError(NO_CONNECTIONS.all)
  }
  if (!isOfRequests) checkConnections(policy)
  checkForwards(policy, isOfRequests)
  const hasTls = protocol === 'https' || protocol === 'tls'
  if (!hasTls && policy.has('on_tcp_connect', 'terminate-tls')) throw new PolicyError(NO_TLS.all)
  return policy
}

/** HTTP endpoints can forward only to HTTP URLs, TCP and TLS endpoints only to TCP and TLS URLs. */
function checkForwards(policy: CompiledPolicy, isOfRequests: boolean): void {
  const problems = new ProblemList()
  for (const url of policy.forwardUrls('on_tcp_connect')) {
    if (/^https?:/i.test(url) !== isOfRequests) {
      const [own, targets] = isOfRequests
        ? ['An HTTP endpoint', 'http:// and https://']
        : ['A TCP or TLS endpoint', 'tcp:// and tls://']
      const message = `${own} can forward only to ${targets}, not to ${url}.`
      problems.add('actionNotForProtocol', '/on_tcp_connect', message)
    }
  }
  if (problems.hasErrors) throw new PolicyError(problems.all)
}

/** TCP and TLS endpoints pass bytes through, so rules for requests or responses can never run. */
function checkConnections(policy: CompiledPolicy): void {
  const problems = new ProblemList()
  const phases = {
    on_http_request: policy.hasRequestRules,
    on_http_response: policy.hasResponseRules,
  }
  for (const [phase, hasRules] of Object.entries(phases)) {
    if (hasRules) problems.add('phaseNotForProtocol', `/${phase}`, NO_REQUESTS)
  }
  if (problems.hasErrors) throw new PolicyError(problems.all)
}

/** Formats the problems of a policy as one message for people, with pointers, sentences and codes. */
export function problemsText({ problems }: PolicyError): string {
  return `The traffic policy cannot be used. ${listed(problems)}`
}

/** Tells the owner of a stored policy why it would be refused today. Undefined if it would not. */
export function refusedTodayText(policy: CompiledPolicy): string | undefined {
  const problems = refusedTodayList(policy)
  return (
    problems &&
    `The stored traffic policy still runs, but a new one like it is refused. Correct it. ${problems}`
  )
}

/** The problems alone, with pointers, sentences and codes. */
export function refusedTodayList({ refusedToday }: CompiledPolicy): string | undefined {
  return refusedToday.length === 0 ? undefined : listed(refusedToday)
}

function listed(problems: readonly PolicyProblem[]): string {
  return problems
    .filter(({ severity }) => severity === 'error')
    .slice(0, MAX_PROBLEMS)
    .map(
      ({ pointer, message, code, position }) =>
        `${pointer || '/'}: ${placedMessage(message, position)} (${code})`,
    )
    .join(' ')
}
