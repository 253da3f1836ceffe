import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import type { AuditedChange, Concluded } from '../base/audit.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { Database, Statement } from './database.ts'
import type { Migration } from './migrations.ts'

/** Longer texts are truncated, because clients choose some of them. */
const MAX_TEXT = 255
/** Longer changes, as JSON text, are stored without values. */
const MAX_CHANGES = 2_048

export interface AuditBounds {
  /** Number of newest rows kept: for changes, and for refused changes. */
  readonly changes: number
  readonly refusals: number
}

/**
 * Returns the schema of the audit trail. Rows can only be added. The oldest are deleted beyond the bounds.
 * Refused changes have a separate bound, so that a caller without rights cannot displace the rows of real
 * changes.
 */
export function auditMigrations({ changes, refusals }: AuditBounds): readonly Migration[] {
  const bound = (row: 'NEW' | 'OLD') =>
    `CASE ${row}.is_refusal WHEN 0 THEN ${changes} ELSE ${refusals} END`
  const never = "BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
  return [
    {
      id: 'audit-1',
      trail: 'audit',
      sql: `CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        is_refusal INTEGER NOT NULL CHECK (is_refusal IN (0, 1)),
        number INTEGER NOT NULL,
        at INTEGER NOT NULL,
        actor_kind TEXT NOT NULL,
        actor_id TEXT,
        actor_name TEXT NOT NULL,
        client TEXT,
        action TEXT NOT NULL,
        target_id TEXT,
        target_name TEXT,
        changes TEXT,
        result TEXT NOT NULL,
        request_id TEXT,
        UNIQUE (is_refusal, number)
      ) STRICT;
      CREATE TABLE audit_intents (
        key TEXT PRIMARY KEY,
        at INTEGER NOT NULL,
        change TEXT NOT NULL
      ) STRICT, WITHOUT ROWID;
      CREATE TRIGGER audit_rows_stay_as_they_are BEFORE UPDATE ON audit ${never};
      CREATE TRIGGER audit_rows_stay BEFORE DELETE ON audit
      WHEN OLD.number > (SELECT max(number) FROM audit WHERE is_refusal = OLD.is_refusal) - ${bound('OLD')}
      ${never};
      CREATE TRIGGER audit_is_bounded AFTER INSERT ON audit BEGIN
        DELETE FROM audit WHERE is_refusal = NEW.is_refusal AND number <= NEW.number - ${bound('NEW')};
      END;`,
    },
  ]
}

/** A row of the trail. Times are milliseconds since the epoch. */
export interface AuditEntry extends AuditedChange {
  readonly id: number
  readonly at: number
  /** `ok`, `unknown`, or the error code of a refused change. */
  readonly result: string
}

export interface AuditQuery {
  readonly limit: number
  /** Only rows with a smaller id. */
  readonly beforeId?: number | undefined
  /** Id or name of the actor. */
  readonly actor?: string | undefined
  readonly action?: string | undefined
  /** Time range: `since` inclusive, `until` exclusive. */
  readonly since?: number | undefined
  readonly until?: number | undefined
}

interface Row {
  id: number
  at: number
  actor_kind: AuditEntry['actor']['kind']
  actor_id: string | null
  actor_name: string
  client: string | null
  action: string
  target_id: string | null
  target_name: string | null
  changes: string | null
  result: string
  request_id: string | null
}

/** A change that has written something and has not ended. */
export interface AuditIntent {
  readonly key: string
  readonly at: number
  readonly change: AuditedChange
}

const COLUMNS =
  'id, at, actor_kind, actor_id, actor_name, client, action, target_id, target_name, changes, result, request_id'

/** Rows of the trail, and intents of changes in progress. Call methods that write within a transaction. */
export class AuditTable {
  readonly #append: Statement<[Omit<Row, 'id'> & { is_refusal: number }]>
  readonly #page: Statement<[Record<string, string | number | null>], Row>
  readonly #get: Statement<[number], Row>
  readonly #find: Statement<[number, string, string | null, string | null]>
  readonly #keepIntent: Statement<[string, number, string]>
  readonly #dropIntent: Statement<[string]>
  readonly #intents: Statement<[], { key: string; at: number; change: string }>

