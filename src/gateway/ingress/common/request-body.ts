import type { Clock } from '../../../base/clock.ts'
import { BodyTracker, joined } from '../syntax/body-tracker.ts'
import type { BodyFraming } from '../syntax/http-syntax.ts'

/** Source of a request body, which can be paused. */
export interface BodySource {
  /** Reads no more until `resume()`. */
  pause(): void
  resume(): void
}

/** Target of a body. False: no more until there is room. */
export interface BodySink {
  write(chunk: Buffer): boolean
  /** The last byte was written. */
  end(): void
}

/** Sink of an unwanted body. */
const DISCARD: BodySink = { write: () => true, end() {} }

/** A request's body on its way from the client; it waits until there is a place for it to go. */
export class RequestBody {
  readonly #framing: BodyFraming
  readonly #source: BodySource
  readonly #clock: Clock
  readonly #tracker: BodyTracker
  #sink: BodySink | undefined
  /** Takes the framing away, for a sink that wants content alone. */
  #decoder: BodyTracker | undefined
  /** Data from before there was a sink, with its framing. */
  #held: Buffer[] = []
  #preview: BodyPreview | undefined
  #heldBytes = 0
  /** Data since `remember`, with its framing; undefined if it was too much, or not requested. */
  #remembered: Buffer[] | undefined
  #rememberedBytes = 0
  #maxRemembered = 0
  /** Bytes in a sink that wants no more. */
  #stuckBytes = 0
  #isBlocked = false
  #bytes = 0
  #receivedAt: number | undefined

  constructor(framing: BodyFraming, source: BodySource, clock: Clock) {
    this.#framing = framing
    this.#source = source
    this.#clock = clock
    this.#tracker = new BodyTracker(framing)
  }

  /** True when its last byte has come from the client. */
  get isDone(): boolean {
    return this.#tracker.isDone
  }

  /** The client has to wait. */
  get isBlocked(): boolean {
    return this.#isBlocked
  }

  /** Bytes as framed, so far. */
  get bytes(): number {
    return this.#bytes
  }

  /** Chunks that have begun so far. */
  get chunks(): number {
    return this.#tracker.chunks
  }

  /** Bytes that have come and wait. */
  get heldBytes(): number {
    return this.#heldBytes + this.#stuckBytes + this.#rememberedBytes
  }

  /** All that has flowed can flow once more. */
  get canRewind(): boolean {
    return this.#remembered !== undefined
  }

  /** Trailers, name and value in turn; known at the end. */
  get trailers(): readonly string[] {
    return this.#tracker.trailers
  }

  /** Milliseconds since the epoch at which its last byte came; undefined until then. */
  get receivedAt(): number | undefined {
    return this.#receivedAt
  }

  /** Answers the offset behind the bytes of `chunk` that belong to it. Throws HttpSyntaxError. */
  read(chunk: Buffer, from: number): number {
    if (this.isDone) return from
    const end = this.#tracker.advance(chunk, from)
    this.#bytes += end - from
    if (this.isDone) this.#receivedAt = this.#clock.now()
    this.#pass(end - from === chunk.length ? chunk : chunk.subarray(from, end))
    if (this.isDone) this.#sink?.end()
    return end
  }

  /** Sends earlier and later data to `sink`: with its framing, or the content alone. */
  flowTo(sink: BodySink, form: 'framed' | 'content' = 'framed'): void {
    this.#preview?.abandon()
    this.#sink = sink
    this.#decoder = form === 'content' ? new BodyTracker(this.#framing) : undefined
    this.#unblock()
    const held = this.#held
    this.#held = []
    this.#heldBytes = 0
    // As one piece: a sink takes any piece that it was asked for, and not thousands that it was not.
    if (held.length > 0) this.#pass(joined(held))
    if (this.isDone) sink.end()
  }

  /** Keeps further data for `rewind`, up to this many bytes. Call it before `flowTo`. */
  remember(maxBytes: number): void {
    this.#remembered = []
    this.#maxRemembered = maxBytes
  }

