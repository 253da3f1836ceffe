import type { Clock } from '../../base/clock.ts'
import type { StreamSlots } from './stream-slots.ts'

export interface IdleWait {
  readonly slots: StreamSlots
  readonly clock: Clock
  /** Asked at once, and whenever less may be under way. */
  isIdle(): boolean
  readonly withinMs: number
  readonly signal: AbortSignal
}

/** Resolves when a session is idle, when the time is up, or when the signal is aborted. */
export async function untilIdle({
  slots,
  clock,
  isIdle,
  withinMs,
  signal,
}: IdleWait): Promise<void> {
  if (signal.aborted || isIdle()) return
  const watching = new AbortController()
  const stop = () => watching.abort()
  const check = () => {
    if (isIdle()) stop()
  }
  signal.addEventListener('abort', stop)
  slots.watchBusy(check, watching.signal)
  // The sleep rejects when there is nothing to wait for any more.
  await clock.sleep(withinMs, watching.signal).catch(() => {})
  stop()
  signal.removeEventListener('abort', stop)
}
