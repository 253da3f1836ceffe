import type { Logger } from '../base/logger.ts'
import type { RowChange } from './journal/rows.ts'

/** Called with the rows that a transaction has changed. */
export type RowListener = (changes: readonly RowChange[]) => void

/** Tells of rows that are on stable storage. Nothing that follows them can undo them. */
export class RowFeed {
  readonly #log: Logger
  readonly #listeners: RowListener[] = []

  constructor(log: Logger) {
    this.#log = log
  }

  follow(listener: RowListener): void {
    this.#listeners.push(listener)
  }

  tell(changes: readonly RowChange[]): void {
    if (changes.length === 0) return
    for (const listener of this.#listeners) {
      try {
        listener(changes)
      } catch (error) {
        this.#log.error({ err: error }, 'cannot process a change of the database')
      }
    }
  }
}
