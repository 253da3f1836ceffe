import type { Writable } from 'node:stream'
import type { IngressLimits } from '../common/ingress-limits.ts'
import { ProgressWatch } from '../common/progress-watch.ts'

/**
 * The last part of a connection, after its end was written (RFC 9112 9.6): first the client takes
 * what is left of the response, then it has a moment to close its side. Both are bounded: a client
 * that takes nothing is aborted, so that it cannot take what it has for all there is.
 */
export class LingeringClose {
  readonly #socket: Writable
  readonly #limits: IngressLimits
  readonly #watch: ProgressWatch
  /** Monotonic; set when the socket has flushed everything. */
  #deadline: number | undefined

  constructor(socket: Writable, limits: IngressLimits) {
    this.#socket = socket
    this.#limits = limits
    this.#watch = new ProgressWatch(limits)
  }

  /** What is to be done about the connection; `now` is monotonic. */
  sweep(now: number): 'wait' | 'close' | 'abort' {
    const { writableFinished, writableLength } = this.#socket
    if (!writableFinished) {
      const progress = { movedBytes: -writableLength, awaitedBodyBytes: undefined }
      return this.#watch.look(progress, now) ? 'abort' : 'wait'
    }
    this.#deadline ??= now + this.#limits.lingerMs
    return now > this.#deadline ? 'close' : 'wait'
  }
}
