import type { AuditedChange } from '../base/audit.ts'
import type { Database, Statement } from './database.ts'
import type { Migration } from './migrations.ts'

/** Longer texts are cut: clients choose some of them. */
const MAX_TEXT = 255
const MAX_CHANGES = 2_048

export interface AuditBounds {
  /** How many of the newest rows stay: of changes, and of those that were refused. */
  readonly changes: number
  readonly refusals: number
}

/**
 * The schema of the trail. Rows can be added alone; the oldest go when there are too many. Refusals
 * have a bound of their own: whoever may change nothing cannot push out what others did.
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

/** One row. Times are milliseconds since the epoch. */
export interface AuditEntry extends AuditedChange {
  readonly id: number
  readonly at: number
  /** `ok`, `unknown`, or the code that it was refused with. */
  readonly result: string
}

export interface AuditQuery {
  readonly limit: number
  /** Only rows before this one. */
  readonly beforeId?: number | undefined
  /** Id or name of who did it. */
  readonly actor?: string | undefined
  readonly action?: string | undefined
  /** From this time on, and before that one. */
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

/** A change that has written something and is not over. */
export interface AuditIntent {
  readonly key: string
  readonly at: number
  readonly change: AuditedChange
}

const COLUMNS =
  'id, at, actor_kind, actor_id, actor_name, client, action, target_id, target_name, changes, result, request_id'

/** The rows of the trail and the intents of changes under way. Writes belong into a transaction. */
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

  /** Whether a change has its row of that time: it was made. */
  has({ action, targetId, requestId }: AuditedChange, at: number): boolean {
    const cutAction = action.slice(0, MAX_TEXT)
    return this.#find.get(at, cutAction, cut(targetId), requestId ?? null) !== undefined
  }

  /** Does nothing when it is there already. */
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

/** What is left of changes that are too long to be kept with their values. */
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
