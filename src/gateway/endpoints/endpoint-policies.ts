import { PolicyError, ProblemList } from '../../policy/document/problem.ts'
import { type CompiledPolicy, compilePolicy, type PolicyOptions } from '../../policy/policy.ts'
import { isInternal } from '../records/domain-name.ts'

/** Hosts whose last policy is remembered. */
const MAX_REMEMBERED = 1_000
/** Problems of a policy that fit into one message. */
const MAX_PROBLEMS = 5

/** An internal endpoint is reached by requests that another endpoint forwards, never by a client. */
const NO_CONNECTIONS = new ProblemList()
NO_CONNECTIONS.add(
  'noConnections',
  '/on_tcp_connect',
  'An internal endpoint gets no connections of its own: move these rules to on_http_request, or to the endpoint that forwards to it.',
)

/** Compiles the policies of endpoints, and carries their counters from one to the next on a host. */
export class EndpointPolicies {
  readonly #options: PolicyOptions
  readonly #last = new Map<string, CompiledPolicy>()

  constructor(options: PolicyOptions) {
    this.#options = options
  }

  /**
   * Compiles the policy of the next endpoint on a host; null has no rules. It goes on with the
   * counters of `previous`, or of what is remembered. Throws PolicyError with every problem.
   */
  compile(
    trafficPolicy: string | null,
    host: string,
    previous = this.#last.get(host),
  ): CompiledPolicy {
    const policy = compilePolicy(trafficPolicy, { ...this.#options, previous })
    if (isInternal(host) && policy.hasConnectRules) throw new PolicyError(NO_CONNECTIONS.all)
    return policy
  }

  /** Keeps the counters of a policy for the next endpoint on the host, such as after a reconnect. */
  remember(host: string, policy: CompiledPolicy): void {
    this.#last.delete(host)
    this.#last.set(host, policy)
    const [oldest] = this.#last.keys()
    if (oldest !== undefined && this.#last.size > MAX_REMEMBERED) this.#last.delete(oldest)
  }
}

/** What is wrong with a policy, in one message for people: places, sentences and codes. */
export function problemsText({ problems }: PolicyError): string {
  const shown = problems
    .filter(({ severity }) => severity === 'error')
    .slice(0, MAX_PROBLEMS)
    .map(({ pointer, message, code }) => `${pointer || '/'}: ${message} (${code})`)
  return `The traffic policy cannot be used. ${shown.join(' ')}`
}
