import type { Clock } from '../base/clock.ts'
import type { Session } from './session.ts'
import type { Stream } from './stream.ts'

/** Type of the streams that carry heartbeats, both ways. */
export const HEARTBEAT_STREAM_TYPE = 0xffff_ffff

export interface HeartbeatOptions {
  readonly session: Session
  readonly clock: Clock
  /** From an answer to the next beat. */
  readonly intervalMs: number
  /** How long an answer may take. */
  readonly toleranceMs: number
  onLatency(ms: number): void
  /** Once; the heart has stopped by then. */
  onMissed(): void
}

/** Our heartbeat: 4 random bytes on a stream of their own, which the peer echoes. */
export class Heartbeat {
  constructor(_options: HeartbeatOptions) {}

  start(): void {}

  stop(): void {}
}

/** Their heartbeat: everything comes back as it came. */
export function echoHeartbeat(_stream: Stream): void {}
