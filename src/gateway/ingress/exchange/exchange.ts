import type { Pace } from '../../streams/proxy-stream.ts'
import type { Client } from '../common/client.ts'
import { TOO_SLOW } from '../common/edge-error.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { ProgressWatch, RateMeter } from '../common/progress-watch.ts'
import { HttpSyntaxError } from '../syntax/http-syntax.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import { ExchangeCore, silenceOf } from './exchange-core.ts'
import { RequestWay } from './request-way.ts'
import type { StreamUser } from './response-way.ts'

/**
 * One request of a client, from its head to the end of the response. It receives the events of the client's
 * connection and stream. `ExchangeCore` has its state, `RequestWay` sends it to a device, and `ResponseWay`
 * returns the response.
 */
export class Exchange implements StreamUser {
  readonly #core: ExchangeCore
  readonly #way: RequestWay
  #watch: ProgressWatch | undefined
  #meter: RateMeter | undefined

  constructor(context: IngressContext, client: Client, head: RequestHead) {
    this.#core = new ExchangeCore(context, client, head)
    this.#way = new RequestWay(this.#core, this)
  }

  /** Finds the endpoint and sends the request on. */
  start(): void {
    this.#way.start()
  }

  /** True when the connection speaks another protocol now. */
  get isSwitched(): boolean {
    return this.#core.state.name === 'switched'
  }

  /** True while it is the client's turn. */
  get isAwaited(): boolean {
    return this.#core.request.isAwaited
  }

  /** Bytes that have come and wait here, on their way to the device or back. */
  get heldBytes(): number {
    const state = this.#core.state
    if (state.name === 'switched') return state.upgrade.heldBytes
    const judgedBytes = state.name === 'judging-response' ? state.held.length : 0
    const forwardBytes = ('forward' in state && state.forward?.heldBytes) || 0
    return judgedBytes + forwardBytes + this.#core.request.heldBytes + this.#core.writer.heldBytes
  }

  /** Chunks of the request's body that have begun so far. */
  get receivedChunks(): number {
    return this.#core.request.body?.chunks ?? 0
  }

  /** Bytes that have come from the client behind its head. */
  get receivedBytes(): number {
    const state = this.#core.state
    return state.name === 'switched' ? state.upgrade.receivedBytes : this.#core.request.bodyBytes
  }

  /** See `StreamWaiter`. */
  get pace(): Pace {
    return { rate: this.#meter?.rate, isHeldUp: this.#core.client.unreadBytes > 0 }
  }

  /** See `StreamWaiter`. */
  get isLasting(): boolean {
    return this.isSwitched || (this.#core.isStream && this.#core.state.name === 'responding')
  }

  /** Releases the device's stream for another exchange. */
  evict(): void {
    const isCut = this.isSwitched || this.#core.writer.hasBegun
    if (!isCut) {
      const state = this.#core.state
      const isToPeer = 'forward' in state && state.forward?.isToPeer
      this.#core.fail(isToPeer ? 'ERR_GATEWAY_LINK_FULL' : 'ERR_GATEWAY_SATURATED', true)
      return
    }
    this.countCut()
    this.#core.client.abort()
  }

  /** The client's connection is about to be broken off, because it takes too little. */
  countCut(): void {
    this.#core.traffic.refuse(TOO_SLOW)
  }

  /** Reads the part of the exchange; returns the offset behind it. */
  read(chunk: Buffer, from: number): number {
    const state = this.#core.state
    if (state.name === 'switched') {
      state.upgrade.onClientData(chunk.subarray(from))
      return chunk.length
    }
    const { body } = this.#core.request
    if (!body) return from
    try {
      const end = body.read(chunk, from)
      this.#core.traffic.receive(end - from)
      this.#core.settle()
      return end
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      this.#core.fail('ERR_GATEWAY_BAD_REQUEST', false, `It has ${error.message}.`)
      return chunk.length
    }
  }

  /** The client's socket has room again. */
  onClientRoom(): void {
    const state = this.#core.state
    if (state.name === 'responding') this.#core.writer.onClientRoom()
    else if (state.name === 'switched') state.upgrade.onClientRoom()
  }

  /** The client has ended its side. A response that is still due is no longer wanted. */
  onClientEnd(): void {
    const state = this.#core.state
    if (state.name === 'switched') {
      state.upgrade.onClientEnd()
    } else if (state.name !== 'over') {
      const isWhole = state.name === 'draining' || !this.#core.writer.hasBegun
      this.#core.giveUp()
      this.#core.conclude()
      if (isWhole) this.#core.client.exchangeDone(false)
      else this.#core.client.abort()
    }
  }

  /** The client's connection is gone. */
  onClientClose(): void {
    const state = this.#core.state
    if (state.name === 'switched') {
      state.upgrade.onClientClose()
    } else if (state.name !== 'over') {
      this.#core.giveUp()
      this.#core.conclude()
    }
  }

  /** Ends an exchange that does not move; `now` is monotonic. */
  sweep(now: number): void {
    const state = this.#core.state
    if (state.name === 'over') return
    this.#meter ??= new RateMeter()
    const { takenBytes, unreadBytes } = this.#core.client
    this.#meter.measure(this.receivedBytes + takenBytes, unreadBytes, now)
    if (state.name === 'switched') {
      state.upgrade.sweep(now)
      return
    }
    if (state.name === 'searching') {
      // Another name may answer for the host by now, or the time is up.
      this.#core.search.again()
      return
    }
    this.#watch ??= new ProgressWatch(this.#core.context.limits)
    const { bodyBytes, isAwaited } = this.#core.request
    // To be handed on is a move as well, and to get a stream, before any byte comes back.
    const forward = 'forward' in state ? state.forward : undefined
    const passedOn = forward ? forward.passedOn + (forward.wasSent ? 2 : 1) : 0
    const movedBytes = bodyBytes + passedOn + this.#core.writer.bytes
    const awaitedBodyBytes = isAwaited ? bodyBytes : undefined
    // A visitor that takes nothing is no quiet stream.
    const isStream = this.#core.isStream && unreadBytes === 0
    const { limits } = this.#core.context
    const silenceMs = silenceOf(
      state,
      this.#core.endpoint,
      this.#core.request.head,
      isStream,
      limits,
    )
    const stall = this.#watch.check({ movedBytes, awaitedBodyBytes, silenceMs }, now)
    if (stall === 'slow-body') {
      this.#core.fail('ERR_GATEWAY_REQUEST_TIMEOUT', false)
    } else if (stall === 'silence') {
      if ('policy' in state) state.policy?.upstreamEnded(undefined)
      this.#core.fail('ERR_NGROK_3005', false)
    }
  }
}
