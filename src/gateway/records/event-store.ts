import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'

/** So many of the newest events stay. */
export const MOST_EVENTS = 10_000

export const EVENT_MIGRATIONS: readonly Migration[] = [
  {
    id: 'events-1',
    trail: 'events',
    sql: `CREATE TABLE events (
      sequence INTEGER PRIMARY KEY AUTOINCREMENT,
      at INTEGER NOT NULL,
      type TEXT NOT NULL,
      owner_id TEXT,
      details TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER events_are_bounded AFTER INSERT ON events BEGIN
      DELETE FROM events WHERE sequence <= NEW.sequence - ${MOST_EVENTS};
    END`,
  },
]

/** What the gateway tells others of by itself. */
export const EVENT_TYPES = [
  'device.online',
  'device.offline',
  'device.refused',
  'device.duplicate',
  'certificate.expiring',
  'certificate.failed',
  'storage.healed',
] as const
export type EventType = (typeof EVENT_TYPES)[number]

/** Something that has happened. */
export interface NewEvent {
  /** Milliseconds since the epoch. */
  readonly at: number
  readonly type: EventType
  /** The account that it is about; null for that of the gateway's owner. */
  readonly ownerId: string | null
  /** What is told of it; no secrets. */
  readonly details: Readonly<Record<string, unknown>>
}

/** The same with its place among all: from 1, without a gap, over restarts. */
export interface GatewayEvent extends NewEvent {
  readonly sequence: number
}

interface EventRow {
  sequence: number
  at: number
  type: EventType
  owner_id: string | null
  details: string
}

const COLUMNS = 'sequence, at, type, owner_id, details'

/** The newest events in their order. Rows are added and never changed. */
export class EventStore {
  readonly #database: Database
  readonly #listeners = new Set<() => void>()
  readonly #append: Statement<[number, string, string | null, string]>
  readonly #after: Statement<[number, number], EventRow>
  readonly #before: Statement<[number, number], EventRow>
  readonly #get: Statement<[number], EventRow>
  readonly #newest: Statement<[], number>
  readonly #oldest: Statement<[], number>
  readonly #firstSince: Statement<[number], number>
  #hasNews = false

  constructor(database: Database) {
    this.#database = database
    const select = `SELECT ${COLUMNS} FROM events`
    this.#append = database.prepare(
      'INSERT INTO events (at, type, owner_id, details) VALUES (?, ?, ?, ?)',
    )
    this.#after = database.prepare(`${select} WHERE sequence > ? ORDER BY sequence LIMIT ?`)
    this.#before = database.prepare(`${select} WHERE sequence < ? ORDER BY sequence DESC LIMIT ?`)
    this.#get = database.prepare(`${select} WHERE sequence = ?`)
    this.#newest = pluck(database, 'SELECT coalesce(max(sequence), 0) FROM events')
    this.#oldest = pluck(database, 'SELECT coalesce(min(sequence), 0) FROM events')
    this.#firstSince = pluck(database, 'SELECT min(sequence) FROM events WHERE at >= ?')
    database.onWrite(() => {
      if (!this.#hasNews) return undefined
      this.#hasNews = false
      return () => {
        for (const listener of this.#listeners) listener()
      }
    })
  }

  /** The sequence of the newest; 0 before the first. */
  get newest(): number {
    return this.#newest.get() ?? 0
  }

  /** The sequence of the oldest that is kept; 0 before the first. */
  get oldest(): number {
    return this.#oldest.get() ?? 0
  }

  /** Goes with the transaction that is open, or makes one. */
  append({ at, type, ownerId, details }: NewEvent): void {
    this.#hasNews = true
    this.#database.write(() => this.#append.run(at, type, ownerId, JSON.stringify(details)))
  }

  /** Oldest first, those behind `sequence`. */
  after(sequence: number, limit: number): GatewayEvent[] {
    return this.#after.all(sequence, limit).map(toEvent)
  }

  /** Newest first. */
  page({ limit, before }: { limit: number; before?: number | undefined }): GatewayEvent[] {
    return this.#before.all(before ?? Number.MAX_SAFE_INTEGER, limit).map(toEvent)
  }

  get(sequence: number): GatewayEvent | undefined {
    const row = this.#get.get(sequence)
    return row && toEvent(row)
  }

  /** The sequence of the first event from a time on; undefined when there is none. */
  firstSince(at: number): number | undefined {
    return this.#firstSince.get(at) ?? undefined
  }

  /** Calls `listener` when events are on stable storage; returns how to stop that. */
  onAppend(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
}

function pluck<Parameters extends unknown[]>(
  database: Database,
  sql: string,
): Statement<Parameters, number> {
  return database.prepare<Parameters, number>(sql).pluck()
}

function toEvent({ owner_id, details, ...row }: EventRow): GatewayEvent {
  return { ...row, ownerId: owner_id, details: JSON.parse(details) }
}
