import { Duplex } from 'node:stream'
import type { MuxadoError } from '../../muxado/error-code.ts'
import type { Stream, StreamHandler } from '../../muxado/stream.ts'
import { HopReset } from './visitor-facts.ts'

type Done = (error?: Error | null) => void

/** The visitor of the bytes, as reported by the visitor's node. */
export interface PeerSocketEnds {
  readonly clientIp: string
  readonly clientPort: number
  readonly serverIp: string
  readonly serverPort: number
}

/**
 * A visitor of another node as a socket, with the behaviour of TCP, so that the same code serves it. Writes
 * wait for the window of the stream, unread data keeps its credit, each direction ends separately, and an
 * abort sends a reset with its reason.
 */
export class PeerSocket extends Duplex implements StreamHandler {
  readonly remoteAddress: string
  readonly remotePort: number
  readonly localAddress: string
  readonly localPort: number
  bytesRead = 0
  bytesWritten = 0
  readonly #stream: Stream
  /** Received bytes whose credit is returned when they are read. */
  #unreleased = 0
  /** The write that waits for room. */
  #blocked: Done | undefined
  #resetCode: HopReset = HopReset.broken

  constructor(stream: Stream, ends: PeerSocketEnds) {
    super({ allowHalfOpen: true })
    this.#stream = stream
    this.remoteAddress = ends.clientIp
    this.remotePort = ends.clientPort
    this.localAddress = ends.serverIp
    this.localPort = ends.serverPort
    stream.handler = this
    // The user of the socket already knows of the error; `close` follows.
    this.on('error', () => {})
  }

  setNoDelay(): this {
    return this
  }

  /** The link has heartbeats. */
  setKeepAlive(): this {
    return this
  }

  resetAndDestroy(): this {
    return this.destroy()
  }

  /** Aborts the stream with a reason: the other node's handling of the visitor depends on it. */
  refuse(code: HopReset): void {
    this.#resetCode = code
    this.destroy()
  }

  onData(chunk: Buffer): void {
    this.bytesRead += chunk.length
    this.#unreleased += chunk.length
    if (this.push(chunk)) this.#release()
  }

  onEnd(): void {
    this.push(null)
  }

  onDrain(): void {
    const done = this.#blocked
    this.#blocked = undefined
    done?.()
  }

  onClose(error: MuxadoError | undefined): void {
    if (error) this.destroy(broken())
  }

  override _read(): void {
    this.#release()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#take(chunk, done)
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    const last = chunks.length - 1
    chunks.forEach(({ chunk }, at) => {
      this.#take(chunk, at === last ? done : undefined)
    })
  }

  override _final(done: Done): void {
    this.#stream.end()
    done()
  }

  override _destroy(error: Error | null, done: Done): void {
    if (!this.writableFinished || this.#resetCode !== HopReset.broken) {
      this.#stream.reset(this.#resetCode)
    } else this.#stream.retire()
    const blocked = this.#blocked
    this.#blocked = undefined
    blocked?.(broken())
    done(error)
  }

  /** `done` is called when the stream has room again: it waits no more than once for all of them. */
  #take(chunk: Buffer, done: Done | undefined): void {
    this.bytesWritten += chunk.length
    const hasRoom = this.#stream.write(chunk)
    if (!done) return
    if (hasRoom) done()
    else if (this.#stream.isClosed) done(broken())
    else this.#blocked = done
  }

  #release(): void {
    const bytes = this.#unreleased
    this.#unreleased = 0
    if (bytes > 0) this.#stream.release(bytes)
  }
}

function broken(): Error {
  return Object.assign(new Error('the visitor disconnected'), { code: 'ECONNRESET' })
}
