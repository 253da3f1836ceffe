import { readFileSync } from 'node:fs'
import { uptime } from 'node:os'
import type { Clock } from '../../base/clock.ts'

/** A moment that another process can tell the distance to. Milliseconds. */
export interface Moment {
  /** Since the epoch. */
  readonly at: number
  /** Which start of the machine it belongs to; null where the system does not say. */
  readonly boot: string | null
  /** Since that start. */
  readonly upMs: number
}

/** How exact the system tells its uptime. */
const UPTIME_STEP_MS = 10

export function momentNow(clock: Pick<Clock, 'now'>): Moment {
  return { at: clock.now(), boot: bootId(), upMs: Math.floor(uptime() * 1_000) }
}

/**
 * How long ago a moment was, at least. Within one run of the machine its clock may be set to what it
 * likes; over a reboot there is nothing but that clock, and one that has gone back counts as no time.
 */
export function elapsedMs(then: Moment, now: Moment): number {
  const isSameBoot = then.boot !== null && then.boot === now.boot && now.upMs >= then.upMs
  const elapsed = isSameBoot ? now.upMs - then.upMs - UPTIME_STEP_MS : now.at - then.at
  return Math.max(0, elapsed)
}

function bootId(): string | null {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  } catch {
    return null
  }
}
