import { AsyncResource } from 'node:async_hooks'
import type { Logger } from '../../base/logger.ts'
import type { Connection } from '../sqlite.ts'
import { faultOf } from '../storage-state.ts'
import type { PreparedChange, RowJournal } from './row-journal.ts'
import type { RowRecorder } from './row-recorder.ts'
import { type RowChange, readRows, restoreRows } from './rows.ts'

/**
 * Maximum number of changes per transaction. More would block other work, at less than a millisecond per
 * change.
 */
const MOST = 100

interface GroupCommitOptions {
  /**
   * Runs changes in one transaction, which is on stable storage on return. If it throws, nothing is changed.
   */
  readonly commit: <T>(changes: () => T, options: { readonly withoutBackup: boolean }) => T
  readonly connection: Connection
}

interface Waiting {
  readonly run: () => unknown
  readonly withoutBackup: boolean
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

/**
 * Groups simultaneous changes into one transaction to share the cost of the disk write. Each change has a
 * separate outcome. They run in order of arrival, each in the context of its caller.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions
  #waiting: Waiting[] = []
  #due: NodeJS.Immediate | undefined

  constructor(options: GroupCommitOptions) {
    this.#options = options
  }

  /**
   * Adds a change to the next transaction. `change` may run twice. Side effects other than changed rows have
   * to wait until this resolves.
   */
  add<T>(change: () => T, withoutBackup: boolean): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({
        run: AsyncResource.bind(change),
        withoutBackup,
        resolve: resolve as Waiting['resolve'],
        reject,
      })
      if (this.#waiting.length >= MOST) this.flush()
      else this.#due ??= setImmediate(() => this.flush())
    })
  }

  /** Commits the waiting changes at once. */
  flush(): void {
    clearImmediate(this.#due)
    this.#due = undefined
    const some = this.#waiting
    this.#waiting = []
    if (some.length > 1 && this.#commitTogether(some)) return
    for (const { run, withoutBackup, resolve, reject } of some) {
      try {
        resolve(this.#options.commit(run, { withoutBackup }))
      } catch (error) {
        reject(error)
      }
    }
  }

  /** Returns false if nothing was committed. Each change is then tried alone and gets its own outcome. */
  #commitTogether(some: readonly Waiting[]): boolean {
    const { commit, connection } = this.#options
    const outcomes: (() => void)[] = []
    try {
      commit(
        () => {
          for (const { run, resolve, reject } of some) {
            try {
              // Within another transaction, this is a savepoint. An error rolls back only this change.
              const result = connection.transaction(run)()
              outcomes.push(() => resolve(result))
            } catch (error) {
              // A storage error, or the whole transaction was rolled back.
              if (faultOf(error) !== undefined || !connection.inTransaction) throw error
              outcomes.push(() => reject(error))
            }
          }
        },
        { withoutBackup: some.every(({ withoutBackup }) => withoutBackup) },
      )
    } catch {
      return false
    }
    for (const settle of outcomes) settle()
    return true
  }
}

interface CommitterOptions {
  readonly connection: Connection
  readonly journal: RowJournal
  readonly recorder: RowRecorder
  /** Called if a change is committed but was reported as failed. Only a restart makes both consistent. */
  readonly onTorn: (error: unknown) => void
  readonly log: Logger
}

/** Result of a commit: the return value of the change and the changed rows. */
export interface Commit<T> {
  readonly result: T
  readonly changes: readonly RowChange[]
}

interface CommitOptions {
  readonly mayUseReserve?: boolean
  readonly isLastTry?: boolean
}

/**
 * Commits a change to a database and its journal together. The order: reserve room in the journal, commit,
 * write the line. When `commit` returns, both are on stable storage. When it throws, neither has the change.
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
   * Reverts a change that is committed but not in the journal. The number stays, and the next change starts a
   * new journal.
   */
  #undo(changes: readonly RowChange[]): void {
    const connection = this.#connection
    try {
      // The previous rows are restored exactly. No foreign key action may change more rows.
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
