import { Duplex } from 'node:stream'
import type { MuxadoError } from '../../src/muxado/error-code.ts'
import type { Stream, StreamHandler } from '../../src/muxado/stream.ts'

type Done = (error?: Error | null) => void

/** A Node stream over a muxado stream, for what wants one. Destroying it retires the stream. */
export function asDuplex(stream: Stream): Duplex {
  return new StreamDuplex(stream)
}

class StreamDuplex extends Duplex implements StreamHandler {
  readonly #stream: Stream
  /** Received bytes whose credit waits for the reader. */
  #held = 0
  #onDrain: Done | undefined

  constructor(stream: Stream) {
    super()
    this.#stream = stream
    stream.handler = this
  }

  onData(chunk: Buffer): void {
    this.#held += chunk.length
    this.push(chunk)
  }

  onEnd(): void {
    this.push(null)
  }

  onDrain(): void {
    const done = this.#onDrain
    this.#onDrain = undefined
    done?.()
  }

  onClose(error: MuxadoError | undefined): void {
    if (error !== undefined) this.destroy(error)
  }

  override _read(): void {
    this.#stream.release(this.#held)
    this.#held = 0
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#stream.write(chunk)) done()
    else this.#onDrain = done
  }

  override _final(done: Done): void {
    this.#stream.end()
    done()
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#stream.retire()
    done(error)
  }
}
