import type { Duplex } from 'node:stream'
import { type AddressRanges, parseCidr } from '../../base/net/network.ts'
import { KnownDocuments } from '../../policy/document/known-documents.ts'
import { PolicyError, ProblemList } from '../../policy/document/problem.ts'
import { Lane } from '../../policy/limit/lane.ts'
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
import { isInternal } from '../records/domain-name.ts'
import { carriesRequests, type EndpointAddress, entranceOf } from '../records/endpoint-protocol.ts'
import type { IpPolicyRule, IpPolicyRuleStore, IpPolicyStore } from '../records/ip-policy-store.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

interface IpPolicyRangesOptions {
  readonly ipPolicies: IpPolicyStore
  readonly ipPolicyRules: IpPolicyRuleStore
}

/** IP policies as restrict-ips reads them with every request: kept until one of them changes. */
export class IpPolicyRanges {
  readonly #policies: IpPolicyStore
  readonly #rules: IpPolicyRuleStore
  readonly #kept = new Map<string, AddressRanges>()
  #versions = ''

  constructor({ ipPolicies, ipPolicyRules }: IpPolicyRangesOptions) {
    this.#policies = ipPolicies
    this.#rules = ipPolicyRules
  }

  /** Undefined when there is no such policy. */
  of(id: string): AddressRanges | undefined {
    const versions = `${this.#policies.version} ${this.#rules.version}`
    if (versions !== this.#versions) this.#kept.clear()
    this.#versions = versions
    const kept = this.#kept.get(id)
    if (kept || !this.#policies.get(id)) return kept
    const rules = this.#rules.ofPolicy(id)
    const ranges = { allow: rangesOf(rules, 'allow'), deny: rangesOf(rules, 'deny') }
    this.#kept.set(id, ranges)
    return ranges
  }
}

function rangesOf(rules: readonly IpPolicyRule[], action: IpPolicyRule['action']) {
  return rules.flatMap((rule) => (rule.action === action ? (parseCidr(rule.cidr) ?? []) : []))
}

/** Where requests of policies come in like those of visitors. */
interface InternalEntry {
  /** See `PolicyReach`; the endpoint is one that policies of this account find. */
  connectInternal(url: URL, ownerId: string | null, asker: Asker | undefined): Duplex | undefined
  /** See `PolicyReach`. */
  sealDepth(depth: number): string
}

interface PolicyReachDeps extends IpPolicyRangesOptions, Pick<PolicyReach, 'hasTable'> {
  /** Who has internal endpoints, at this node or another one. */
  readonly registry: Pick<EndpointRegistry, 'hasInternal'>
  readonly ingress: InternalEntry
  readonly secrets: AccountSecrets
  /** Where policies may connect to beside internal endpoints, and which files they may read. */
  readonly outboundAllow: readonly AllowEntry[]
}

/** What the policies of an account reach: its internal endpoints, IP policies, what is listed. */
export function policyReach({
  registry,
  ingress,
  secrets,
  outboundAllow,
  hasTable,
  ...stores
}: PolicyReachDeps): (ownerId: string | null) => PolicyReach {
  const ranges = new IpPolicyRanges(stores)
  return (ownerId) => ({
    hasTable,
    ipPolicy: (id) => ranges.of(id),
    mayDial: (target) => mayDial(outboundAllow, target),
    mayRead: (path) => mayRead(outboundAllow, path),
    secretFor: (purpose) => secrets.secretFor(ownerId, purpose),
    hasInternal: (url) => registry.hasInternal(url, ownerId),
    connectInternal: (url, asker) => ingress.connectInternal(url, ownerId, asker),
    sealDepth: (depth) => ingress.sealDepth(depth),
  })
}

/** Counters and the like of last policies that are remembered; 5 KB each, and the keys that they count. */
const MAX_REMEMBERED = 4_096
/** Problems of a policy that fit into one message. */
const MAX_PROBLEMS = 5

/** An internal endpoint is reached by requests that another endpoint forwards, never by a client. */
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
  /** What the policies of an account reach; unless given, nothing. */
  readonly reachOf?: (ownerId: string | null) => PolicyReach
}

/** Where a policy is going to stand. */
export interface PolicyPlace extends EndpointAddress {
  readonly ownerId: string | null
  /** Each member of a pool counts for itself. */
  readonly poolMember?: string | undefined
}

/** Rules that stand around those of a policy, because its agent asked for them in another way. */
export interface AroundPolicy {
  readonly around?: object | undefined
}

/** The counters and the like of a policy. */
type PolicyStates = Pick<CompiledPolicy, 'states'>

/** Those of the policy at a place. */
export interface PlacedStates extends PolicyPlace, PolicyStates {}

/** What is remembered of one account. */
interface OwnRemembered {
  /** By address, what was remembered last at the end. */
  readonly byPlace: Map<string, { readonly place: PolicyPlace; readonly policy: PolicyStates }>
  /** How many states they have together. */
  count: number
}

/** Compiles the policies of endpoints, and carries their counters from one to the next on a host. */
export class EndpointPolicies {
  readonly #options: EndpointPoliciesOptions
  readonly #lane: Lane
  readonly #rewriter = new BodyRewriter()
  readonly #documents = new KnownDocuments()
  /** All endpoints without rules have it: there is nothing in it to count. */
  #none: CompiledPolicy | undefined
  /** By account: what one has counted, or fetched, is not for the next one on the host. */
  readonly #last = new Map<string | null, OwnRemembered>()
  #remembered = 0

