import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import type { LinkShape, Place, Rig } from './rig.ts'

const HOST = '127.0.0.1'
/** On their way in one direction of a connection: as the window of a TCP that is tuned by itself. */
const IN_FLIGHT_BYTES = 4_194_304
/** In the queue of a slow link; above it the sender has to wait. */
const QUEUE_BYTES = 16_384

interface State {
  link: LinkShape
  isStalled: boolean
  readonly pairs: Set<CarriedPair>
}

/**
 * Both places are this machine, and a TCP proxy stands for each link: each direction of a connection
 * is late by half the round trip, in order, at the rate of the link, with a bounded number of bytes
 * on their way. The kernels at both ends talk to the proxy at once, so what depends on late
 * acknowledgements (slow start, Nagle's algorithm) does not show.
 */
export class LinkProxies implements Rig {
  readonly kind = 'TCP proxies'
  readonly #servers: Server[] = []
  readonly #states: Record<Place, State> = {
    device: { link: { rttMs: 0 }, isStalled: false, pairs: new Set() },
    visitor: { link: { rttMs: 0 }, isStalled: false, pairs: new Set() },
  }

  static async open(): Promise<LinkProxies> {
    return new LinkProxies()
  }

  hostFor(): string {
    return HOST
  }

  hostAt(): string {
    return HOST
  }

  commandAt(_place: Place, [file = '', ...words]: readonly string[]): [string, ...string[]] {
    return [file, ...words]
  }

  async across(place: Place, listener: ListenAddress): Promise<ListenAddress> {
    const state = this.#states[place]
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
      const far = connect({ ...listener, allowHalfOpen: true, noDelay: true })
      const pair = new CarriedPair(near, far, state)
      state.pairs.add(pair)
      void pair.closed.then(() => state.pairs.delete(pair))
    })
    server.listen(0, HOST)
    await once(server, 'listening')
    this.#servers.push(server)
    return { host: HOST, port: (server.address() as AddressInfo).port }
  }

  shape(place: Place, link: LinkShape): void {
    this.#states[place].link = link
  }

  reset(place: Place): void {
    for (const pair of this.#states[place].pairs) pair.reset()
  }

  stall(place: Place, isStalled: boolean): void {
    const state = this.#states[place]
    state.isStalled = isStalled
    for (const pair of state.pairs) pair.deliver()
  }

  async stop(): Promise<void> {
    this.reset('device')
    this.reset('visitor')
    await Promise.all(
      this.#servers.map((server) => new Promise((resolve) => server.close(resolve))),
    )
  }
}

/** A connection and its continuation at the other side of the link. */
class CarriedPair {
  readonly closed: Promise<unknown>
  readonly #sockets: readonly [Socket, Socket]
  readonly #ways: readonly Way[]

  constructor(near: Socket, far: Socket, state: State) {
    this.#sockets = [near, far]
    // The handshake has taken a round trip before the first byte leaves.
    const openAt = performance.now() + state.link.rttMs
    this.#ways = [new Way(near, far, state, openAt), new Way(far, near, state, openAt)]
    for (const socket of this.#sockets) socket.on('error', () => this.reset())
    this.closed = Promise.all(this.#sockets.map((it) => once(it, 'close').catch(() => {})))
  }

  deliver(): void {
    for (const way of this.#ways) way.deliver()
  }

  reset(): void {
    for (const socket of this.#sockets) if (!socket.destroyed) socket.resetAndDestroy()
  }
}

/** One direction of a connection. */
class Way {
  readonly #from: Socket
  readonly #to: Socket
  readonly #state: State
  readonly #queue: { readonly dueAt: number; readonly chunk: Buffer | undefined }[] = []
  #freeAt: number
  #bytes = 0
  #timer: NodeJS.Timeout | undefined

  constructor(from: Socket, to: Socket, state: State, openAt: number) {
    this.#from = from
    this.#to = to
    this.#state = state
    this.#freeAt = openAt
    from.on('data', (chunk: Buffer) => this.#take(chunk))
    from.on('end', () => this.#take(undefined))
    to.on('drain', () => this.deliver())
  }

  deliver(): void {
    clearTimeout(this.#timer)
    const now = performance.now()
    for (;;) {
      const next = this.#queue[0]
      if (!next || this.#state.isStalled || this.#to.destroyed) break
      if (next.dueAt > now) {
        this.#timer = setTimeout(() => this.deliver(), next.dueAt - now)
        break
      }
      if (this.#to.writableNeedDrain) break
      this.#queue.shift()
      if (next.chunk === undefined) this.#to.end()
      else {
        this.#bytes -= next.chunk.length
        this.#to.write(next.chunk)
      }
    }
    if (this.#bytes <= this.#mostBytes / 2) this.#from.resume()
  }

  get #mostBytes(): number {
    const { rttMs, bytesPerSecond } = this.#state.link
    return bytesPerSecond === undefined
      ? IN_FLIGHT_BYTES
      : QUEUE_BYTES + (bytesPerSecond * rttMs) / 2_000
  }

  #take(chunk: Buffer | undefined): void {
    const { rttMs, bytesPerSecond } = this.#state.link
    const length = chunk?.length ?? 0
    const takesMs = bytesPerSecond === undefined ? 0 : (length * 1_000) / bytesPerSecond
    this.#freeAt = Math.max(this.#freeAt, performance.now()) + takesMs
    this.#bytes += length
    this.#queue.push({ dueAt: this.#freeAt + rttMs / 2, chunk })
    if (this.#bytes >= this.#mostBytes) this.#from.pause()
    this.deliver()
  }
}
