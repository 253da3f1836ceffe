import { MuxadoError } from '../../muxado/error-code.ts'
import type { Stream, StreamHandler } from '../../muxado/stream.ts'
import { openTyped } from '../../muxado/typed-session.ts'
import type { StreamSlots, StreamWaiter } from './stream-slots.ts'

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

/** A stream that leads to one connection of the device's service; its own handler while unused. */
export class ProxyStream implements StreamHandler {
  readonly stream: Stream
  readonly #pool: StreamPool
  /** False for the first exchange: then the service has still to be reached. */
  isReused = false
  /** The tick of its slots at which it became idle. */
  idleSince = 0

  constructor(pool: StreamPool, open: (handler: StreamHandler) => Stream) {
    this.#pool = pool
    this.stream = open(this)
  }

  /** Hands the stream back: the exchange on it is over, and both sides keep the connection. */
  release(): void {
    this.isReused = true
    this.stream.handler = this
    this.#pool.takeBack(this)
  }

  /** Gives the stream up, also one that has closed; the service sees the end of its connection. */
  retire(): void {
    this.#pool.drop(this)
    this.stream.handler = RETIRED
    this.stream.retire()
  }

  /** Takes the stream away from the exchange on it. */
  cut(): void {
    const { handler } = this.stream
    this.retire()
    handler.onClose(new MuxadoError('stream-cancelled', 'the endpoint was stopped'))
  }

  /** Bytes that nobody asked for: whatever they are, the next answer must not begin with them. */
  onData(): void {
    this.retire()
  }

  /** The service closed its idle connection. */
  onEnd(): void {
    this.onData()
  }

  onDrain(): void {}

  onClose(): void {
    this.#pool.drop(this)
  }
}

/** What a stream does when nobody is interested any more. */
const RETIRED: StreamHandler = { onData() {}, onEnd() {}, onDrain() {}, onClose() {} }

/** The proxy streams of one endpoint; of the idle ones the newest is taken first. */
export class StreamPool {
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
