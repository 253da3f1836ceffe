import type { BodyFraming } from './body-framing.ts'
import { BodyTracker } from './body-tracker.ts'

/** Where a request body comes from: it can be told to wait. */
export interface BodySource {
  pause(): void
  resume(): void
}

/** Where a request body goes. False: no more until `onRoom()` of the body. */
export interface BodySink {
  write(chunk: Buffer): boolean
  /** The last byte was written. */
  end(): void
}

/** What is left when a body is not wanted: its bytes are counted and dropped. */
const DISCARD: BodySink = { write: () => true, end() {} }

/** A request's body on its way from the client; it waits until there is a place for it to go. */
export class RequestBody {
  readonly #source: BodySource
  readonly #tracker: BodyTracker
  #sink: BodySink | undefined
  #held: Buffer[] = []
  /** Bytes as framed, so far. */
  bytes = 0

  constructor(framing: BodyFraming, source: BodySource) {
    this.#source = source
    this.#tracker = new BodyTracker(framing)
  }

  /** True when its last byte has come from the client. */
  get isDone(): boolean {
    return this.#tracker.isDone
  }

  /** True while the client has to wait because the bytes have nowhere to go. */
  isBlocked = false

  /** Answers the offset behind the bytes of `chunk` that belong to it. Throws HttpSyntaxError. */
  take(chunk: Buffer, from: number): number {
    if (this.isDone) return from
    const end = this.#tracker.advance(chunk, from)
    this.bytes += end - from
    this.#pass(end - from === chunk.length ? chunk : chunk.subarray(from, end))
    if (this.isDone) this.#sink?.end()
    return end
  }

  /** Sends what has come and what will come to `sink`. */
  flowTo(sink: BodySink): void {
    this.#sink = sink
    this.#unblock()
    const held = this.#held
    this.#held = []
    for (const chunk of held) this.#pass(chunk)
    if (this.isDone) sink.end()
  }

  discard(): void {
    this.flowTo(DISCARD)
  }

  /** The sink can take more. */
  onRoom(): void {
    this.#unblock()
  }

  #pass(chunk: Buffer): void {
    if (!this.#sink) this.#held.push(chunk)
    if (this.#sink?.write(chunk) || this.isDone) return
    this.isBlocked = true
    this.#source.pause()
  }

  #unblock(): void {
    if (!this.isBlocked) return
    this.isBlocked = false
    this.#source.resume()
  }
}
