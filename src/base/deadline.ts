import { onAbort } from './on-abort.ts'

/** Thrown when work exceeds its time limit. */
export class DeadlineError extends Error {
  override readonly name = 'DeadlineError'
  readonly ms: number

  constructor(what: string, ms: number) {
    super(`${what} took longer than ${ms} ms`)
    this.ms = ms
  }
}

/**
 * Settles like `promise`, or rejects with a DeadlineError after `ms`. The work itself continues: a late
 * rejection or value is ignored.
 */
export function withDeadline<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new DeadlineError(what, ms)), ms)
    promise.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/**
 * Runs work with a signal. The signal is aborted with `stop`, or after `ms` with a TimeoutError, as in
 * `AbortSignal.timeout`.
 *
 * `AbortSignal.any` cannot replace this: Node 20 garbage-collects a timeout signal that only a combined
 * signal refers to. It then never fires.
 */
export async function abortedAfter<T>(
  ms: number,
  stop: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const either = new AbortController()
  const onStop = () => either.abort(stop.reason)
  const onTimeout = () => either.abort(new DOMException(`Not within ${ms} ms`, 'TimeoutError'))
  const timer = setTimeout(onTimeout, ms)
  const off = onAbort(stop, onStop)
  if (stop.aborted) onStop()
  try {
    return await work(either.signal)
  } finally {
    clearTimeout(timer)
    off()
  }
}

/**
 * Settles like `promise`, or rejects with the signal's reason if it is aborted first. The work itself
 * continues: a late value or rejection is ignored.
 */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const giveUp = () => reject(signal.reason)
    const off = onAbort(signal, giveUp)
    promise.then(resolve, reject).finally(off)
    if (signal.aborted) giveUp()
  })
}
