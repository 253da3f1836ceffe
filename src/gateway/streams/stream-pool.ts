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

/** A request for a stream before the agent was ready. */
interface EarlyWaiter {
  readonly client: StreamClient
  readonly isFresh: boolean
}

export interface StreamPoolOptions {
  /** One per agent session: `new StreamSlots({ session })`. */
  readonly slots: StreamSlots
  /** First bytes of a proxy stream of this endpoint, after its type. */
  readonly proxyHeader: (clientAddr: string) => Buffer
  /**
   * The service gets a PROXY header with the client of the connection. Each stream then serves one exchange.
   */
  readonly proxyProtocol?: ProxyProtocol | undefined
  /**
   * Resolves when the agent knows the endpoint: the SDK drops streams of unknown endpoints, so earlier
   * requests wait. Undefined: the agent knows it already.
   */
  readonly ready?: Promise<void>
  /** See `SlotUser`. */
  readonly service?: ServiceConnections | undefined
}

/**
 * The proxy streams of one endpoint: its share of the slots of an agent session. Exchanges request streams
 * here. The session's `StreamSlots` serve all endpoints, and call back through `SlotUser`.
 *
 * INVARIANTS
 * - Each request is answered once, with a stream or a reason, unless it is cancelled. A cancelled or answered
 *   waiter is not called again.
 * - A stream is with one exchange, idle, or retired. The exchange calls `release()` or `retire()` on it. A
 *   retired stream counts until its slot is free.
 * - With a PROXY header, a stream serves one exchange: the next may be of another visitor.
 * - Idle streams are taken newest first, by any exchange. Streams set aside are for one visitor's connection,
 *   in its `LoginStreams`.
 * - After `close()`, no request gets a stream, and returned streams are retired. `cut()` also closes the
 *   streams of running exchanges, and each exchange is informed.
 */
export class StreamPool implements SlotUser, ProxyStreamOwner {
  readonly slots: StreamSlots
  readonly holding = new Holding()
  readonly service: ServiceConnections | undefined
  /** Buffered bytes of this endpoint. */
  readonly buffers: BufferAccount
  readonly #proxyHeader: (clientAddr: string) => Buffer
  readonly #proxyProtocol: ProxyProtocol | undefined
  /** Oldest first. */
  readonly #idle: ProxyStream[] = []
  /** Unused, and each for one visitor's connection alone. */
  readonly #aside = new Set<ProxyStream>()
  /** With an exchange, until released or retired. */
  readonly #busy = new Set<ProxyStream>()
  /** Requests from before the agent was ready; undefined afterwards. */
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

  /** Retires idle streams and refuses waiting requests. Running exchanges continue. */
  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#takeEarly((waiter) => waiter.onNoStream('session-over'))
    this.slots.removeUser(this)
    for (const stream of [...this.#idle, ...this.#aside]) stream.retire()
  }

  /** Like `close()`, and also ends running exchanges, which are no longer allowed. */
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

  /** Tick at which the oldest idle stream became unused; infinite if there is none. */
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

  /** Reports the outcome of a request whose connection the service closed; see `ServiceConnections`. */
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
        // The error has no handler above, and others wait for their streams. The failed exchange has
        // deadlines.
      }
    })
    this.#early = undefined
  }

  /** In order of arrival: handling a request may withdraw another. */
  #takeEarly(take: (waiter: StreamWaiter, asked: EarlyWaiter) => void): void {
    for (const [waiter, asked] of this.#early ?? []) {
      this.#early?.delete(waiter)
      take(waiter, asked)
    }
  }
}
