import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ListenAddress } from '../../src/base/listen-address.ts'

const POLL_MS = 1_000
const CONNECT_MS = 1_000

export interface Backend {
  readonly address: ListenAddress
  /** What `/readyz` of the node says. */
  readonly isReady: () => Promise<boolean>
}

/**
 * A load balancer for TCP: it asks each backend once a second whether it is ready, gives connections
 * to the ready ones in turn, tries the next where one does not take it, and closes what it has no
 * backend for. The clients keep their addresses.
 */
export class Balancer {
  readonly #backends: readonly Backend[]
  readonly #server: Server
  readonly #stopping = new AbortController()
  readonly #sockets = new Set<Socket>()
  #ready: Backend[] = []
  #turn = 0

  private constructor(backends: readonly Backend[]) {
    this.#backends = backends
    const options = { allowHalfOpen: true, noDelay: true, pauseOnConnect: true }
    this.#server = createServer(options, (client) => this.#accept(client))
  }

  static async start(backends: readonly Backend[]): Promise<Balancer> {
    const balancer = new Balancer(backends)
    balancer.#server.listen(0, '127.0.0.1')
    await once(balancer.#server, 'listening')
    for (const backend of backends) void balancer.#watch(backend)
    return balancer
  }

  get address(): ListenAddress {
    return { host: '127.0.0.1', port: (this.#server.address() as AddressInfo).port }
  }

  get ready(): number {
    return this.#ready.length
  }

  stop(): void {
    this.#stopping.abort()
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  async #watch(backend: Backend): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted) {
      const isReady = await backend.isReady()
      this.#ready = this.#backends.filter((it) =>
        it === backend ? isReady : this.#ready.includes(it),
      )
      await sleep(POLL_MS, undefined, { signal }).catch(() => {})
    }
  }

  #accept(client: Socket): void {
    this.#keep(client)
    this.#turn += 1
    const ready = this.#ready
    this.#pass(
      client,
      ready.map((_, at) => ready[(this.#turn + at) % ready.length] as Backend),
    )
  }

  #pass(client: Socket, [backend, ...others]: readonly Backend[]): void {
    if (!backend || client.destroyed) return void client.destroy()
    const localAddress = client.remoteAddress ?? '127.0.0.1'
    const options = { ...backend.address, localAddress, noDelay: true, allowHalfOpen: true }
    const service = connect(options)
    this.#keep(service)
    const refuse = () => {
      service.destroy()
      this.#pass(client, others)
    }
    service.setTimeout(CONNECT_MS, refuse)
    service.once('error', refuse)
    service.once('connect', () => {
      service.off('error', refuse)
      service.setTimeout(0)
      client.pipe(service)
      service.pipe(client)
      client.once('close', () => service.destroy())
      service.once('close', () => client.destroy())
    })
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => this.#sockets.delete(socket))
  }
}
