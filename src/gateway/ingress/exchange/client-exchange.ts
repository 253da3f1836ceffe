import type { MaybePromise, Outcome } from '../../../policy/exchange/outcome.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { Pace } from '../../streams/proxy-stream.ts'
import type { Client } from '../common/client.ts'
import { type EdgeErrorCode, edgeErrorReply, TOO_SLOW } from '../common/edge-error.ts'
import { ExchangeTraffic } from '../common/exchange-traffic.ts'
import { IncomingRequest } from '../common/incoming-request.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import type { RefusalReason } from '../common/ingress-listener.ts'
import type { LocalReply } from '../common/local-reply.ts'
import { ProgressWatch } from '../common/progress-watch.ts'
import { RateMeter } from '../common/rate-meter.ts'
import type { OutgoingResponse, ResponseOwner, ResponseWriter } from '../common/response-writer.ts'
import type { Forward } from '../device/forward.ts'
import { CHUNKED, UNTIL_CLOSE } from '../syntax/body-framing.ts'
import { HttpSyntaxError } from '../syntax/http-syntax-error.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { logExchange } from './access-log.ts'
import { DeviceWait, silenceOf } from './device-wait.ts'
import { type ExchangeState, nextExchangeState } from './exchange-state.ts'
import { NameSearch, type Searcher } from './name-search.ts'

/** What a policy hears of a device that the gateway did not wait for: no fault of the device. */
const NOT_AWAITED = 499

const SEARCHING: ExchangeState = { name: 'searching', policy: undefined }
const OVER: ExchangeState = { name: 'over' }

/** The client's side of an exchange: its state, what the client does meanwhile, and how it ends. */
export class ClientExchange implements ResponseOwner, Searcher {
  protected readonly context: IngressContext
  protected readonly client: Client
  protected readonly request: IncomingRequest
  protected readonly writer: ResponseWriter
  protected readonly traffic = new ExchangeTraffic()
  protected readonly search: NameSearch
  readonly #startedAt: number
  /** The one that the request has come to. */
  #endpoint: Endpoint | undefined
  /** What ended it without an answer of the device. */
  #failure: EdgeErrorCode | undefined
  readonly #wait = new DeviceWait()
  #watch: ProgressWatch | undefined
  /** The response may have pauses of any length. */
  #isStream = false
  #meter: RateMeter | undefined
  #state = SEARCHING

  constructor(context: IngressContext, client: Client, head: RequestHead) {
    this.context = context
    this.client = client
    this.request = new IncomingRequest(head, client, context.clock)
    this.writer = client.writerFor(this.request, this.traffic, this)
    this.search = new NameSearch(context, this)
    this.#startedAt = context.log.isLevelEnabled('debug') ? context.clock.monotonic() : 0
  }

  protected get state(): ExchangeState {
    return this.#state
  }

