import type { Clock } from './clock.ts'

/** A promise with its `resolve` and `reject` (Node 20 has no `Promise.withResolvers`). */
export interface Deferred<T> {
  readonly promise: Promise<T>
  readonly resolve: (value: T) => void
  readonly reject: (reason: unknown) => void
}

export function createDeferred<T = void>(): Deferred<T> {
  let resolve: (value: T) => void = () => {}
  let reject: (reason: unknown) => void = () => {}
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  return { promise, resolve, reject }
}

/** Wakes a loop that waits for changes. A `set()` with no waiter is kept for the next `wait()`. */
export class AutoResetEvent {
  #hasRung = false
  #wake: (() => void) | undefined

  set(): void {
    this.#hasRung = true
    this.#wake?.()
  }

  /** Resolves at the next `set()`, or after `ms` if given. */
  async wait(clock?: Clock, ms?: number): Promise<void> {
    if (!this.#hasRung) await (clock && ms !== undefined ? this.#sleep(clock, ms) : this.#listen())
    this.#hasRung = false
  }

  async #sleep(clock: Clock, ms: number): Promise<void> {
    const woken = new AbortController()
    await Promise.race([this.#listen(), clock.sleep(ms, woken.signal).catch(() => {})])
    // An explicit reason, because the default one costs a stack trace.
    woken.abort('woken')
  }

  #listen(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined
        resolve()
      }
    })
  }
}
