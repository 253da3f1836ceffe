import type { Endpoint } from '../../endpoints/endpoint.ts'
import type {
  VisitorOutcome,
  VisitorOutcomes,
  VisitorWait,
} from '../../endpoints/visitor-outcomes.ts'
import type { EdgeErrorCode } from '../common/edge-error.ts'
import { isGrpc } from '../common/grpc-status.ts'
import type { IngressLimits } from '../common/ingress-limits.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import type { ExchangeState } from './exchange-state.ts'

/** What a visitor got by whose fault; the gateway's own limits say nothing about the service. */
const OUTCOMES: Partial<Record<EdgeErrorCode, VisitorOutcome>> = {
  ERR_NGROK_3004: 'garbage',
  ERR_NGROK_3005: 'late',
  ERR_NGROK_8012: 'unreachable',
  ERR_GATEWAY_UNTRUSTED: 'unreachable',
  ERR_GATEWAY_OLD_TLS: 'unreachable',
}

/** How a wait for the device ended that went over into this state. */
function outcomeOf(
  { name }: ExchangeState,
  failure: EdgeErrorCode | undefined,
): VisitorOutcome | undefined {
  if (ANSWERED.has(name)) return 'answered'
  if (failure !== undefined) return OUTCOMES[failure]
  return name === 'over' ? 'abandoned' : undefined
}

/** States of an answer that has begun. */
const ANSWERED: ReadonlySet<ExchangeState['name']> = new Set([
  'responding',
  'judging-response',
  'switched',
])

/** The time that a visitor waits for the device's service, as its endpoint counts it. */
export class DeviceWait {
  #outcomes: VisitorOutcomes | undefined
  #wait: VisitorWait | undefined
  #isAnswered = false

  /** `now` is monotonic, as in `end`. */
  begin(endpoint: Endpoint | undefined, now: number): void {
    this.#outcomes = endpoint?.traffic.outcomes
    this.#wait = this.#outcomes?.begin(now)
  }

  /** `failure` is what ended it without an answer of the device. */
  end(next: ExchangeState, failure: EdgeErrorCode | undefined, now: number): void {
    if (!this.#wait) return
    this.#outcomes?.end(this.#wait, outcomeOf(next, failure), now)
    this.#wait = undefined
    this.#isAnswered = ANSWERED.has(next.name)
  }

  /**
   * The device broke off an answer that had begun, or there was nobody to give it. One that stood still
   * is not held against it: it may have been the visitor who took nothing.
   */
  broke(failure: EdgeErrorCode): void {
    const outcome = OUTCOMES[failure]
    if (this.#isAnswered && outcome !== undefined && outcome !== 'late')
      this.#outcomes?.takeBack(outcome)
    this.#isAnswered = false
  }
}

/** More than any endpoint grants its service. */
const PEER_ANSWER_MS = 3_720_000

/** How long an exchange may stand still in its state; `isStream`: its response has no known length. */
export function silenceOf(
  state: ExchangeState,
  endpoint: Endpoint | undefined,
  head: RequestHead,
  isStream: boolean,
  { answerMs, silenceMs, idleMs }: IngressLimits,
): number {
  if (state.name === 'responding' && isStream) return idleMs
  if (state.name !== 'forwarding') return silenceMs
  // Another node keeps time itself, and a link to one that does not is given up.
  if (state.to.type === 'remote') return Math.max(PEER_ANSWER_MS, answerMs, idleMs)
  const own = endpoint?.type === 'agent' ? endpoint.answerMs : undefined
  // The head of a stream of gRPC may come with its first message; the caller's deadline is its own.
  return own ?? (isGrpc(head) ? idleMs : answerMs)
}
