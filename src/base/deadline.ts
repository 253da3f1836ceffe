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
