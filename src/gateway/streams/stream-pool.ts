import { encodeProxyProtocol, type ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import { openTyped } from '../../muxado/session.ts'
import type { BufferAccount } from './buffer-account.ts'
import {
  ProxyStream,
  type ProxyStreamOwner,
  type StreamClient,
  type StreamWaiter,
} from './proxy-stream.ts'
import type { RefusalKind, ServiceConnections } from './service-connections.ts'
import { Holding } from './shares.ts'
import type { StreamSlots } from './stream-slots.ts'
import type { SlotUser } from './waiting-line.ts'

/** The type of the streams on which the gateway sends connections to the SDK. */
const PROXY_STREAM_TYPE = 3

/** Ticks for which requests that go out once only get no kept stream, after one was stale. */
const WARY_TICKS = 120

/** What somebody asked for before the agent was ready. */
interface EarlyWaiter {
  readonly client: StreamClient
  readonly isFresh: boolean
}

export interface StreamPoolOptions {
  /** One per agent session: `new StreamSlots({ session })`. */
  readonly slots: StreamSlots
  /** What a proxy stream of this endpoint starts with, after its type. */
  readonly proxyHeader: (clientAddr: string) => Buffer
  /** The service is told so whose connection it is, and each stream is for one exchange then. */
  readonly proxyProtocol?: ProxyProtocol | undefined
  /**
   * When the agent knows the endpoint: the SDK drops the streams of one that it has not heard of, so
   * who asks sooner waits. Without it, the agent knows the endpoint already.
   */
  readonly ready?: Promise<void>
  /** See `SlotUser`. */
  readonly service?: ServiceConnections | undefined
}

/**
 * The proxy streams of one endpoint: its share of the slots of an agent session. Exchanges ask here;
 * the session's `StreamSlots` behind it serve all its endpoints and ask back through `SlotUser`.
 *
 * INVARIANTS
 * - Each asking is answered once, with a stream or a reason, unless it is cancelled; a cancelled or
 *   answered waiter is not called again.
 * - A stream is with one exchange, or idle, or given up. The exchange that got it calls `release()`
 *   or `retire()` on it; one that was given up counts until its slot is free.
 * - With a PROXY header a stream is of one exchange: the next may be of another visitor.
 * - Idle streams are taken newest first, by whoever may have a stream. Those that are set aside are
 *   for one visitor's connection alone, which has them in its `LoginStreams`.
 * - After `close()` nobody gets a stream, and what comes back is retired; `cut()` takes the streams
 *   of exchanges under way as well, each of which hears that its stream was closed.
 */
export class StreamPool implements SlotUser, ProxyStreamOwner {
  readonly slots: StreamSlots
  readonly holding = new Holding()
  readonly service: ServiceConnections | undefined
  /** For bytes of this endpoint that wait for somebody. */
  readonly buffers: BufferAccount
  readonly #proxyHeader: (clientAddr: string) => Buffer
  readonly #proxyProtocol: ProxyProtocol | undefined
  /** Oldest first. */
  readonly #idle: ProxyStream[] = []
  /** Unused, and each for one visitor's connection alone. */
  readonly #aside = new Set<ProxyStream>()
  /** With an exchange, until released or retired. */
  readonly #busy = new Set<ProxyStream>()
  /** Who asked before the agent was ready; undefined once it is. */
  #early: Map<StreamWaiter, EarlyWaiter> | undefined
  #isClosed = false
  /** Tick until which the service is thought to close kept connections unasked. */
  #waryUntil = 0

  constructor({ slots, proxyHeader, proxyProtocol, ready, service }: StreamPoolOptions) {
    this.slots = slots
    this.service = service
    if (service) service.users += 1
    this.#proxyHeader = proxyHeader
    this.#proxyProtocol = proxyProtocol
    this.buffers = slots.buffers.forEndpoint()
    if (!ready) return
    this.#early = new Map()
    const admit = () => this.#admitEarly()
    void ready.then(admit, admit)
  }

  /** How many more streams its session takes. */
  get freeSlots(): number {
    return this.slots.session.freeSlots
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  get busy(): Iterable<ProxyStream> {
    return this.#busy
  }

  /** Asks for a stream, an idle one if there is one; it counts for the client until handed back. */
  acquire(client: StreamClient, waiter: StreamWaiter): void {
    this.#request(client, waiter, false)
  }

  /** The same for a request that may not go out twice: its stream must not be stale. */
  acquireOnce(client: StreamClient, waiter: StreamWaiter): void {
    this.#request(client, waiter, this.slots.tick < this.#waryUntil)
  }

  /** Asks for a stream that no exchange has used before. */
  acquireFresh(client: StreamClient, waiter: StreamWaiter): void {
    this.#request(client, waiter, true)
  }

  /** Gives an exchange a stream of this pool that was set aside for its visitor. */
  resume(stream: ProxyStream, client: StreamClient, waiter: StreamWaiter): void {
    this.#aside.delete(stream)
    this.#busy.add(stream)
    this.slots.resume(this, stream, client, waiter)
  }

  /** Withdraws an `acquire` that was not answered yet. */
  cancel(waiter: StreamWaiter): void {
    this.#early?.delete(waiter)
    this.slots.cancel(waiter)
  }

  /** Retires idle streams and refuses who waits; exchanges under way go on. */
  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#takeEarly((waiter) => waiter.onNoStream('session-over'))
    this.slots.leave(this)
    for (const stream of [...this.#idle, ...this.#aside]) stream.retire()
  }

  /** Like `close()`, and ends the exchanges under way too: nobody allows them any more. */
  cut(): void {
    this.close()
    for (const stream of this.#busy) stream.cut()
  }

  /** See `SlotUser`. */
  open(client: StreamClient): ProxyStream | undefined {
    const stream = this.makeStream(this.#headerFor(client))
    if (stream.stream.isClosed) return undefined
    this.service?.opened()
    this.#busy.add(stream)
    return stream
  }

  protected makeStream(header: Buffer): ProxyStream {
    const { session } = this.slots
    return new ProxyStream(this, (handler) =>
      openTyped(session, PROXY_STREAM_TYPE, handler, header),
    )
  }

  takeIdle(): ProxyStream | undefined {
    const stream = this.#idle.pop()
    if (stream) this.#busy.add(stream)
    return stream
  }

  /** The tick since which the oldest idle stream is unused; infinite when there is none. */
  get oldestIdle(): number {
    return this.#idle[0]?.idleSince ?? Number.POSITIVE_INFINITY
  }

  takeBack(stream: ProxyStream): void {
    if (this.#isClosed || this.slots.isClosed || this.#proxyProtocol !== undefined) {
      stream.retire()
      return
    }
    const { client } = stream
    stream.rest(this.slots.tick)
    this.#idle.push(stream)
    this.#onUnused(stream, client)
  }

  /** The visitor is the same, so a PROXY header stays true. */
  setAside(stream: ProxyStream): void {
    if (this.#isClosed || this.slots.isClosed) {
      stream.retire()
      return
    }
    const { client } = stream
    stream.restAside(this.slots.tick)
    this.#aside.add(stream)
    this.#onUnused(stream, client)
  }

  #onUnused(stream: ProxyStream, client: ProxyStream['client']): void {
    this.#busy.delete(stream)
    this.slots.onIdle(this, stream, client)
    this.slots.onBusyLess()
  }

  onStale(): void {
    this.#waryUntil = this.slots.tick + WARY_TICKS
  }

  onHeard(): void {
    this.service?.worked()
  }

  /**
   * The service has refused the connection of a stream. True: it is busy, and a request that asks again
   * gets a connection when another ends.
   */
  noteRefused(stream: ProxyStream, kind: RefusalKind): boolean {
    const { service } = this
    if (!service) return false
    const isBusy = service.refused(kind, stream.isGivenUp)
    if (!isBusy && kind === 'unreached') this.slots.refuseWaiting(service)
    return isBusy
  }

  /** What came of a request whose connection the service has closed; see `ServiceConnections`. */
  noteClosed(isBusy: boolean): void {
    if (isBusy) this.service?.confirmClosed()
    else this.service?.denyClosed()
  }

  onSwitch(): void {
    this.slots.onBusyLess()
  }

  drop(stream: ProxyStream): void {
    this.service?.givenUp()
    if (this.#busy.delete(stream)) {
      this.slots.onBusyLess()
      return
    }
    if (!this.#aside.delete(stream)) this.#idle.splice(this.#idle.indexOf(stream), 1)
    this.slots.onIdleRetired(this, stream)
  }

  onSlotFree(stream: ProxyStream): void {
    this.service?.closed()
    this.slots.onSlotFree(this, stream)
  }

  #headerFor({ address, facts }: StreamClient): Buffer {
    const header = this.#proxyHeader(address)
    const version = this.#proxyProtocol
    return version ? Buffer.concat([header, encodeProxyProtocol(version, facts)]) : header
  }

  #request(client: StreamClient, waiter: StreamWaiter, isFresh: boolean): void {
    if (this.#isClosed) waiter.onNoStream('session-over')
    else if (!this.#early) this.slots.request(this, client, waiter, isFresh)
    else if (this.#early.size >= this.slots.queueLength) waiter.onNoStream('saturated')
    else this.#early.set(waiter, { client, isFresh })
  }

  #admitEarly(): void {
    this.#takeEarly((waiter, { client, isFresh }) => {
      try {
        this.slots.request(this, client, waiter, isFresh)
      } catch {
        // Nobody above could catch it, and the others wait for theirs. Whoever failed has deadlines.
      }
    })
    this.#early = undefined
  }

  /** One after the other, in the order in which they came: what one does may withdraw another. */
  #takeEarly(take: (waiter: StreamWaiter, asked: EarlyWaiter) => void): void {
    for (const [waiter, asked] of this.#early ?? []) {
      this.#early?.delete(waiter)
      take(waiter, asked)
    }
  }
}