  constructor(database: Database) {
    this.#append = database.prepare(
      `INSERT INTO audit (is_refusal, number, ${COLUMNS.slice('id, '.length)})
       VALUES (@is_refusal,
         coalesce((SELECT max(number) FROM audit WHERE is_refusal = @is_refusal), 0) + 1, @at,
         @actor_kind, @actor_id, @actor_name, @client, @action, @target_id, @target_name, @changes,
         @result, @request_id)`,
    )
    this.#page = database.prepare(
      `SELECT ${COLUMNS} FROM audit
       WHERE (@before IS NULL OR id < @before)
         AND (@actor IS NULL OR actor_id = @actor OR actor_name = @actor)
         AND (@action IS NULL OR action = @action)
         AND (@since IS NULL OR at >= @since)
         AND (@until IS NULL OR at < @until)
       ORDER BY id DESC LIMIT @limit`,
    )
    this.#get = database.prepare(`SELECT ${COLUMNS} FROM audit WHERE id = ?`)
    this.#find = database.prepare(
      `SELECT 1 FROM audit WHERE at = ? AND action = ? AND target_id IS ? AND request_id IS ?
       AND result = 'ok' LIMIT 1`,
    )
    this.#keepIntent = database.prepare(
      'INSERT OR IGNORE INTO audit_intents (key, at, change) VALUES (?, ?, ?)',
    )
    this.#dropIntent = database.prepare('DELETE FROM audit_intents WHERE key = ?')
    this.#intents = database.prepare('SELECT key, at, change FROM audit_intents ORDER BY at')
  }

  append(change: AuditedChange, at: number, result: string): void {
    const { actor, client, action, targetId, targetName, changes, requestId } = change
    const shown = changes === undefined ? null : JSON.stringify(changes)
    this.#append.run({
      is_refusal: result === 'ok' || result === 'unknown' ? 0 : 1,
      at,
      actor_kind: actor.kind,
      actor_id: actor.id,
      actor_name: actor.name.slice(0, MAX_TEXT),
      client,
      action: action.slice(0, MAX_TEXT),
      target_id: cut(targetId),
      target_name: cut(targetName),
      changes: shown === null || shown.length <= MAX_CHANGES ? shown : namesOf(changes),
      result,
      request_id: requestId ?? null,
    })
  }

  page({ limit, beforeId, actor, action, since, until }: AuditQuery): AuditEntry[] {
    const rows = this.#page.all({
      limit,
      before: beforeId ?? null,
      actor: actor ?? null,
      action: action ?? null,
      since: since ?? null,
      until: until ?? null,
    })
    return rows.map(toEntry)
  }

  get(id: number): AuditEntry | undefined {
    const row = this.#get.get(id)
    return row && toEntry(row)
  }

  /** Whether a change has a row with this time, which means that it was made. */
  has({ action, targetId, requestId }: AuditedChange, at: number): boolean {
    const cutAction = action.slice(0, MAX_TEXT)
    return this.#find.get(at, cutAction, cut(targetId), requestId ?? null) !== undefined
  }

  /** Does nothing if the intent exists. */
  keepIntent(key: string, at: number, change: AuditedChange): void {
    this.#keepIntent.run(key, at, JSON.stringify(change))
  }

  dropIntent(key: string): void {
    this.#dropIntent.run(key)
  }

  intents(): AuditIntent[] {
    return this.#intents.all().map((row) => ({ ...row, change: JSON.parse(row.change) }))
  }
}

const cut = (text: string | undefined) => text?.slice(0, MAX_TEXT) ?? null

/** Replaces values that are too long by the names of the changed fields. */
function namesOf(changes: AuditedChange['changes']): string {
  const names = Object.keys(changes ?? {}).slice(0, 50)
  return JSON.stringify(Object.fromEntries(names.map((name) => [name.slice(0, 30), 'changed'])))
}

function toEntry(row: Row): AuditEntry {
  const { id, at, client, action, result } = row
  return {
    id,
    at,
    actor: { kind: row.actor_kind, id: row.actor_id, name: row.actor_name },
    client,
    action,
    targetId: row.target_id ?? undefined,
    targetName: row.target_name ?? undefined,
    changes: row.changes === null ? undefined : JSON.parse(row.changes),
    result,
    requestId: row.request_id ?? undefined,
  }
}

/** Result of a change that was made. */
export const OK = 'ok'
/** Result of a change whose process ended before the outcome was recorded. Its writes exist. */
const UNKNOWN = 'unknown'
/** Longer than any change takes. */
const TAKE_OVER_MS = 60_000

export interface AuditTrailOptions {
  /** Opened with `auditMigrations()` among its migrations. */
  readonly database: Database
  readonly log: Logger
  readonly clock: Clock
  /** Node that makes the changes, if several processes share the trail. */
  readonly node?: string | undefined
}

interface Running {
  readonly key: string
  readonly change: AuditedChange
  readonly concluded: Concluded | undefined
  /** Row of the last attempt to commit the final write. */
  tried?: { readonly at: number; readonly change: AuditedChange } | undefined
  isOver: boolean
}

/**
 * Records each requested change: author, time, client, change and result. Each gets one row and one log line.
 *
 * INVARIANTS
 * - All writes of a running change carry its intent in the same transaction. A change without a trace cannot
 *   be committed.
 * - The row is on disk before `run` settles. If it cannot be written, the intent stays. The next start
 *   converts it to a row with the result `unknown`.
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

  /** Adds rows for changes that were in progress when the last process ended. */
  start(): Promise<void> {
    return this.#conclude(({ key }) => key.startsWith(this.#keyPrefix))
  }

  /** Like `start`, for the changes of lost nodes. */
  takeOver(isGone: (node: string) => boolean): Promise<void> {
    const now = this.#clock.now()
    // A node that is only disconnected may still add the row itself.
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
   * Runs a change and records its result.
   *
   * - `about` returns facts that are known only afterwards.
   * - `codeOf` returns the stable code of an error thrown by `work`.
   * - `concluded` replaces `about` for a change with a marked final write. That write includes the row.
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
      // Node 20 runs async hooks for the whole process until the storage is disabled.
      if (this.#runs === 0) this.#running.disable()
      if (outcome && !isOver) await this.#finish(outcome.change, outcome.result, running)
    }
  }

  /** Records an event without writes of its own: a change refused before it began, or a sign-in. */
  note(change: AuditedChange, result: string): Promise<void> {
    return this.#finish(change, result)
  }

  /** Records a change made in the current transaction. */
  record(change: AuditedChange): void {
    this.#database.write(() => this.#table.append(change, this.#clock.now(), OK))
    this.#tell(change, OK)
  }

  /** Returns the rows, newest first. */
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
        // The final write may have failed without a known result. If it was committed, its row is there too.
        const isNoted = tried !== undefined && this.#table.has(tried.change, tried.at)
        if (!isNoted) this.#table.append(change, this.#clock.now(), result)
        if (key !== undefined) this.#table.dropIntent(key)
      }
      // A change that succeeded on a full disk has freed space.
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
