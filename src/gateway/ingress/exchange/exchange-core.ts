import type { MaybePromise, Outcome } from '../../../policy/exchange/outcome.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type {
  VisitorOutcome,
  VisitorOutcomes,
  VisitorWait,
} from '../../endpoints/visitor-outcomes.ts'
import type { Client, OutgoingResponse, ResponseOwner, ResponseWriter } from '../common/client.ts'
import { type EdgeErrorCode, edgeError } from '../common/edge-error.ts'
import { errorReply, policyError, type VisitorError } from '../common/error-reply.ts'
import { ExchangeTraffic } from '../common/exchange-traffic.ts'
import { IncomingRequest } from '../common/incoming-request.ts'
import type { IngressContext, IngressLimits } from '../common/ingress-context.ts'
import type { RefusalReason } from '../common/ingress-listener.ts'
import { isGrpc, type LocalReply } from '../common/local-reply.ts'
import type { Forward } from '../device/forward.ts'
import { CHUNKED, UNTIL_CLOSE } from '../syntax/http-syntax.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { type ExchangeState, nextExchangeState } from './exchange-state.ts'
import { NameSearch, type Searcher } from './name-search.ts'

/** Cause of each error response. Limits of the gateway say nothing about the service. */
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
class DeviceWait {
  #outcomes: VisitorOutcomes | undefined
  #wait: VisitorWait | undefined
  #isAnswered = false

  /** `now` is monotonic, as in `end`. */
  begin(endpoint: Endpoint | undefined, now: number): void {
    this.#outcomes = endpoint?.traffic.outcomes
    this.#wait = this.#outcomes?.begin(now)
  }

