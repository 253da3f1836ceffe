import type { ServerHttp2Session } from 'node:http2'
import type { TLSSocket } from 'node:tls'
import { isFlushed, startReading } from './socket-reading.ts'

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
