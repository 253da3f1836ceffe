import { randomBytes } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import { createDeferred } from '../base/deferred.ts'
import { ErrorCode } from './error-code.ts'
import { openTyped, type Session } from './session.ts'
import { DEAF, type Stream } from './stream.ts'

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
  /** When the peer was last heard otherwise, monotonic: within an interval of it nothing is sent. */
  readonly heardAt?: () => number
  onLatency(ms: number): void
  /** Once; the heart has stopped by then. */
  onMissed(): void
}

/**
 * Our heartbeat: 4 random bytes on a stream of its own, which the peer echoes. The stream lives as
 * long as the session: the SDK answers the end of a heartbeat with zeros without end. So it does at
 * the end of the session, into a window of 256 kB, with 9.5 MB of memory for them that its process
 * keeps (measured), unless the stream was reset before.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions
  readonly #stopping = new AbortController()
  #stream: Stream | undefined
  /** What the peer has to echo; undefined between two beats. */
  #beat: Buffer | undefined
  #echo = Buffer.alloc(0)
  /** Who wants to know whether the next echo comes. */
  readonly #asking = new Set<(isAlive: boolean) => void>()
  #sentAt = 0
  /** When the echo has to be here, and from then on: when the next beat goes out. */
  #dueAt = 0

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
    this.#dueAt = this.#options.clock.monotonic()
    void this.#run(this.#stream)
  }

  /** For good, and the session has to end with it: the stream is reset. */
  stop(): void {
    if (this.#stopping.signal.aborted) return
    this.#stopping.abort()
    this.#tell(false)
    this.#stream?.reset(ErrorCode.streamCancelled)
  }

  /** How long the peer has owed an echo, in ms; 0 between two beats. */
  get owedMs(): number {
    return this.#beat === undefined ? 0 : this.#options.clock.monotonic() - this.#sentAt
  }

  /** Sends a beat now, unless one is on its way. */
  beat(): void {
    if (this.#stream && this.#beat === undefined && !this.#stopping.signal.aborted)
      this.#send(this.#stream)
  }

  /** Whether an echo comes within so many ms; the beat goes out at once. */
  async answers(withinMs: number): Promise<boolean> {
    const stream = this.#stream
    if (!stream || this.#stopping.signal.aborted) return false
    const answered = createDeferred<boolean>()
    this.#asking.add(answered.resolve)
    this.beat()
    const settled = new AbortController()
    this.#options.clock.sleep(withinMs, settled.signal).then(
      () => answered.resolve(false),
      () => {},
    )
    const isAlive = await answered.promise
    this.#asking.delete(answered.resolve)
    settled.abort()
    return isAlive
  }

  #tell(isAlive: boolean): void {
    for (const resolve of this.#asking) resolve(isAlive)
  }

  /** Sleeps on when an echo has moved what is due: no timer is set for what hardly ever happens. */
  async #run(stream: Stream): Promise<void> {
    const { clock, intervalMs, heardAt, onMissed } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      const waitMs = this.#dueAt - clock.monotonic()
      if (waitMs > 0) {
        await clock.sleep(Math.min(waitMs, intervalMs), signal).catch(() => {})
      } else if (this.#beat === undefined) {
        const heardUntil = (heardAt?.() ?? Number.NEGATIVE_INFINITY) + intervalMs
        if (heardUntil > clock.monotonic()) this.#dueAt = heardUntil
        else this.#send(stream)
      } else {
        this.stop()
        onMissed()
      }
    }
  }

  #send(stream: Stream): void {
    this.#beat = randomBytes(BEAT_BYTES)
    this.#echo = Buffer.alloc(0)
    this.#sentAt = this.#options.clock.monotonic()
    this.#dueAt = this.#sentAt + this.#options.toleranceMs
    stream.write(this.#beat)
  }

  #receive(chunk: Buffer): void {
    if (this.#stopping.signal.aborted) return
    this.#stream?.release(chunk.length)
    this.#echo = Buffer.concat([this.#echo, chunk.subarray(0, BEAT_BYTES)]).subarray(0, BEAT_BYTES)
    if (this.#beat === undefined || !this.#echo.equals(this.#beat)) return
    const now = this.#options.clock.monotonic()
    this.#beat = undefined
    this.#dueAt = now + this.#options.intervalMs
    this.#options.onLatency(now - this.#sentAt)
    this.#tell(true)
  }
}

/** Their heartbeat: everything comes back as it came. */
export function echoHeartbeat(stream: Stream, onBeat: () => void = () => {}): void {
  let held = 0
  const release = () => {
    stream.release(held)
    held = 0
  }
  stream.handler = {
    ...DEAF,
    onData(chunk) {
      onBeat()
      held += chunk.length
      if (stream.write(chunk)) release()
    },
    onDrain: release,
    onEnd: () => stream.end(),
  }
}
