import { onAbort } from './on-abort.ts'

/** Source of time. Tests pass a clock that they control. */
export interface Clock {
  /** Wall clock time in milliseconds since the epoch. It may jump: use it only for display. */
  now(): number
  /** Milliseconds from an arbitrary start. Never jumps: use it for deadlines and intervals. */
  monotonic(): number
  /** Resolves after `ms`. Rejects with the signal's reason if it is aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

/** The system clock. A pending sleep keeps the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason)
        return
      }
      const timer = setTimeout(() => {
        off?.()
        resolve()
      }, ms)
      const off =
        signal &&
        onAbort(signal, () => {
          clearTimeout(timer)
          reject(signal.reason)
        })
    }),
}

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const
const PART = /(\d+(?:\.\d+)?)(ms|s|m|h)/y

/** Parses a duration such as `90s`, `10m` or `1h30m`. Returns milliseconds, or undefined for other text. */
export function parseDuration(text: string): number | undefined {
  let totalMs = 0
  PART.lastIndex = 0
  while (PART.lastIndex < text.length) {
    const part = PART.exec(text)
    if (!part) return undefined
    totalMs += Number(part[1]) * UNIT_MS[part[2] as keyof typeof UNIT_MS]
  }
  return text === '' ? undefined : totalMs
}

/** Formats a time as `timedatectl set-time` takes it: `2030-01-31 08:30:00 UTC`. */
export function formatUtc(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`
}

/** Formats a duration for people: `3 min`, `2 h 5 min`, `40 s`. */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000))
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  if (hours >= 48) return `${Math.floor(hours / 24)} days`
  return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
}
