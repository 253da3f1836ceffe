import type { Http2Session, Http2Stream, ServerHttp2Session } from 'node:http2'
import type { Readable } from 'node:stream'
import type { TLSSocket } from 'node:tls'

/** Calls back for each piece of content when it arrives, also while nobody reads the stream. */
export function onEachPiece(stream: Readable, onPiece: (bytes: number) => void): void {
  const push = stream.push
  stream.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk) onPiece(chunk.length)
    return push.call(stream, chunk, encoding)
  }
}

/**
 * Calls back when a stream has closed and the library is done with it. Node says `close` from within
 * nghttp2, which has the stream still: whoever resets another stream of the session there, or ends
 * the session, makes it write empty DATA frames of the closed one until there is no memory left.
 */
export function whenClosed(stream: Http2Stream, done: () => void): void {
  stream.once('close', () => setImmediate(done))
}

/** Of each stream, before anything is known of the path. More: a slow reader makes it wait here. */
export const LEAST_WINDOW_BYTES = 262_144
/** Streams of one connection together; as many as there are have the least in any case. */
const SHARED_BYTES = 8_388_608

/**
 * The receive window of the streams of one connection (RFC 9113 6.9.2). It doubles while the content
 * that comes goes on at once, because then the round trip is the limit, and never while it waits.
 * Node acknowledges what comes at the level of the connection by itself: that window is fixed.
 */
export class ReceiveWindow {
  readonly #session: Http2Session
  readonly #mostBytes: number
  #bytes = LEAST_WINDOW_BYTES
  /** Gone on at once since the last change. */
  #taken = 0

  constructor(session: Http2Session, mostBytes: number) {
    this.#session = session
    this.#mostBytes = mostBytes
  }

  get bytes(): number {
    return this.#bytes
  }

  /** What the window of the connection has to be, so that it never holds a stream up. */
  get connectionBytes(): number {
    return 2 * this.#mostBytes
  }

  /** A piece of content goes on. `isSlow`: it had to wait. `bodies` are the streams that may send some. */
  onContent(bytes: number, isSlow: boolean, bodies: number): void {
    this.#taken = isSlow ? 0 : this.#taken + bytes
    if (this.#taken < this.#bytes / 2) return
    this.#taken = 0
    // Until the last change is acknowledged, nothing can have come because of it.
    if (this.#session.pendingSettingsAck) return
    this.#change(Math.min(2 * this.#bytes, this.#mostFor(bodies)))
  }

  /** Another stream may send content: all of them share what a connection may have. */
  fit(bodies: number): void {
    this.#change(Math.min(this.#bytes, this.#mostFor(bodies)))
  }

  /** Begins again: the memory is needed for others. */
  shrink(): void {
    this.#taken = 0
    this.#change(LEAST_WINDOW_BYTES)
  }

  #mostFor(bodies: number): number {
    let most = this.#mostBytes
    // Halves alone: each change is to be acknowledged, and a client owes few of those at a time.
    while (most > LEAST_WINDOW_BYTES && most * bodies > SHARED_BYTES) most /= 2
    return most
  }

  #change(bytes: number): void {
    if (bytes === this.#bytes || this.#session.destroyed || this.#session.closed) return
    this.#bytes = bytes
    this.#session.settings({ initialWindowSize: bytes })
  }
}

/** The part of Node's handle that HTTP/2 reads and writes through, past the socket's own methods. */
interface StreamHandle {
  readonly writeQueueSize?: number
  readonly readStart?: () => number
  readonly readStop?: () => number
}

const handleOf = (socket: TLSSocket) =>
  (socket as unknown as { readonly _handle: StreamHandle | null })._handle

/**
 * Reads nothing more from the network; bytes that are read already still arrive. False: Node offers
 * no way to do so. Node itself reads on after each write, so this has to be repeated.
 */
export function stopReading(socket: TLSSocket): boolean {
  const handle = handleOf(socket)
  if (typeof handle?.readStop !== 'function') return false
  handle.readStop()
  return true
}

/** Reads again, also where Node has stopped. */
export function startReading(socket: TLSSocket): void {
  handleOf(socket)?.readStart?.()
}

/** True when the system has taken all bytes that were written. */
function isFlushed(socket: TLSSocket): boolean {
  return handleOf(socket)?.writeQueueSize === 0
}

/**
 * Finds sessions that have ended without a word from Node. After some connection errors Node 20
 * stops reading and writing, and reports nothing: frames stay in its queue, and the end of the
 * connection is never read. So a client that was heard, and is silent then, gets a PING: it shows
 * whether frames leave still.
 */
export class SessionWatch {
  readonly #session: ServerHttp2Session
  readonly #socket: TLSSocket
  #readBytes = 0
  #writtenBytes = 0
  #isAsked = false
  /** The session was alive when so many bytes were read. */
  #provenBytes = 0
  /** Frames were waiting at the last look. */
  #wasQueued = false

  constructor(session: ServerHttp2Session, socket: TLSSocket) {
    this.#session = session
    this.#socket = socket
  }

  /** Called now and then; `isUnsent`: responses wait for the client. True when the session is dead. */
  look(isUnsent: boolean): boolean {
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
    // Frames of this very turn leave when it ends.
    this.#wasQueued = (this.#session.state.outboundQueueSize ?? 0) > 0
    if (this.#wasQueued) return wasQueued
    // Content is not part of the queue. A PING is, and leaves at once where the session is alive.
    const isDoubtful = isUnsent || (!isHeard && bytesRead !== this.#provenBytes)
    if (isDoubtful && !this.#isAsked) this.#isAsked = this.#session.ping(this.#onAnswer)
    return false
  }

  readonly #onAnswer = () => {
    this.#provenBytes = this.#socket.bytesRead
  }
}
