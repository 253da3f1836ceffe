import { AsyncResource } from 'node:async_hooks'
import type { Logger } from '../../base/logger.ts'
import type { Connection } from '../sqlite.ts'
import { faultOf } from '../storage-state.ts'
import type { PreparedChange, RowJournal } from './row-journal.ts'
import type { RowRecorder } from './row-recorder.ts'
import { type RowChange, readRows, restoreRows } from './rows.ts'

/** More would hold up whoever does not write; a change takes less than a millisecond. */
const MOST = 100

interface GroupCommitOptions {
  /** Runs changes in one transaction, on stable storage when it returns; throws, and then none of it happened. */
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
 * Changes that come at the same time share a transaction, and so what it costs to be on disk; each has its
 * own outcome. They run in the order in which they came, each in the context of whoever asked for it.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions
  #waiting: Waiting[] = []
  #due: NodeJS.Immediate | undefined

  constructor(options: GroupCommitOptions) {
    this.#options = options
  }

  /** `change` may run twice: what it does beside changing rows has to wait until this resolves. */
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

  /** Commits at once what waits. */
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

  /** False when nothing of it happened: each is tried alone then, and has its own outcome. */
  #commitTogether(some: readonly Waiting[]): boolean {
    const { commit, connection } = this.#options
    const outcomes: (() => void)[] = []
    try {
      commit(
        () => {
          for (const { run, resolve, reject } of some) {
            try {
              // Within another transaction it is a savepoint, undone alone when it throws.
              const result = connection.transaction(run)()
              outcomes.push(() => resolve(result))
            } catch (error) {
              // Of the storage, or worse: all of it may be undone by now.
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
  /** Called when a change is committed that nobody is told of: only a new start brings all together. */
  readonly onTorn: (error: unknown) => void
  readonly log: Logger
}

/** What a commit has brought: what the change answered, and the rows that it changed. */
export interface Commit<T> {
  readonly result: T
  readonly changes: readonly RowChange[]
}

interface CommitOptions {
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
