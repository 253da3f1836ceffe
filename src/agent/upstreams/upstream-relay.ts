import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type LookupFunction, type Socket } from 'node:net'
import type { Logger } from '../../base/logger.ts'
import { type ForwardTarget, formatForwardTarget } from './forward-target.ts'
import type { Carrier } from './tunnel-protocol.ts'

/** More than the streams of a session. */
const MAX_CONNECTIONS = 512
/** A machine that is switched off would hold visitors up for minutes. */
const DIAL_MS = 10_000
const LOOPBACK = '127.0.0.1'

export interface UpstreamRelayOptions {
  readonly target: ForwardTarget
  /** Gives checked addresses only. */
  readonly lookup: LookupFunction
  /** Who sends no requests is refused without a word. */
  readonly carrier: Carrier
  readonly log: Logger
}

/**
 * What the SDK dials in place of a name: the SDK would look the name up by itself, and get another
 * address than the one that was checked. TCP, so that a reset on one side is one on the other.
 */
export class UpstreamRelay {
  readonly #options: UpstreamRelayOptions
  readonly #server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) =>
    this.#relay(socket),
  )
  readonly #listening: Promise<unknown>

  constructor(options: UpstreamRelayOptions) {
    this.#options = options
    this.#server.maxConnections = MAX_CONNECTIONS
    this.#server.listen(0, LOOPBACK)
    this.#listening = once(this.#server, 'listening')
    // Whoever asks for the port is told; until then nobody misses it.
    this.#listening.catch(() => {})
  }

  /** Where the SDK finds it. Throws when it could not listen. */
  async dialUrl(): Promise<string> {
    await this.#listening
    return `${this.#options.carrier}://${LOOPBACK}:${(this.#server.address() as AddressInfo).port}`
  }

  /** Takes no more connections; those that there are go on. */
  close(): void {
    this.#server.close()
  }

  #relay(client: Socket): void {
    const { target, lookup } = this.#options
    const upstream = connect({ ...target, lookup, allowHalfOpen: true, noDelay: true })
    const giveUp = (error: Error) => {
      upstream.destroy()
      this.#refuse(client, error)
    }
    // What is under way does not keep a process that has stopped.
    for (const socket of [client, upstream]) socket.unref()
    const timer = setTimeout(() => giveUp(new Error('it does not answer')), DIAL_MS)
    client.on('error', () => upstream.resetAndDestroy())
    client.on('close', () => upstream.destroy())
    upstream.once('error', giveUp)
    upstream.once('connect', () => {
      clearTimeout(timer)
      upstream.off('error', giveUp)
      upstream.on('error', () => this.#breakOff(client, upstream))
      client.pipe(upstream).pipe(client)
    })
    upstream.once('close', () => clearTimeout(timer))
  }

  /** Who has answered as a whole may stop to listen; all else is a part that must not look whole. */
  #breakOff(client: Socket, upstream: Socket): void {
    if (upstream.readableEnded) client.resume()
    else client.resetAndDestroy()
  }

  /** As the SDK says it, so that visitors learn the same. */
  #refuse(client: Socket, error: Error): void {
    const { target, carrier, log } = this.#options
    const to = formatForwardTarget(target)
    log.debug({ to, reason: error.message }, 'upstream not reached')
    const body = `failed to dial backend: ${to} cannot be reached`
    client.resume()
    if (carrier !== 'http') {
      client.end()
      return
    }
    client.end(
      'HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n' +
        `content-length: ${body.length}\r\ndate: ${new Date().toUTCString()}\r\n\r\n${body}`,
    )
  }
}
