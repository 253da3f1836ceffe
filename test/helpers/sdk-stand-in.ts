import { connect, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { acceptTyped, Session } from '../../src/muxado/session.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import { asDuplex } from './stream-duplex.ts'

const LENGTH_BYTES = 8

/**
 * Plays the SDK's part on proxy streams: one connection to the local service per stream, bytes
 * copied both ways, and the SDK's own answer when the service cannot be reached.
 */
export class SdkStandIn {
  readonly session: Session
  /** The proxy headers that came, in order. */
  readonly headers: Record<string, unknown>[] = []
  readonly #port: number
  readonly #sockets = new Set<Socket>()

  /** With `serve`, that plays the device from the first byte on, header and all. */
  constructor(transport: Duplex, port: number, serve?: (stream: Stream) => void) {
    this.#port = port
    this.session = new Session(transport, {
      role: 'client',
      accept: acceptTyped((_type, stream) => (serve ?? this.#accept.bind(this))(stream)),
    })
  }

  /** Connections to the service that are open. */
  get connections(): number {
    return this.#sockets.size
  }

  #accept(stream: Stream): void {
    const duplex = asDuplex(stream)
    duplex.on('error', () => {})
    const onReadable = () => {
      const length = duplex.read(LENGTH_BYTES) as Buffer | null
      if (!length) return
      duplex.off('readable', onReadable)
      const bytes = Number(length.readBigInt64LE())
      this.headers.push(JSON.parse(String(duplex.read(bytes))))
      this.#connect(duplex)
    }
    duplex.on('readable', onReadable)
  }

  #connect(duplex: Duplex): void {
    const socket = connect({ port: this.#port, host: '127.0.0.1', allowHalfOpen: true })
    this.#sockets.add(socket)
    socket.setNoDelay(true)
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED') refuse(duplex)
      else duplex.destroy()
    })
    socket.on('close', () => {
      this.#sockets.delete(socket)
    })
    socket.on('connect', () => {
      duplex.pipe(socket)
      socket.pipe(duplex)
    })
    duplex.on('close', () => socket.destroy())
  }
}

/** What the SDK answers by itself, byte for byte. */
function refuse(duplex: Duplex): void {
  const body = 'failed to dial backend: Connection refused (os error 111)'
  duplex.resume()
  duplex.end(
    'HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n' +
      `content-length: ${body.length}\r\ndate: ${new Date().toUTCString()}\r\n\r\n${body}`,
  )
}
