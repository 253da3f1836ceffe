import type { Stream } from '../../src/muxado/stream.ts'
import {
  END_HEADERS,
  encodeFields,
  type Field,
  type Frame,
  frame,
  HEADERS,
  PREFACE,
  SETTINGS,
} from './http2-frames.ts'

const LENGTH_BYTES = 8

/** One connection to a device's service that writes frames as they are, and keeps those that come. */
export class FrameDevice {
  readonly frames: Frame[] = []
  /** Writes of the gateway so far. */
  writes = 0
  isEnded = false
  isBlocked = false
  readonly #stream: Stream
  readonly #onFrame: (device: FrameDevice, frame: Frame) => void
  #rest = Buffer.alloc(0)
  #isBegun = false
  #isSlow = false
  #owed = 0

  /** `onFrame` hears of each frame of the gateway; of the first one, which is its settings, too. */
  constructor(stream: Stream, onFrame: (device: FrameDevice, frame: Frame) => void) {
    this.#stream = stream
    this.#onFrame = onFrame
    stream.handler = {
      onData: (chunk) => {
        this.#owed += chunk.length
        if (!this.#isSlow) this.#pay()
        this.writes += 1
        this.#read(chunk)
      },
      onEnd: () => {
        this.isEnded = true
        stream.end()
      },
      onDrain: () => {
        this.isBlocked = false
      },
      onClose: () => {
        this.isEnded = true
      },
    }
  }

  send(...parts: readonly Buffer[]): void {
    if (!this.isEnded && !this.#stream.write(Buffer.concat(parts))) this.isBlocked = true
  }

  /** The link of the device takes no more than its window, until it does again. */
  set isSlow(isSlow: boolean) {
    this.#isSlow = isSlow
    if (!isSlow) this.#pay()
  }

  /** The service closes its connection. */
  end(): void {
    this.#stream.end()
  }

  reset(): void {
    this.#stream.reset(7)
  }

  #pay(): void {
    const bytes = this.#owed
    this.#owed = 0
    this.#stream.release(bytes)
  }

  #read(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk])
    if (!this.#isBegun) {
      if (this.#rest.length < LENGTH_BYTES) return
      const begin = LENGTH_BYTES + Number(this.#rest.readBigInt64LE()) + PREFACE.length
      if (this.#rest.length < begin) return
      this.#rest = this.#rest.subarray(begin)
      this.#isBegun = true
    }
    for (;;) {
      const rest = this.#rest
      const length = rest.length < 9 ? Number.POSITIVE_INFINITY : rest.readUIntBE(0, 3)
      if (rest.length < 9 + length) return
      const [type = 0, flags = 0] = rest.subarray(3, 5)
      const stream = rest.readUInt32BE(5)
      const got = { type, flags, stream, payload: rest.subarray(9, 9 + length) }
      this.#rest = rest.subarray(9 + length)
      this.frames.push(got)
      this.#onFrame(this, got)
    }
  }
}

export const SETTINGS_FRAME: Buffer = frame(SETTINGS, 0, 0)

/** A whole head of a response in one frame. */
export function responseHead(stream: number, flags = 0, fields: readonly Field[] = []): Buffer {
  return frame(HEADERS, flags | END_HEADERS, stream, encodeFields([[':status', '200'], ...fields]))
}
