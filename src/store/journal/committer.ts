import type { Logger } from '../../base/logger.ts'
import type { Connection } from '../sqlite.ts'
import type { PreparedChange, RowJournal } from './row-journal.ts'
import type { RowRecorder } from './row-recorder.ts'
import { type RowChange, readRows, restoreRows } from './rows.ts'

export interface CommitterOptions {
  readonly connection: Connection
  readonly journal: RowJournal
  readonly recorder: RowRecorder
  /** Called when a change is committed that nobody is told of: only a new start brings all together. */
  readonly onTorn: (error: unknown) => void
  readonly log: Logger
}

/** What a commit has brought: what the change answered, and the rows that it changed. */
export interface Commit<T> {
  readonly result: T
  readonly changes: readonly RowChange[]
}

export interface CommitOptions {
  readonly mayUseReserve?: boolean
  readonly isLastTry?: boolean
}

/**
 * Changes a database and its journal as one: room in the journal first, then the commit, then the line.
 * When `commit` returns, both are on stable storage; when it throws, neither has the change.
 */
export class Committer {
  readonly #connection: Connection
  readonly #journal: RowJournal
  readonly #recorder: RowRecorder
  readonly #onTorn: (error: unknown) => void
  readonly #log: Logger

  constructor({ connection, journal, recorder, onTorn, log }: CommitterOptions) {
    this.#connection = connection
    this.#journal = journal
    this.#recorder = recorder
    this.#onTorn = onTorn
    this.#log = log
  }

  commit<T>(change: () => T, options: CommitOptions = {}): Commit<T> {
    let changes: readonly RowChange[] = []
    let prepared: PreparedChange | undefined
    const transaction = this.#connection.transaction(() => {
      this.#recorder.clear()
      const result = change()
      changes = this.#recorder.changes()
      if (changes.length > 0) prepared = this.#prepare(changes, options)
      return result
    })
    let result: T
    try {
      result = transaction.immediate()
    } catch (error) {
      prepared?.cancel()
      throw error
    }
    try {
      prepared?.finish()
    } catch (error) {
      this.#undo(changes)
      throw error
    }
    return { result, changes }
  }

  #prepare(changes: readonly RowChange[], options: CommitOptions): PreparedChange {
    const n = (this.#connection.pragma('user_version', { simple: true }) as number) + 1
    this.#connection.pragma(`user_version = ${n}`)
    const { trails } = this.#journal
    const rows = () => readRows(this.#connection, (table) => !trails.has(table))
    return this.#journal.prepare({ n, changes, rows, ...options })
  }

  /**
   * Takes back what is committed and not in the journal. The number stays, and the journal begins anew
   * with the next change.
   */
  #undo(changes: readonly RowChange[]): void {
    const connection = this.#connection
    try {
      // What is put back is all that there was: nothing may follow from it.
      connection.pragma('foreign_keys = OFF')
      connection.transaction(() => restoreRows(connection, changes)).immediate()
    } catch (error) {
      this.#log.error({ err: error }, 'cannot roll back a refused change')
      this.#onTorn(error)
    } finally {
      connection.pragma('foreign_keys = ON')
    }
  }
}
