import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import type { ListenAddress } from '../../src/base/listen-address.ts'

/** `up` is from the client to the service. */
export type Direction = 'up' | 'down' | 'both'

interface Pair {
  readonly client: Socket
  readonly service: Socket | undefined
}

/** A TCP proxy on loopback that misbehaves when it is told to. Closed with the running test, or by `stop()`. */
export class ChaosProxy {
  readonly #server: Server
  readonly #pairs = new Set<Pair>()
  #target: ListenAddress
  #holes = new Set<'up' | 'down'>()
  #unanswered: string | undefined
  #delayMs = 0
  /** Delay of a link that works. */
  #usualMs = 0
  #sliceBytes = 0
  #isMute = false
  #isFrozen = false
  #isRefusing = false
  accepted = 0

  private constructor(target: ListenAddress) {
    this.#target = target
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
      this.take(client)
    })
  }

  /** Has to be stopped: for what is no test. */
  static async open(target: ListenAddress): Promise<ChaosProxy> {
    const proxy = new ChaosProxy(target)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  static async start(target: ListenAddress): Promise<ChaosProxy> {
    const proxy = await ChaosProxy.open(target)
    onTestFinished(() => proxy.stop())
    return proxy
  }

  get address(): ListenAddress {
    return { host: '127.0.0.1', port: (this.#server.address() as AddressInfo).port }
  }

  /** Connections that are open now. */
  get open(): number {
    return this.#pairs.size
  }

  /** New connections go there. */
  retarget(target: ListenAddress): void {
    this.#target = target
  }

  /** Closes every connection in an orderly way. */
  cut(): void {
    for (const { client, service } of this.#pairs) {
      client.destroy()
      service?.destroy()
    }
  }

  /** Breaks every connection with a reset. */
  reset(): void {
    for (const { client, service } of this.#pairs) {
      client.resetAndDestroy()
      service?.resetAndDestroy()
    }
  }

  /** Swallows what travels that way, on present and future connections, until `heal()`. */
  blackHole(direction: Direction): void {
    if (direction !== 'down') this.#holes.add('up')
    if (direction !== 'up') this.#holes.add('down')
  }

  /** The first request that holds this text arrives, and nothing comes back from then on, until `heal()`. */
  loseAnswerTo(text: string): void {
    this.#unanswered = text
  }

  /** Carries nothing until `thaw()`, and loses nothing: as when the process at one end stands still. */
  freeze(): void {
    this.#isFrozen = true
    for (const { client, service } of this.#pairs) {
      client.pause()
      service?.pause()
    }
  }

  thaw(): void {
    this.#isFrozen = false
    for (const { client, service } of this.#pairs) {
      client.resume()
      service?.resume()
    }
  }

  /** Takes connections and never says a word, like a captive portal. */
  mute(): void {
    this.#isMute = true
  }

  /** Closes each new connection at once. */
  refuse(): void {
    this.#isRefusing = true
  }

  /** Each chunk arrives later, also after `heal()`. */
  delayAlways(ms: number): void {
    this.#usualMs = ms
    this.#delayMs = ms
  }

  /** Each chunk arrives later. */
  delay(ms: number): void {
    this.#delayMs = ms
  }

  /** Bytes arrive in pieces of this size. */
  slice(bytes: number): void {
    this.#sliceBytes = bytes
  }

  /** Behaves again; what was swallowed is lost, so broken streams are closed. */
  heal(): void {
    const wereBroken = this.#holes.size > 0 || this.#isMute
    this.#holes.clear()
    this.#unanswered = undefined
    this.#isMute = false
    this.#isRefusing = false
    this.#delayMs = this.#usualMs
    this.#sliceBytes = 0
    if (wereBroken) this.cut()
  }

  async stop(): Promise<void> {
    this.cut()
    if (!this.#server.listening) return
    this.#server.close()
    await once(this.#server, 'close')
  }

  /** Carries a connection that came in somewhere else. */
  take(client: Socket): void {
    this.accepted += 1
    if (this.#isRefusing) {
      client.destroy()
      return
    }
    const service = this.#isMute
      ? undefined
      : connect({ ...this.#target, noDelay: true, allowHalfOpen: true })
    const pair = { client, service }
    this.#pairs.add(pair)
    const forget = () => {
      if (client.destroyed && (service?.destroyed ?? true)) this.#pairs.delete(pair)
    }
    for (const socket of [client, service]) {
      socket?.on('error', () => {})
      socket?.on('close', forget)
    }
    if (!service) {
      client.resume()
      return
    }
    this.#carry(client, service, 'up')
    this.#carry(service, client, 'down')
    if (this.#isFrozen) this.freeze()
  }

  #carry(from: Socket, to: Socket, way: 'up' | 'down'): void {
    let isLast = Promise.resolve()
    const later = (work: () => void) => {
      isLast = isLast.then(async () => {
        if (this.#delayMs > 0) await new Promise((resolve) => setTimeout(resolve, this.#delayMs))
        work()
      })
    }
    from.on('data', (chunk: Buffer) => {
      if (this.#holes.has(way)) return
      if (way === 'up' && this.#unanswered && chunk.includes(this.#unanswered)) {
        this.#unanswered = undefined
        this.blackHole('down')
      }
      const size = this.#sliceBytes || chunk.length
      for (let at = 0; at < chunk.length; at += size) {
        later(() => to.writable && to.write(chunk.subarray(at, at + size)))
      }
    })
    from.on('end', () => later(() => this.#holes.has(way) || to.end()))
    from.on('close', () => later(() => this.#holes.has(way) || to.destroy()))
  }
}
