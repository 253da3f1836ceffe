import type { Http2Session, Http2Stream, ServerHttp2Session } from 'node:http2'
import type { Readable } from 'node:stream'
import type { TLSSocket } from 'node:tls'

/** Calls `onPiece` for each piece of content when it arrives, even if the stream is not being read. */
export function onEachPiece(stream: Readable, onPiece: (bytes: number) => void): void {
  const push = stream.push
  stream.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk) onPiece(chunk.length)
    return push.call(stream, chunk, encoding)
  }
}

/**
 * Calls `done` when a stream has closed and nghttp2 has released it. Node emits `close` from within nghttp2,
 * which still has the stream. Resetting another stream of the session or ending the session at that moment
 * makes nghttp2 write empty DATA frames of the closed stream until memory is exhausted.
 */
export function whenClosed(stream: Http2Stream, done: () => void): void {
  stream.once('close', () => setImmediate(done))
}

/**
 * Initial window of each stream, before the path is known, in bytes. With more, the data of a slow reader
 * would wait here.
 */
export const LEAST_WINDOW_BYTES = 262_144
/** Sum of the windows of a connection's streams, in bytes. Every stream has at least the minimum. */
const SHARED_BYTES = 8_388_608

/**
 * Receive window of the streams of one connection (RFC 9113 6.9.2). It doubles while content is passed on at
 * once, because then the round trip is the limit. It never grows while content waits. The window of the
 * connection is fixed, because Node acknowledges its data automatically.
 */
export class ReceiveWindow {
  readonly #session: Http2Session
  readonly #mostBytes: number
  #bytes = LEAST_WINDOW_BYTES
  /** Bytes passed on at once since the last change. */
  #taken = 0

  constructor(session: Http2Session, mostBytes: number) {
    this.#session = session
    this.#mostBytes = mostBytes
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Window of the connection, large enough that it never limits a stream. */
  get connectionBytes(): number {
    return 2 * this.#mostBytes
  }

  /** Content was passed on. `isSlow`: it had to wait. `bodies`: number of streams that may send content. */
  onContent(bytes: number, isSlow: boolean, bodies: number): void {
    this.#taken = isSlow ? 0 : this.#taken + bytes
    if (this.#taken < this.#bytes / 2) return
    this.#taken = 0
    // Before the last change is acknowledged, it cannot have had an effect.
    if (this.#session.pendingSettingsAck) return
    this.#change(Math.min(2 * this.#bytes, this.#mostFor(bodies)))
  }

  /** Reduces the window when another stream may send content, because all share the connection's budget. */
  fit(bodies: number): void {
    this.#change(Math.min(this.#bytes, this.#mostFor(bodies)))
  }

  /** Returns to the minimum, because the memory is needed for others. */
  shrink(): void {
    this.#taken = 0
    this.#change(LEAST_WINDOW_BYTES)
  }

  #mostFor(bodies: number): number {
    let most = this.#mostBytes
    // Only halves: each change needs an acknowledgement, and a client may owe only a few.
    while (most > LEAST_WINDOW_BYTES && most * bodies > SHARED_BYTES) most /= 2
    return most
  }

  #change(bytes: number): void {
    if (bytes === this.#bytes || this.#session.destroyed || this.#session.closed) return
    this.#bytes = bytes
    this.#session.settings({ initialWindowSize: bytes })
  }
}

/** Part of Node's handle that HTTP/2 reads and writes through, bypassing the socket's methods. */
interface StreamHandle {
  readonly writeQueueSize?: number
  readonly readStart?: () => number
  readonly readStop?: () => number
}

const handleOf = (socket: TLSSocket) =>
  (socket as unknown as { readonly _handle: StreamHandle | null })._handle

/**
 * Stops reading from the network; data that was already read still arrives. Returns false if Node offers no
 * way. Node resumes after each write, so the call must be repeated.
 */
export function stopReading(socket: TLSSocket): boolean {
  const handle = handleOf(socket)
  if (typeof handle?.readStop !== 'function') return false
  handle.readStop()
  return true
}

/** Resumes reading, also after Node has stopped it. */
export function startReading(socket: TLSSocket): void {
  handleOf(socket)?.readStart?.()
}

/** Whether the system has taken all written bytes. */
function isFlushed(socket: TLSSocket): boolean {
  return handleOf(socket)?.writeQueueSize === 0
}

/**
 * Finds sessions that ended without a report from Node. After some connection errors Node 20 silently stops
 * reading and writing: frames stay in its queue, and the end of the connection is never read. So a client
 * that becomes silent after it sent data gets a PING, which shows whether frames still leave.
 */
export class SessionWatch {
  readonly #session: ServerHttp2Session
  readonly #socket: TLSSocket
  #readBytes = 0
  #writtenBytes = 0
  #isAsked = false
  /** The session was alive when this many bytes had been read. */
  #provenBytes = 0
  /** Frames were waiting at the last check. */
  #wasQueued = false

  constructor(session: ServerHttp2Session, socket: TLSSocket) {
    this.#session = session
    this.#socket = socket
  }

  /** Called regularly; `isUnsent`: responses wait for the client. Returns true if the session is dead. */
  check(isUnsent: boolean): boolean {
    const { bytesRead, bytesWritten } = this.#socket
    const isSilent = bytesWritten === this.#writtenBytes
    const isHeard = bytesRead !== this.#readBytes
    if (isHeard) this.#isAsked = false
    else startReading(this.#socket)
    this.#readBytes = bytesRead
    this.#writtenBytes = bytesWritten
    const wasQueued = this.#wasQueued
    this.#wasQueued = false
    if (!isSilent || this.#session.destroyed || !isFlushed(this.#socket)) return false
    // Frames of the current turn leave at its end.
    this.#wasQueued = (this.#session.state.outboundQueueSize ?? 0) > 0
    if (this.#wasQueued) return wasQueued
    // The queue does not include content. A PING is queued, and leaves at once if the session is alive.
    const isDoubtful = isUnsent || (!isHeard && bytesRead !== this.#provenBytes)
    if (isDoubtful && !this.#isAsked) this.#isAsked = this.#session.ping(this.#onAnswer)
    return false
  }

  readonly #onAnswer = () => {
    this.#provenBytes = this.#socket.bytesRead
  }
}
