/** Thrown when something took longer than it may. */
export class DeadlineError extends Error {
  override readonly name = 'DeadlineError'
  readonly ms: number

  constructor(what: string, ms: number) {
    super(`${what} took longer than ${ms} ms`)
    this.ms = ms
  }
}

/**
 * Settles like `promise`, or rejects with a DeadlineError after `ms`.
 * The work itself is not stopped: a late rejection is swallowed, a late value is dropped.
 */
export function withDeadline<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new DeadlineError(what, ms)), ms)
    promise.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/**
 * Runs work with a signal that is aborted after `ms` with a TimeoutError, as `AbortSignal.timeout`
 * does, or with `stop`. `AbortSignal.any` of the two is no way to have that: Node 20 lets go of a
 * timeout that only a combined signal holds, and then it never fires.
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
  stop.addEventListener('abort', onStop, { once: true })
  if (stop.aborted) onStop()
  try {
    return await work(either.signal)
  } finally {
    clearTimeout(timer)
    stop.removeEventListener('abort', onStop)
  }
}

/**
 * Settles like `promise`, or rejects with the signal's reason when it is aborted first.
 * The work itself is not stopped: a late value or rejection is dropped.
 */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
  })
}
