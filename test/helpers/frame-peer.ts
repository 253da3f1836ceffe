import type { Duplex } from 'node:stream'
import {
  FrameDecoder,
  type FrameSink,
  putData,
  putGoAway,
  putReset,
  putWindowIncrement,
} from '../../src/muxado/frame-codec.ts'

/** A frame as tests compare it. */
export type Frame =
  | { type: 'data'; streamId: number; body: string; flags: number }
  | { type: 'reset'; streamId: number; code: number }
  | { type: 'windowIncrement'; streamId: number; bytes: number }
  | { type: 'goAway'; lastStreamId: number; code: number; message: string }

/** A sink that hands on frames as values. */
export function frameSink(onFrame: (frame: Frame) => void): FrameSink {
  return {
    data: (streamId, body, flags) =>
      onFrame({ type: 'data', streamId, body: body.toString('latin1'), flags }),
    reset: (streamId, code) => onFrame({ type: 'reset', streamId, code }),
    windowIncrement: (streamId, bytes) => onFrame({ type: 'windowIncrement', streamId, bytes }),
    goAway: (lastStreamId, code, message) =>
      onFrame({ type: 'goAway', lastStreamId, code, message }),
  }
}

/** A peer that says any frame, right or wrong, and keeps what it hears. */
export class FramePeer {
  readonly frames: Frame[] = []
  readonly #transport: Duplex

  constructor(transport: Duplex) {
    this.#transport = transport
    const decoder = new FrameDecoder(frameSink((frame) => this.frames.push(frame)))
    transport.on('data', (chunk: Buffer) => decoder.push(chunk))
  }

  /** Frames of one type, in their order. */
  only<T extends Frame['type']>(type: T): Extract<Frame, { type: T }>[] {
    return this.frames.filter((frame): frame is Extract<Frame, { type: T }> => frame.type === type)
  }

  data(streamId: number, body: string | Buffer, flags = 0): void {
    const bytes = Buffer.from(body)
    this.#send(bytes.length + 8, (target) => putData(target, 0, streamId, bytes, flags))
  }

  reset(streamId: number, code: number): void {
    this.#send(12, (target) => putReset(target, 0, streamId, code))
  }

  windowIncrement(streamId: number, bytes: number): void {
    this.#send(12, (target) => putWindowIncrement(target, 0, streamId, bytes))
  }

  goAway(lastStreamId: number, code: number, message: string): void {
    this.#send(1_100, (target) => putGoAway(target, 0, lastStreamId, code, message))
  }

  /** Bytes as they are, in hex; white space is for the reader. */
  raw(hex: string): void {
    this.#transport.write(fromHex(hex))
  }

  #send(size: number, put: (target: Buffer) => number): void {
    const target = Buffer.alloc(size)
    this.#transport.write(target.subarray(0, put(target)))
  }
}

export function fromHex(hex: string): Buffer {
  return Buffer.from(hex.replaceAll(/\s/g, ''), 'hex')
}

/** Lets the event loop go round until what pipes in memory carry has arrived. */
export async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve))
}
