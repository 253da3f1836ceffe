import { AsyncResource } from 'node:async_hooks'
import type { Connection } from '../sqlite.ts'
import { faultOf } from '../storage-error.ts'

/** More would hold up whoever does not write; a change takes less than a millisecond. */
const MOST = 100

export interface GroupCommitOptions {
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
