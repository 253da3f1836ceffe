import { Duplex } from 'node:stream'
import type { Stream } from '../../../muxado/stream.ts'

/** Turns of the event loop in which the library writes the end of its data. */
const END_TURNS = 4

type Done = (error?: Error | null) => void

/** Receives the written bytes, and the end of the duplex. */
export interface StreamDuplexOwner {
  /** Something is written to the device. */
  onSend(chunk: Buffer): void
  /** The other side of the duplex has no more use for the stream. */
  onDuplexClose(): void
}

/**
 * A proxy stream as a Node stream. Writes never wait here: check `isBlocked` before sending more, so that
 * answers to the device are not delayed.
 */
export class StreamDuplex extends Duplex {
  readonly #stream: Stream
  readonly #owner: StreamDuplexOwner
  /** Received bytes whose credit waits for the reader. */
  #unreleased = 0
  #receivedBytes = 0
  #isBlocked = false
  /** Bytes that are held back, to be sent with the next ones. */
  #pending: Buffer[] = []
  #holding: NodeJS.Timeout | undefined

  constructor(stream: Stream, owner: StreamDuplexOwner) {
    super()
    this.#stream = stream
    this.#owner = owner
  }

  /** The device accepts no more for now. The stream's handler gets `onDrain` and calls `unblock()`. */
  get isBlocked(): boolean {
    return this.#isBlocked
  }

  get receivedBytes(): number {
    return this.#receivedBytes
  }

  /** Bytes from the device. */
  receive(chunk: Buffer): void {
    this.#receivedBytes += chunk.length
    this.#unreleased += chunk.length
    if (this.push(chunk)) this.#release()
  }

  /** The device takes more again. */
  unblock(): void {
    this.#isBlocked = false
  }

  /**
   * Holds writes back for this time, or until `letGo()`. The SDK leaves Nagle's algorithm on: the second of
   * two small writes would wait for the service's delayed acknowledgement, 40 ms.
   */
  hold(ms: number): void {
    if (this.#holding) return
    const holding: NodeJS.Timeout = setTimeout(() => this.#letGoIn(END_TURNS, holding), ms)
    this.#holding = holding
  }

  /** Sends held data, with the writes of this turn. */
  letGoSoon(): void {
    setImmediate(() => this.letGo())
  }

  /** Sends held data. */
  letGo(): void {
    clearTimeout(this.#holding)
    this.#holding = undefined
    const [first, ...rest] = this.#pending
    this.#pending = []
    if (first) this.#send(rest.length > 0 ? Buffer.concat([first, ...rest]) : first)
  }

  #letGoIn(turns: number, holding: NodeJS.Timeout): void {
    if (this.#holding !== holding) return
    if (turns > 0) setImmediate(() => this.#letGoIn(turns - 1, holding))
    else this.letGo()
  }

  override _read(): void {
    this.#release()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#enqueue([chunk])
    done()
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this.#enqueue(chunks.map(({ chunk }) => chunk))
    done()
  }

  override _final(done: Done): void {
    this.letGo()
    done()
    this.#owner.onDuplexClose()
  }

  override _destroy(error: Error | null, done: Done): void {
    this.letGo()
    this.#owner.onDuplexClose()
    done(error)
  }

  #enqueue(chunks: readonly Buffer[]): void {
    for (const chunk of chunks) {
      this.#owner.onSend(chunk)
      this.#pending.push(chunk)
    }
    if (!this.#holding) this.letGo()
  }

  #send(chunk: Buffer): void {
    if (!this.#stream.write(chunk)) this.#isBlocked = true
  }

  #release(): void {
    const bytes = this.#unreleased
    this.#unreleased = 0
    if (bytes > 0) this.#stream.release(bytes)
  }
}
