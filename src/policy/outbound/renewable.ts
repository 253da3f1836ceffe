import type { Clock } from '../../base/clock.ts'

export interface RenewableOptions<T> {
  /** Rejects within seconds, when it cannot be read. */
  readonly read: () => Promise<T>
  /** How long it is used before it is read again. */
  readonly freshMs: number
  /** After a failure, and for who wants news, the source is left alone that long. */
  readonly pauseMs: number
  /** Why there is nothing during the pause after a failure. */
  readonly paused: () => Error
  readonly clock: Clock
}

/** Something that others publish, read when it is needed and kept for a while. */
export class Renewable<T> {
  readonly #options: RenewableOptions<T>
  #value: { readonly content: T; readonly readAt: number } | undefined
  #failedAt = Number.NEGATIVE_INFINITY
  #reading: Promise<T> | undefined

  constructor(options: RenewableOptions<T>) {
    this.#options = options
  }

  /** What may be as old as `freshMs`. An old one serves while the source cannot be read. */
  async current(): Promise<T> {
    const { clock, freshMs, pauseMs, paused } = this.#options
    const now = clock.monotonic()
    const value = this.#value
    if (value && now - value.readAt < freshMs) return value.content
    if (now - this.#failedAt < pauseMs) {
      if (value) return value.content
      throw paused()
    }
    try {
      return await this.#read()
    } catch (error) {
      this.#failedAt = clock.monotonic()
      if (this.#value) return this.#value.content
      throw error
    }
  }

  /** What is read just now, for who misses something; undefined when it was read lately. */
  async renewed(): Promise<T | undefined> {
    const { clock, pauseMs } = this.#options
    const triedAt = Math.max(this.#value?.readAt ?? Number.NEGATIVE_INFINITY, this.#failedAt)
    if (clock.monotonic() - triedAt < pauseMs) return undefined
    return this.#read().catch(() => {
      this.#failedAt = clock.monotonic()
      return undefined
    })
  }

  /** Everybody who waits shares one reading. */
  #read(): Promise<T> {
    this.#reading ??= this.#load().finally(() => {
      this.#reading = undefined
    })
    return this.#reading
  }

  async #load(): Promise<T> {
    const { read, clock } = this.#options
    const content = await read()
    this.#value = { content, readAt: clock.monotonic() }
    return content
  }
}
