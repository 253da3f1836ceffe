import { MuxadoError } from '../../muxado/error-code.ts'
import type { Stream, StreamHandler } from '../../muxado/stream.ts'

/** Why an exchange gets no stream. */
export type NoStreamReason = 'queue-full' | 'queue-timeout' | 'session-over'

/** Who asks for a stream. One of the two is called once: before the asking returns, or later. */
export interface StreamWaiter {
  onStream(stream: ProxyStream): void
  onNoStream(reason: NoStreamReason): void
}

/** Where a stream comes from, and goes back to. */
export interface ProxyStreamOwner {
  /** It is free for another exchange. */
  takeBack(stream: ProxyStream): void
  /** It is of no use any more. */
  drop(stream: ProxyStream): void
}

/** A stream that leads to one connection of the device's service; its own handler while unused. */
export class ProxyStream implements StreamHandler {
  readonly stream: Stream
  readonly #owner: ProxyStreamOwner
  #isReused = false
  #idleSince = 0

  constructor(owner: ProxyStreamOwner, open: (handler: StreamHandler) => Stream) {
    this.#owner = owner
    this.stream = open(this)
  }

  /** False for the first exchange: then the service has still to be reached. */
  get isReused(): boolean {
    return this.#isReused
  }

  /** The tick that `rest()` was told. */
  get idleSince(): number {
    return this.#idleSince
  }

  /** Its owner keeps it for later from this tick on. */
  rest(tick: number): void {
    this.#idleSince = tick
  }

  /** Hands the stream back: the exchange on it is over, and both sides keep the connection. */
  release(): void {
    this.#isReused = true
    this.stream.handler = this
    this.#owner.takeBack(this)
  }

  /** Gives the stream up, also one that has closed; the service sees the end of its connection. */
  retire(): void {
    this.#owner.drop(this)
    this.stream.handler = RETIRED
    this.stream.retire()
  }

  /** Takes the stream away from the exchange on it. */
  cut(): void {
    const { handler } = this.stream
    this.retire()
    handler.onClose(new MuxadoError('stream-cancelled', 'the endpoint was stopped'))
  }

  /** Bytes that nobody asked for: whatever they are, the next answer must not begin with them. */
  onData(): void {
    this.retire()
  }

  /** The service closed its idle connection. */
  onEnd(): void {
    this.onData()
  }

  onDrain(): void {}

  onClose(): void {
    this.#owner.drop(this)
  }
}

/** What a stream does when nobody is interested any more. */
const RETIRED: StreamHandler = { onData() {}, onEnd() {}, onDrain() {}, onClose() {} }
