import type { Duplex } from 'node:stream'
import { createDeferred } from '../base/deferred.ts'
import type { Logger } from '../base/logger.ts'
import type { ErrorCode, MuxadoError } from './error-code.ts'
import type { Stream, StreamHandler } from './stream.ts'

/** Sizes that a session keeps to. */
export interface SessionLimits {
  /** Streams of both directions up to which this side opens new ones. */
  readonly openStreams: number
  /** Streams of both directions that may live at once; the SDK dies silently at the 513th. */
  readonly streams: number
  /** The last id this side gives to a stream; after it the session has to be replaced. */
  readonly lastStreamId: number
  /** What may wait in one stream for credit when its owner writes once more. */
  readonly sendQueueBytes: number
  /** What may wait for the transport, all streams together. */
  readonly backlogBytes: number
}

export interface SessionOptions {
  readonly role: 'server' | 'client'
  /** A stream of the peer; set its handler before returning. */
  accept(stream: Stream): void
  readonly log?: Logger
  /** Hears one readable line per frame. */
  readonly trace?: (line: string) => void
  readonly limits?: Partial<SessionLimits>
}

/** Many streams over one transport. It reads from construction on and ends once, with one reason. */
export class Session {
  readonly #closed = createDeferred<MuxadoError>()

  constructor(_transport: Duplex, _options: SessionOptions) {}

  /** Resolves with the first reason, exactly once; never rejects. */
  get closed(): Promise<MuxadoError> {
    return this.#closed.promise
  }

  /** How many streams `open()` would grant now. */
  get freeSlots(): number {
    return 0
  }

  /** Opens a stream; `first` rides in its SYN frame. Throws MuxadoError 'streams-exhausted'. */
  open(_handler: StreamHandler, _first?: Buffer): Stream {
    throw new Error('not written yet')
  }

  /** Calls back once, first come first served, when a slot is free: at once if one is. */
  whenFree(_callback: () => void): void {}

  /** Says goodbye, fails all streams and closes the transport within 250 ms. */
  goAway(_code: ErrorCode, _message: string): Promise<void> {
    return Promise.resolve()
  }
}