  /** There will be no `rewind`. */
  forget(): void {
    this.#remembered = undefined
    this.#rememberedBytes = 0
  }

  /** Takes the sink away; the next one gets the body from its start. Only where `canRewind`. */
  rewind(): void {
    this.#held = [...(this.#remembered ?? []), ...this.#held]
    this.#heldBytes += this.#rememberedBytes
    this.forget()
    this.#sink = undefined
  }

  /** Lets the rest come and drops it. */
  discard(): void {
    this.flowTo(DISCARD)
  }

  /** The sink has room again. */
  onRoom(): void {
    this.#unblock()
  }

  /**
   * Reads the complete content before there is a sink, which gets all of it later. Returns undefined if it is
   * longer than `maxBytes` or already has a sink. Only one call at a time.
   */
  readAll(maxBytes: number): Promise<Buffer | undefined> {
    if (this.#sink) return Promise.resolve(undefined)
    return new Promise((resolve) => {
      const preview = new BodyPreview(this.#framing, maxBytes, resolve)
      this.#preview = preview
      for (const chunk of this.#held) preview.add(chunk)
      if (!preview.isOver) this.#unblock()
    })
  }

  #pass(chunk: Buffer): void {
    const sink = this.#sink
    if (sink) {
      if (this.#remembered) this.#rememberMore(this.#remembered, chunk)
      const part = this.#decoder ? this.#decoder.decode(chunk) : chunk
      // The write may have replaced the sink.
      if (!sink.write(part) && this.#sink === sink) {
        this.#stuckBytes = part.length
        this.#block()
      }
    } else {
      this.#held.push(chunk)
      this.#heldBytes += chunk.length
      this.#preview?.add(chunk)
      if (!this.#preview || this.#preview.isOver) this.#block()
    }
  }

  #rememberMore(remembered: Buffer[], chunk: Buffer): void {
    this.#rememberedBytes += chunk.length
    if (this.#rememberedBytes > this.#maxRemembered) this.forget()
    else remembered.push(chunk)
  }

  #block(): void {
    if (this.isDone) return
    this.#isBlocked = true
    this.#source.pause()
  }

  #unblock(): void {
    this.#stuckBytes = 0
    if (!this.#isBlocked) return
    this.#isBlocked = false
    this.#source.resume()
  }
}

/** Limit of framing in a previewed body: chunk lines, extensions, trailers. */
const MAX_FRAMING_BYTES = 65_536

/** Collects the content of a body that is looked at before it goes on. */
class BodyPreview {
  readonly #tracker: BodyTracker
  readonly #maxBytes: number
  readonly #resolve: (content: Buffer | undefined) => void
  readonly #content: Buffer[] = []
  #contentBytes = 0
  #framingBytes = 0
  isOver = false

  constructor(
    framing: BodyFraming,
    maxBytes: number,
    resolve: (content: Buffer | undefined) => void,
  ) {
    this.#tracker = new BodyTracker(framing)
    this.#maxBytes = maxBytes
    this.#resolve = resolve
  }

  add(chunk: Buffer): void {
    if (this.isOver) return
    const content = this.#tracker.decode(chunk)
    this.#content.push(content)
    this.#contentBytes += content.length
    this.#framingBytes += chunk.length - content.length
    const maxFraming = Math.max(MAX_FRAMING_BYTES, this.#maxBytes)
    if (this.#contentBytes > this.#maxBytes || this.#framingBytes > maxFraming) {
      this.#settle(undefined)
    } else if (this.#tracker.isDone) {
      this.#settle(joined(this.#content))
    }
  }

  /** Answers that there is nothing to look at, unless it has answered. */
  abandon(): void {
    if (!this.isOver) this.#settle(undefined)
  }

  #settle(content: Buffer | undefined): void {
    this.isOver = true
    this.#resolve(content)
  }
}