  constructor(options: EndpointPoliciesOptions) {
    this.#options = options
    this.#lane = options.lane ?? new Lane()
  }

  /**
   * Compiles the policy of the next endpoint on a host; null has no rules. It goes on with the
   * counters of `previous`, or of what is remembered. Throws PolicyError with every problem.
   */
  compile(
    trafficPolicy: string | null,
    place: PolicyPlace,
    previous: PolicyStates | undefined = this.last(place),
  ): CompiledPolicy {
    if (trafficPolicy === null) return this.#withoutRules()
    return checked(compilePolicy(trafficPolicy, this.#compilerOptions(place, previous)), place)
  }

  /**
   * The same, while everything else goes on: the counters are those of the policy that is the last
   * one when it is done.
   */
  async compileInTurns(
    trafficPolicy: string | null,
    { around, ...place }: PolicyPlace & AroundPolicy,
    previousOf: () => PolicyStates | undefined = () => this.last(place),
  ): Promise<CompiledPolicy> {
    if (trafficPolicy === null && !around) return this.#withoutRules()
    let previous: PolicyStates | undefined
    let policy: CompiledPolicy
    do {
      previous = previousOf()
      const options = { ...this.#compilerOptions(place, previous), around }
      policy = await compilePolicyInTurns(trafficPolicy, options)
    } while (previousOf() !== previous)
    return checked(policy, place)
  }

  /** Of the policy that was last in force at an address, as far as it is remembered. */
  last(place: PolicyPlace): PolicyStates | undefined {
    return this.#last.get(place.ownerId)?.byPlace.get(keyOf(place))?.policy
  }

  /** All that is remembered. */
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

  #compilerOptions({ ownerId }: PolicyPlace, previous: PolicyStates | undefined) {
    const { clock, log, limits, reachOf } = this.#options
    return {
      ...reachOf?.(ownerId),
      clock,
      log,
      limits,
      lane: this.#lane,
      rewriter: this.#rewriter,
      documents: this.#documents,
      previous,
    }
  }

  /** Keeps the counters of a policy for the next endpoint on the host, such as after a reconnect. */
  remember({ ownerId, protocol, host, poolMember }: PolicyPlace, { states }: PolicyStates): void {
    const place = { ownerId, protocol, host, poolMember }
    const own = this.#last.get(ownerId) ?? { byPlace: new Map(), count: 0 }
    this.#forget(ownerId, own, keyOf(place))
    // What counts nothing takes no place from what does.
    if (states.size === 0) return
    this.#last.set(ownerId, own)
    own.byPlace.set(keyOf(place), { place, policy: { states } })
    own.count += states.size
    this.#remembered += states.size
    while (this.#remembered > MAX_REMEMBERED) this.#forgetOne()
  }

  /** The oldest of the account that has most: nobody makes the policies of others forget. */
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
  return `${entranceOf(protocol)} ${host} ${poolMember}`
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

/** Requests are handed on to what takes requests, and bytes to what takes bytes. */
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

/** Of a connection whose bytes pass by as they are, nobody sees requests. */
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

/** What is wrong with a policy, in one message for people: places, sentences and codes. */
export function problemsText({ problems }: PolicyError): string {
  const shown = problems
    .filter(({ severity }) => severity === 'error')
    .slice(0, MAX_PROBLEMS)
    .map(({ pointer, message, code }) => `${pointer || '/'}: ${message} (${code})`)
  return `The traffic policy cannot be used. ${shown.join(' ')}`
}
