import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import type { AuditedChange, Concluded } from '../base/audit.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { type AuditEntry, type AuditIntent, type AuditQuery, AuditTable } from './audit-table.ts'
import type { Database } from './database.ts'

export type { AuditEntry, AuditQuery } from './audit-table.ts'

/** The result of a change that took place. */
export const OK = 'ok'
/** The result of one whose outcome nobody lived to note: what it wrote is there. */
const UNKNOWN = 'unknown'
/** Longer than any change takes. */
const TAKE_OVER_MS = 60_000

export interface AuditTrailOptions {
  /** Opened with `auditMigrations()` among its migrations. */
  readonly database: Database
  readonly log: Logger
  readonly clock: Clock
  /** Whose changes these are, where several processes have the trail in common. */
  readonly node?: string | undefined
}

interface Running {
  readonly key: string
  readonly change: AuditedChange
  readonly concluded: Concluded | undefined
  /** The row that its last write takes along, as it was tried last. */
  tried?: { readonly at: number; readonly change: AuditedChange } | undefined
  isOver: boolean
}

/**
 * Who changed what, when, from where, and what became of it: one row for each change that was asked
 * for, and one line in the log.
 *
 * INVARIANTS
 * - What a running change writes, whoever writes it, carries its intent in the same transaction. A
 *   change without a trace cannot be committed.
 * - The row is on disk before `run` settles. When it cannot be written, the intent stays, and the
 *   next start makes a row of it whose result is `unknown`.
 */
export class AuditTrail {
  readonly #database: Database
  readonly #table: AuditTable
  readonly #log: Logger
  readonly #clock: Clock
  readonly #keyPrefix: string
  readonly #running = new AsyncLocalStorage<Running>()
  #runs = 0

  constructor({ database, log, clock, node }: AuditTrailOptions) {
    this.#keyPrefix = node === undefined ? '' : `${node} `
    this.#database = database
    this.#table = new AuditTable(database)
    this.#log = log
    this.#clock = clock
    database.onWrite((concludes) => this.#noteWrite(concludes))
  }

  /** Makes rows of the changes that were under way when the last process ended. */
  start(): Promise<void> {
    return this.#conclude(({ key }) => key.startsWith(this.#keyPrefix))
  }

  /** The same for the changes of nodes that are gone. */
  takeOver(isGone: (node: string) => boolean): Promise<void> {
    const now = this.#clock.now()
    // A node that is merely cut off may be about to make a row by itself.
    return this.#conclude(
      ({ key, at }) => now - at >= TAKE_OVER_MS && isGone(key.slice(0, key.lastIndexOf(' '))),
    )
  }

  async #conclude(isLeft: (intent: AuditIntent) => boolean): Promise<void> {
    const find = () => this.#table.intents().filter(isLeft)
    if (find().length === 0) return
    let left: AuditIntent[] = []
    try {
      await this.#database.change(() => {
        left = find()
        for (const { key, at, change } of left) {
          this.#table.append(change, at, UNKNOWN)
          this.#table.dropIntent(key)
        }
      })
    } catch (error) {
      this.#log.error(
        { err: error },
        'changes of the last run cannot be added to the audit trail yet',
      )
      return
    }
    for (const { change } of left) this.#tell(change, UNKNOWN)
  }

  /**
   * Runs a change and notes what became of it. `about` is asked afterwards for what is only known
   * then; `codeOf` gives the stable code of what `work` throws. `concluded` is `about` for a change
   * whose last write says that it is the last: that one takes the row along.
   */
  async run<T>(
    change: AuditedChange,
    work: () => T | Promise<T>,
    {
      about,
      codeOf,
      concluded,
    }: {
      readonly about: (result: T) => Partial<AuditedChange>
      readonly codeOf: (error: unknown) => string
      readonly concluded?: Concluded | undefined
    },
  ): Promise<T> {
    const key = `${this.#keyPrefix}${randomUUID()}`
    const running: Running = { key, change, concluded, isOver: false }
    let outcome: { change: AuditedChange; result: string } | undefined
    this.#runs += 1
    try {
      const result = await this.#running.run(running, work)
      outcome = { change: { ...change, ...about(result) }, result: OK }
      return result
    } catch (error) {
      outcome = { change, result: codeOf(error) }
      throw error
    } finally {
      const { isOver } = running
      running.isOver = true
      this.#runs -= 1
      // Node 20 calls hooks for whatever is asynchronous, in the whole process, until it is told.
      if (this.#runs === 0) this.#running.disable()
      if (outcome && !isOver) await this.#finish(outcome.change, outcome.result, running)
    }
  }

  /** Notes what writes nothing itself: a change that was refused before it was tried, a sign-in. */
  note(change: AuditedChange, result: string): Promise<void> {
    return this.#finish(change, result)
  }

  /** Notes a change that takes place in the transaction that is open now. */
  record(change: AuditedChange): void {
    this.#database.write(() => this.#table.append(change, this.#clock.now(), OK))
    this.#tell(change, OK)
  }

  /** Newest first. */
  page(query: AuditQuery): AuditEntry[] {
    return this.#table.page(query)
  }

  get(id: number): AuditEntry | undefined {
    return this.#table.get(id)
  }

  #noteWrite(concludes: string | undefined): (() => void) | undefined {
    const running = this.#running.getStore()
    if (!running || running.isOver) return undefined
    const { key, change, concluded } = running
    if (concludes === undefined || !concluded) {
      this.#table.keepIntent(key, this.#clock.now(), change)
      return undefined
    }
    const at = this.#clock.now()
    const told = [concluded(concludes)].flat().map((about) => ({ ...change, ...about }))
    for (const one of told) this.#table.append(one, at, OK)
    const [first] = told
    running.tried = first && { at, change: first }
    this.#table.dropIntent(key)
    return () => {
      running.isOver = true
      for (const one of told) this.#tell(one, OK)
    }
  }

  async #finish(change: AuditedChange, result: string, running?: Running): Promise<void> {
    const { key, tried } = running ?? {}
    try {
      const append = () => {
        // Nobody knew whether it was made: where it was, its row came with it.
        const isNoted = tried !== undefined && this.#table.has(tried.change, tried.at)
        if (!isNoted) this.#table.append(change, this.#clock.now(), result)
        if (key !== undefined) this.#table.dropIntent(key)
      }
      // What took place on a full disk has made room.
      const hasChanged = key !== undefined && result === OK
      const options = { mayUseReserve: hasChanged, withoutBackup: !hasChanged }
      await this.#database.change(append, options)
    } catch (error) {
      this.#log.error({ err: error }, 'cannot write a change to the audit trail')
    }
    this.#tell(change, result)
  }

  #tell({ actor, client, action, ...change }: AuditedChange, result: string): void {
    const { targetId, targetName, requestId } = change
    this.#log.info(
      {
        action,
        result,
        actor,
        client,
        target: { id: targetId, name: targetName },
        request_id: requestId,
      },
      'audit',
    )
  }
}