  /** `failure`: the reason of an end without a response of the device. */
  end(next: ExchangeState, failure: EdgeErrorCode | undefined, now: number): void {
    if (!this.#wait) return
    this.#outcomes?.end(this.#wait, outcomeOf(next, failure), now)
    this.#wait = undefined
    this.#isAnswered = ANSWERED.has(next.name)
  }

  /**
   * The device aborted a started response, or was lost. Silence does not count against it: the visitor may
   * not have read.
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
  // Another node has its own timeouts, and a dead link is detected.
  if (state.to.type === 'remote') return Math.max(PEER_ANSWER_MS, answerMs, idleMs)
  const own = endpoint?.type === 'agent' ? endpoint.answerMs : undefined
  // The head of a stream of gRPC may come with its first message; the caller's deadline is its own.
  return own ?? (isGrpc(head) ? idleMs : answerMs)
}

/** Status for policies when the gateway did not wait for the device: no fault of the device. */
const NOT_AWAITED = 499

const SEARCHING: ExchangeState = { name: 'searching', policy: undefined }
const OVER: ExchangeState = { name: 'over' }

/**
 * Shared parts of an exchange: its state, its output to the client, and its end.
 *
 * INVARIANTS
 * - It is in one state of `exchange-state.ts`, and only `become` changes that. Events that do not belong to
 *   the state, such as a late verdict, are ignored.
 * - The client gets at most one final response. It starts on the way to `responding`, or complete on the way
 *   to `draining` and `over`. Later states cannot start one.
 * - A response ends cleanly only if the device's does. A later error calls `client.abort()`, an earlier one
 *   gives a response of the gateway.
 * - On the way to `over`, the resources of the state are released: a forward has ended, and its stream is
 *   returned or retired. `client.exchangeDone()` or `client.abort()` follows once, unless the client is gone.
 */
export class ExchangeCore implements ResponseOwner, Searcher {
  readonly context: IngressContext
  readonly client: Client
  readonly request: IncomingRequest
  readonly writer: ResponseWriter
  readonly traffic = new ExchangeTraffic()
  readonly search: NameSearch
  readonly #startedAt: number
  #endpoint: Endpoint | undefined
  /** Error that ended it without a response of the device. */
  #failure: EdgeErrorCode | undefined
  readonly #wait = new DeviceWait()
  #isStream = false
  #state = SEARCHING

  constructor(context: IngressContext, client: Client, head: RequestHead) {
    this.context = context
    this.client = client
    this.request = new IncomingRequest(head, client, context.clock)
    this.writer = client.writerFor(this.request, this.traffic, this)
    this.search = new NameSearch(context, this)
    this.#startedAt = context.clock.monotonic()
  }

  get state(): ExchangeState {
    return this.#state
  }

  /** The endpoint that the request has come to. */
  get endpoint(): Endpoint | undefined {
    return this.#endpoint
  }

  /** True for a response that may have pauses of any length. */
  get isStream(): boolean {
    return this.#isStream
  }

  /** See `Searcher`, as for the next two. */
  get network(): string {
    return this.client.network
  }

  get waitingBytes(): number {
    return this.request.memoryBytes
  }

  guard(step: () => void): void {
    this.client.guard(step)
  }

  /** The counted response was not from the service. */
  countUnreachable(): void {
    const code = 'ERR_NGROK_8012'
    this.#wait.broke(code)
    this.traffic.refuse(code)
  }

  onWriterRoom(): void {
    if (this.#state.name === 'responding') this.#state.forward?.onRoom()
  }

  onWritten(): void {
    if (this.#state.name === 'responding') this.#answered()
  }

  onTransformError(err: Error): void {
    const { name } = this.#state
    if (name !== 'preparing' && name !== 'responding') return
    this.context.log.info({ err, endpoint: this.#endpoint?.id }, 'body transformation failed')
    this.fail('ERR_NGROK_2254', true)
  }

  /** The only place that changes the state. */
  become(next: ExchangeState): void {
    const before = this.#state
    this.#state = nextExchangeState(before, next)
    const { clock } = this.context
    if (before.name === 'forwarding') this.#wait.end(next, this.#failure, clock.monotonic())
    if (next.name === 'forwarding') this.#wait.begin(this.#endpoint, clock.monotonic())
  }

  /** Follows a verdict, unless the exchange has gone on from the state that asked for it. */
  judge(verdict: MaybePromise<Outcome>, follow: (outcome: Outcome) => void): void {
    if (!(verdict instanceof Promise)) {
      follow(verdict)
      return
    }
    const asked = this.#state
    const { log } = this.context
    verdict
      .then(
        (outcome) => {
          if (this.#state === asked) follow(outcome)
        },
        (err) => {
          log.error({ err, endpoint: this.#endpoint?.id }, 'policy failed')
          if (this.#state === asked) this.fail('ERR_NGROK_2254', false)
        },
      )
      .catch((err) => {
        log.error({ err, endpoint: this.#endpoint?.id }, 'exchange failed')
        this.client.abort()
      })
  }

  /** Follows a verdict that leaves nothing to ask the device for. */
  followEnd(outcome: Outcome): void {
    this.giveUp()
    if (outcome.kind === 'respond') {
      const { status, headers, body, errorCode } = outcome.reply
      this.traffic.refuse(errorCode)
      // On the same connection, another request would be misdirected, too (RFC 9110 15.5.20).
      if (status === 421) this.client.stopAccepting()
      const error = policyError(outcome.reply)
      if (error) this.#replyError(error, true)
      else this.reply({ status, fields: headers, body }, true)
    } else {
      this.closeFor('policy')
    }
  }

  /** Breaks the connection off without an answer. */
  closeFor(reason: RefusalReason): void {
    this.giveUp()
    this.conclude()
    this.client.refuse(reason)
  }

  /**
   * Counts the request at an endpoint: in addition to endpoints that forwarded it, or in place of a lost
   * endpoint.
   */
  enterEndpoint(endpoint: Endpoint, isHandedOn: boolean): void {
    this.#endpoint = endpoint
    if (isHandedOn) this.traffic.enter(endpoint.traffic)
    else this.traffic.move(endpoint.traffic)
    const { buffers } = endpoint.type === 'agent' ? endpoint.streams : this.context
    this.client.charge(buffers)
  }

  /** Begins the final response. */
  respond(response: OutgoingResponse, forward: Forward | undefined, isMore: boolean): void {
    const fields = this.withAdded(response.fields)
    this.become({ name: 'responding', forward })
    const { framing, contentLength } = response
    const hasLength = framing !== CHUNKED && framing !== UNTIL_CLOSE
    this.#isStream = !hasLength && contentLength === undefined
    this.writer.begin({ ...response, fields }, isMore)
  }

  /** Ends the exchange with an error: as an answer while nothing was answered, else abruptly. */
  fail(code: EdgeErrorCode, mayGoOn: boolean, detail?: string): void {
    const { name } = this.#state
    if (name === 'over' || name === 'switched') return
    if (name === 'draining') {
      // The client has its response; it is its request that does not end.
      this.#finish()
      return
    }
    this.giveUp()
    this.#failure = code
    this.#wait.broke(code)
    this.traffic.refuse(code)
    if (this.writer.hasBegun) {
      this.conclude()
      this.client.abort()
    } else {
      this.#replyError(edgeError(code, detail), mayGoOn)
    }
  }

  /** The same when no device could answer: a policy hears of that. */
  failOnDevice(code: EdgeErrorCode): void {
    const state = this.#state
    if ('policy' in state) state.policy?.upstreamEnded(undefined)
    this.fail(code, true)
  }

  /** Sends an error in the form that the client asks for. */
  #replyError(error: VisitorError, mayGoOn: boolean): void {
    const { head, accept } = this.request
    const { errorPages, errorLog } = this.context
    // A call of gRPC gets its message from the text.
    const asked = { accept: isGrpc(head) ? '' : accept, hostname: head.hostname }
    const reply = errorReply(error, asked, errorPages)
    errorLog.note(error, {
      requestId: reply.requestId,
      host: head.hostname,
      endpoint: this.#endpoint?.id,
      clientIp: this.client.ip,
    })
    this.reply(reply, mayGoOn)
  }

  /** Sends an answer of the gateway itself, whole. */
  reply(reply: LocalReply, mayGoOn: boolean): void {
    const { limits, clock } = this.context
    const goesOn = mayGoOn && this.request.head.keepAlive && !this.client.isStopping
    const keepAlive = goesOn && this.request.isShort(limits.discardedBytes)
    const fields = this.withAdded(reply.fields)
    this.writer.reply({ ...reply, fields }, keepAlive, clock.now())
    this.#answered()
  }

  /** Adds the policy's fields for the client, such as a cookie, to any response. */
  withAdded(fields: readonly string[]): readonly string[] {
    const state = this.#state
    const added = 'policy' in state ? state.policy?.addedFields : undefined
    return added && added.length > 0 ? [...fields, ...added] : fields
  }

  /** All of the response is with the client's socket. */
  #answered(): void {
    const { body } = this.request
    if (!body || body.isDone || !this.writer.keepAlive) {
      this.#finish()
    } else {
      // The rest of an unneeded request is dropped, unless it is too long.
      const bodyLimit = body.bytes + this.context.limits.discardedBytes
      this.become({ name: 'draining', bodyLimit })
      body.discard()
      this.settle()
    }
  }

  /** Ends the draining with the body, or where it is longer than a new connection is worth. */
  settle(): void {
    const state = this.#state
    if (state.name !== 'draining') return
    if (this.request.isDone || this.request.bodyBytes > state.bodyLimit) this.#finish()
  }

  #finish(): void {
    this.conclude()
    this.client.exchangeDone(this.writer.keepAlive && this.request.isDone)
  }

  /** Releases the resources of the state: the device is no longer needed. */
  giveUp(): void {
    const state = this.#state
    if (state.name === 'preparing') state.pipe.destroy()
    if (state.name === 'searching') this.search.stop()
    if ('forward' in state) state.forward?.abort()
    if ('policy' in state) state.policy?.upstreamEnded(NOT_AWAITED)
    this.writer.abandon()
  }

  /** Ends the exchange. Bytes of an upgrade are parameters; others are already counted. */
  conclude(upgradeIn = 0, upgradeOut = 0): void {
    this.become(OVER)
    const { log, clock } = this.context
    const { status } = this.writer
    const ms = clock.monotonic() - this.#startedAt
    this.traffic.endRequest(status, ms)
    if (!log.isLevelEnabled('debug')) return
    const { method, hostname: host, target } = this.request.head
    // A query may hold secrets.
    const [path] = target.split('?', 1)
    const bytesIn = this.request.bodyBytes + upgradeIn
    const bytesOut = this.writer.bytes + upgradeOut
    const clientIp = this.client.ip
    const rounded = Math.round(ms)
    log.debug({ method, host, path, status, bytesIn, bytesOut, ms: rounded, clientIp }, 'exchange')
  }
}