  /** True when the connection speaks another protocol now. */
  get isSwitched(): boolean {
    return this.#state.name === 'switched'
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

  /** True while it is the client's turn. */
  get isAwaited(): boolean {
    return this.request.isAwaited
  }

  /** Bytes that have come and wait here, on their way to the device or back. */
  get heldBytes(): number {
    const state = this.#state
    if (state.name === 'switched') return state.upgrade.heldBytes
    const judgedBytes = state.name === 'judging-response' ? state.held.length : 0
    const forwardBytes = ('forward' in state && state.forward?.heldBytes) || 0
    return judgedBytes + forwardBytes + this.request.heldBytes + this.writer.heldBytes
  }

  /** Chunks of the request's body that have begun so far. */
  get receivedChunks(): number {
    return this.request.body?.chunks ?? 0
  }

  /** Bytes that have come from the client behind its head. */
  get receivedBytes(): number {
    const state = this.#state
    return state.name === 'switched' ? state.upgrade.receivedBytes : this.request.bodyBytes
  }

  /** See `StreamWaiter`. */
  get pace(): Pace {
    return { rate: this.#meter?.rate, isHeldUp: this.client.unreadBytes > 0 }
  }

  /** See `StreamWaiter`. */
  get isLasting(): boolean {
    return this.isSwitched || (this.#isStream && this.#state.name === 'responding')
  }

  /** Gives the device's stream up for somebody else's sake. */
  evict(): void {
    const isCut = this.isSwitched || this.writer.hasBegun
    if (!isCut) {
      const state = this.#state
      const isToPeer = 'forward' in state && state.forward?.isToPeer
      this.fail(isToPeer ? 'ERR_GATEWAY_LINK_FULL' : 'ERR_GATEWAY_SATURATED', true)
      return
    }
    this.countCut()
    this.client.abort()
  }

  /** What was taken for an answer of the service was none. */
  protected countUnreachable(): void {
    const code = 'ERR_NGROK_8012'
    this.#wait.broke(code)
    this.traffic.refuse(code)
  }

  /** The client's connection is about to be broken off, because it takes too little. */
  countCut(): void {
    this.traffic.refuse(TOO_SLOW)
  }

  /** Takes what belongs to the exchange; answers the offset behind it. */
  take(chunk: Buffer, from: number): number {
    const state = this.#state
    if (state.name === 'switched') {
      state.upgrade.onClientData(chunk.subarray(from))
      return chunk.length
    }
    const { body } = this.request
    if (!body) return from
    try {
      const end = body.take(chunk, from)
      this.traffic.receive(end - from)
      this.#settle()
      return end
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      this.fail('ERR_GATEWAY_BAD_REQUEST', false, `It has ${error.message}.`)
      return chunk.length
    }
  }

  /** The client's socket has taken what it was given. */
  onClientRoom(): void {
    const state = this.#state
    if (state.name === 'responding') this.writer.onClientRoom()
    else if (state.name === 'switched') state.upgrade.onClientRoom()
  }

  /** The client sends no more. While a response is due it does not want that any more either. */
  onClientEnd(): void {
    const state = this.#state
    if (state.name === 'switched') {
      state.upgrade.onClientEnd()
    } else if (state.name !== 'over') {
      const isWhole = state.name === 'draining' || !this.writer.hasBegun
      this.giveUp()
      this.conclude()
      if (isWhole) this.client.exchangeDone(false)
      else this.client.abort()
    }
  }

  /** The client's connection is gone. */
  onClientClose(): void {
    const state = this.#state
    if (state.name === 'switched') {
      state.upgrade.onClientClose()
    } else if (state.name !== 'over') {
      this.giveUp()
      this.conclude()
    }
  }

  /** Ends an exchange that does not move; `now` is monotonic. */
  sweep(now: number): void {
    const state = this.#state
    if (state.name === 'over') return
    this.#meter ??= new RateMeter()
    const { takenBytes, unreadBytes } = this.client
    this.#meter.look(this.receivedBytes + takenBytes, unreadBytes, now)
    if (state.name === 'switched') {
      state.upgrade.sweep(now)
      return
    }
    if (state.name === 'searching') {
      // Another name may answer for the host by now, or the time is up.
      this.search.again()
      return
    }
    this.#watch ??= new ProgressWatch(this.context.limits)
    const { bodyBytes, isAwaited } = this.request
    // To be handed on is a move as well, and to get a stream, before any byte comes back.
    const forward = 'forward' in state ? state.forward : undefined
    const passedOn = forward ? forward.passedOn + (forward.wasSent ? 2 : 1) : 0
    const movedBytes = bodyBytes + passedOn + this.writer.bytes
    const awaitedBodyBytes = isAwaited ? bodyBytes : undefined
    // A visitor that takes nothing is no quiet stream.
    const isStream = this.#isStream && unreadBytes === 0
    const { limits } = this.context
    const silenceMs = silenceOf(state, this.#endpoint, this.request.head, isStream, limits)
    const stall = this.#watch.look({ movedBytes, awaitedBodyBytes, silenceMs }, now)
    if (stall === 'slow-body') {
      this.fail('ERR_GATEWAY_REQUEST_TIMEOUT', false)
    } else if (stall === 'silence') {
      if ('policy' in state) state.policy?.upstreamEnded(undefined)
      this.fail('ERR_NGROK_3005', false)
    }
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

  /** The one place where the state changes. */
  protected become(next: ExchangeState): void {
    const before = this.#state
    this.#state = nextExchangeState(before, next)
    const { clock } = this.context
    if (before.name === 'forwarding') this.#wait.end(next, this.#failure, clock.monotonic())
    if (next.name === 'forwarding') this.#wait.begin(this.#endpoint, clock.monotonic())
  }

  /** Follows a verdict, unless the exchange has gone on from the state that asked for it. */
  protected judge(verdict: MaybePromise<Outcome>, follow: (outcome: Outcome) => void): void {
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
  protected followEnd(outcome: Outcome): void {
    this.giveUp()
    if (outcome.kind === 'respond') {
      const { status, headers, body, errorCode } = outcome.reply
      this.traffic.refuse(errorCode)
      // Who asks again here would be misdirected again (RFC 9110 15.5.20).
      if (status === 421) this.client.leave()
      this.reply({ status, fields: headers, body }, true)
    } else {
      this.closeFor('policy')
    }
  }

  /** Breaks the connection off without an answer. */
  protected closeFor(reason: RefusalReason): void {
    this.giveUp()
    this.conclude()
    this.client.refuse(reason)
  }

  /**
   * Counts the request at an endpoint: beside those that have handed it on, or instead of the one
   * that was lost under it.
   */
  protected enterEndpoint(endpoint: Endpoint, isHandedOn: boolean): void {
    this.#endpoint = endpoint
    if (isHandedOn) this.traffic.enter(endpoint.traffic)
    else this.traffic.move(endpoint.traffic)
    const { buffers } = endpoint.type === 'agent' ? endpoint.streams : this.context
    this.client.charge(buffers)
  }

  /** Begins the final response. */
  protected respond(
    response: OutgoingResponse,
    forward: Forward | undefined,
    isMore: boolean,
  ): void {
    const fields = this.withAdded(response.fields)
    this.become({ name: 'responding', forward })
    const { framing, contentLength } = response
    const hasLength = framing !== CHUNKED && framing !== UNTIL_CLOSE
    this.#isStream = !hasLength && contentLength === undefined
    this.writer.begin({ ...response, fields }, isMore)
  }

  /** Ends the exchange with an error: as an answer while nothing was answered, else abruptly. */
  protected fail(code: EdgeErrorCode, mayGoOn: boolean, detail?: string): void {
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
      this.reply(edgeErrorReply(code, this.request.accept, detail), mayGoOn)
    }
  }

  /** Sends an answer of the gateway itself, whole. */
  protected reply(reply: LocalReply, mayGoOn: boolean): void {
    const { limits, clock } = this.context
    const goesOn = mayGoOn && this.request.head.keepAlive && !this.client.isStopping
    const keepAlive = goesOn && this.request.isShort(limits.discardedBytes)
    const fields = this.withAdded(reply.fields)
    this.writer.reply({ ...reply, fields }, keepAlive, clock.now())
    this.#answered()
  }

  /** With what a policy has for the client whoever answers, such as a cookie. */
  protected withAdded(fields: readonly string[]): readonly string[] {
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
      // A rest of the request that nobody wants any more is dropped, if it is not too long.
      const bodyLimit = body.bytes + this.context.limits.discardedBytes
      this.become({ name: 'draining', bodyLimit })
      body.discard()
      this.#settle()
    }
  }

  /** Ends the draining with the body, or where it is longer than a new connection is worth. */
  #settle(): void {
    const state = this.#state
    if (state.name !== 'draining') return
    if (this.request.isDone || this.request.bodyBytes > state.bodyLimit) this.#finish()
  }

  #finish(): void {
    this.conclude()
    this.client.exchangeDone(this.writer.keepAlive && this.request.isDone)
  }

  /** Lets go of what the state holds: nobody waits for the device any more. */
  protected giveUp(): void {
    const state = this.#state
    if (state.name === 'preparing') state.pipe.destroy()
    if (state.name === 'searching') this.search.stop()
    if ('forward' in state) state.forward?.abort()
    if ('policy' in state) state.policy?.upstreamEnded(NOT_AWAITED)
    this.writer.abandon()
  }

  /** What an upgrade moved afterwards is given, and was counted already. */
  protected conclude(upgradeIn = 0, upgradeOut = 0): void {
    this.become(OVER)
    const { log, clock } = this.context
    this.traffic.end()
    if (!log.isLevelEnabled('debug')) return
    logExchange(log, {
      head: this.request.head,
      clientIp: this.client.ip,
      status: this.writer.status,
      bytesIn: this.request.bodyBytes + upgradeIn,
      bytesOut: this.writer.bytes + upgradeOut,
      ms: Math.round(clock.monotonic() - this.#startedAt),
    })
  }
}
