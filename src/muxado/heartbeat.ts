import { randomBytes } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import type { Session } from './session.ts'
import { DEAF, type Stream } from './stream.ts'
import { openTyped } from './typed-session.ts'

/** Type of the streams that carry heartbeats, both ways. */
export const HEARTBEAT_STREAM_TYPE = 0xffff_ffff
const BEAT_BYTES = 4

export interface HeartbeatOptions {
  readonly session: Session
  readonly clock: Clock
  /** From an echo to the next beat. */
  readonly intervalMs: number
  /** How long an echo may take. */
  readonly toleranceMs: number
  onLatency(ms: number): void
  /** Once; the heart has stopped by then. */
  onMissed(): void
}

/**
 * Our heartbeat: 4 random bytes on a stream of its own, which the peer echoes. The stream lives as
 * long as the session: the SDK answers the end of a heartbeat with zeros without end.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions
  #stream: Stream | undefined
  #timer = new AbortController()
  /** What the peer has to echo; undefined between two beats. */
  #beat: Buffer | undefined
  #echo = Buffer.alloc(0)
  #sentAt = 0

  constructor(options: HeartbeatOptions) {
    this.#options = options
  }

  /** Opens the stream and sends the first beat; throws like `Session.open`. */
  start(): void {
    if (this.#stream !== undefined) return
    this.#stream = openTyped(this.#options.session, HEARTBEAT_STREAM_TYPE, {
      ...DEAF,
      onData: (chunk) => this.#receive(chunk),
      onClose: () => this.stop(),
    })
    this.#send(this.#stream)
  }

  stop(): void {
    this.#timer.abort()
  }

  #send(stream: Stream): void {
    this.#beat = randomBytes(BEAT_BYTES)
    this.#echo = Buffer.alloc(0)
    this.#sentAt = this.#options.clock.monotonic()
    stream.write(this.#beat)
    this.#after(this.#options.toleranceMs, () => {
      this.stop()
      this.#options.onMissed()
    })
  }

  #receive(chunk: Buffer): void {
    const stream = this.#stream
    if (stream === undefined || this.#timer.signal.aborted) return
    stream.release(chunk.length)
    this.#echo = Buffer.concat([this.#echo, chunk.subarray(0, BEAT_BYTES)]).subarray(0, BEAT_BYTES)
    if (this.#beat === undefined || !this.#echo.equals(this.#beat)) return
    this.#beat = undefined
    this.#options.onLatency(this.#options.clock.monotonic() - this.#sentAt)
    this.#after(this.#options.intervalMs, () => this.#send(stream))
  }

  /** One timer at a time: the next one replaces it. */
  #after(ms: number, run: () => void): void {
    this.#timer.abort()
    const timer = new AbortController()
    this.#timer = timer
    this.#options.clock.sleep(ms, timer.signal).then(
      () => {
        if (!timer.signal.aborted) run()
      },
      () => {},
    )
  }
}

/** Their heartbeat: everything comes back as it came. */
export function echoHeartbeat(stream: Stream): void {
  let held = 0
  const release = () => {
    stream.release(held)
    held = 0
  }
  stream.handler = {
    ...DEAF,
    onData(chunk) {
      held += chunk.length
      if (stream.write(chunk)) release()
    },
    onDrain: release,
    onEnd: () => stream.end(),
  }
}
