import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'

/** `full` and `unwritable` pass; `damaged` needs a new start, which heals. */
export type StorageFault = 'full' | 'unwritable' | 'damaged'

const RECHECK_MS = 10_000

export interface StorageStateOptions {
  readonly log: Logger
  readonly clock: Clock
  /** Asked again and again while there is a fault: true when it is over. Never throws. */
  readonly isOver: (fault: StorageFault) => boolean
}

/** Whether the storage takes changes: a fault stays until a recheck finds that it is over. */
export class StorageState {
  readonly #log: Logger
  readonly #clock: Clock
  readonly #isOver: (fault: StorageFault) => boolean
  readonly #stopped = new AbortController()
  #fault: StorageFault | undefined

  constructor({ log, clock, isOver }: StorageStateOptions) {
    this.#log = log
    this.#clock = clock
    this.#isOver = isOver
  }

  get fault(): StorageFault | undefined {
    return this.#fault
  }

  fail(fault: StorageFault, error?: unknown): void {
    if (this.#fault === fault) return
    const isWatched = this.#fault !== undefined
    this.#fault = fault
    this.#log.error({ fault, err: error }, 'the storage rejects changes')
    if (!isWatched) void this.#watch()
  }

  stop(): void {
    this.#stopped.abort()
  }

  async #watch(): Promise<void> {
    do {
      try {
        await this.#clock.sleep(RECHECK_MS, this.#stopped.signal)
      } catch {
        return
      }
    } while (this.#fault && !this.#isOver(this.#fault))
    this.#fault = undefined
    this.#log.info('the storage works again')
  }
}
