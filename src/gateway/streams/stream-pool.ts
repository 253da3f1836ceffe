import { MuxadoError } from '../../muxado/error-code.ts'
import { openTyped } from '../../muxado/typed-session.ts'
import { ProxyStream, type ProxyStreamOwner, type StreamWaiter } from './proxy-stream.ts'
import type { SlotUser, StreamSlots } from './stream-slots.ts'

/** The type of the streams on which the gateway sends connections to the SDK. */
const PROXY_STREAM_TYPE = 3

export interface StreamPoolOptions {
  /** One per agent session: `new StreamSlots({ session })`. */
  readonly slots: StreamSlots
  /** What a proxy stream of this endpoint starts with, after its type. */
  readonly proxyHeader: (clientAddr: string) => Buffer
  /**
   * When the agent knows the endpoint: the SDK drops the streams of one that it has not heard of, so
   * who asks sooner waits. Must not reject; without it, the agent knows the endpoint already.
   */
  readonly ready?: Promise<void>
}

/**
 * The proxy streams of one endpoint: its share of the slots of an agent session. Exchanges ask here;
 * the session's `StreamSlots` behind it serve all its endpoints and ask back through `SlotUser`.
 *
 * INVARIANTS
 * - Each asking is answered once, with a stream or a reason, unless it is cancelled; a cancelled or
 *   answered waiter is not called again.
 * - A stream is with one exchange, or idle, or of no use. The exchange that got it calls `release()`
 *   or `retire()` on it once; after `retire()` its pool does not know it any more.
 * - Idle streams are taken newest first, and only while nobody waits for a slot of the session: who
 *   waits longest gets the stream that is handed back, or its slot.
 * - After `close()` nobody gets a stream, and what comes back is retired; `cut()` takes the streams
 *   of exchanges under way as well, each of which hears that its stream was closed.
 */
export class StreamPool implements SlotUser, ProxyStreamOwner {
  readonly #slots: StreamSlots
  readonly #proxyHeader: (clientAddr: string) => Buffer
  /** Oldest first. */
  readonly #idle: ProxyStream[] = []
  /** With an exchange, until released or retired. */
  readonly #busy = new Set<ProxyStream>()
  /** Who asked before the agent was ready, and for which client; undefined once it is. */
  #early: Map<StreamWaiter, string> | undefined
  #isClosed = false

  constructor({ slots, proxyHeader, ready }: StreamPoolOptions) {
    this.#slots = slots
    this.#proxyHeader = proxyHeader
    if (!ready) return
    this.#early = new Map()
    void ready.then(() => this.#admitEarly())
  }

  /** How many more streams its session takes. */
  get freeSlots(): number {
    return this.#slots.session.freeSlots
  }

  /** Asks for a stream, an idle one if there is one; it counts for the asker until handed back. */
  acquire(clientAddr: string, waiter: StreamWaiter): void {
    const idle = this.#idle.pop()
    if (!idle) {
      this.acquireFresh(clientAddr, waiter)
      return
    }
    this.#busy.add(idle)
    waiter.onStream(idle)
  }

  /** Asks for a stream that no exchange has used before. */
  acquireFresh(clientAddr: string, waiter: StreamWaiter): void {
    if (this.#isClosed) waiter.onNoStream('session-over')
    else if (!this.#early) this.#slots.request(this, clientAddr, waiter)
    else if (this.#early.size >= this.#slots.queueLength) waiter.onNoStream('queue-full')
    else this.#early.set(waiter, clientAddr)
  }

  /** Withdraws an `acquire` that was not answered yet. */
  cancel(waiter: StreamWaiter): void {
    this.#early?.delete(waiter)
    this.#slots.cancel(waiter)
  }

  /** Retires idle streams and refuses who waits; exchanges under way go on. */
  close(): void {
    this.#isClosed = true
    this.#takeEarly((waiter) => waiter.onNoStream('session-over'))
    this.#slots.leave(this)
    this.retireIdle(Number.POSITIVE_INFINITY)
  }

  /** Like `close()`, and ends the exchanges under way too: nobody allows them any more. */
  cut(): void {
    this.close()
    for (const stream of this.#busy) stream.cut()
  }

  /** Opens a stream without waiting for a slot; undefined when there is none, or no session. */
  open(clientAddr: string): ProxyStream | undefined {
    try {
      const header = this.#proxyHeader(clientAddr)
      const stream = new ProxyStream(this, (handler) =>
        openTyped(this.#slots.session, PROXY_STREAM_TYPE, handler, header),
      )
      this.#busy.add(stream)
      return stream
    } catch (error) {
      if (error instanceof MuxadoError) return undefined
      throw error
    }
  }

  /** The tick since which the oldest idle stream is unused; infinite when there is none. */
  get oldestIdle(): number {
    return this.#idle[0]?.idleSince ?? Number.POSITIVE_INFINITY
  }

  retireOldest(): void {
    this.#idle.shift()?.retire()
  }

  /** Retires what is idle since `tick` or longer. */
  retireIdle(tick: number): void {
    while (this.#idle.length > 0 && this.oldestIdle <= tick) this.retireOldest()
  }

  takeBack(stream: ProxyStream): void {
    if (this.#isClosed) stream.retire()
    else if (this.#slots.offer(stream, this)) {
      stream.rest(this.#slots.tick)
      this.#busy.delete(stream)
      this.#idle.push(stream)
    }
  }

  /** Forgets a stream that is of no use any more. */
  drop(stream: ProxyStream): void {
    if (this.#busy.delete(stream)) return
    const at = this.#idle.indexOf(stream)
    if (at !== -1) this.#idle.splice(at, 1)
  }

  #admitEarly(): void {
    this.#takeEarly((waiter, clientAddr) => this.#slots.request(this, clientAddr, waiter))
    this.#early = undefined
  }

  /** One after the other, in the order in which they came: what one does may withdraw another. */
  #takeEarly(take: (waiter: StreamWaiter, clientAddr: string) => void): void {
    for (const [waiter, clientAddr] of this.#early ?? []) {
      this.#early?.delete(waiter)
      take(waiter, clientAddr)
    }
  }
}
