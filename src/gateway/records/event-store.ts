import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'

/** So many of the newest events stay, and a few more. */
export const MAX_EVENTS = 10_000
/** Limit of one bot user's events: a flood removes only events of the same account. */
export const MAX_EVENTS_PER_ACCOUNT = 2_000

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
      DELETE FROM events WHERE sequence <= NEW.sequence - ${MAX_EVENTS};
    END`,
  },
  {
    id: 'events-2',
    sql: `CREATE INDEX events_by_owner ON events (owner_id, sequence);
    DROP TRIGGER events_are_bounded;
    CREATE TRIGGER events_are_bounded AFTER INSERT ON events WHEN NEW.sequence % 100 = 0 BEGIN
      DELETE FROM events WHERE sequence <=
        (SELECT sequence FROM events ORDER BY sequence DESC LIMIT 1 OFFSET ${MAX_EVENTS});
    END;
    CREATE TRIGGER events_of_an_account_are_bounded AFTER INSERT ON events
      WHEN NEW.owner_id IS NOT NULL
    BEGIN
      DELETE FROM events WHERE owner_id = NEW.owner_id AND sequence <=
        (SELECT sequence FROM events WHERE owner_id = NEW.owner_id
         ORDER BY sequence DESC LIMIT 1 OFFSET ${MAX_EVENTS_PER_ACCOUNT});
    END`,
  },
  {
    id: 'events-3',
    // Written by every removal. Earlier removals are unknown.
    sql: `CREATE TABLE removed_events (
      owner_id TEXT PRIMARY KEY REFERENCES bot_users (id) ON DELETE CASCADE,
      sequence INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER events_removed AFTER DELETE ON events
      WHEN EXISTS (SELECT 1 FROM bot_users WHERE id = OLD.owner_id)
    BEGIN
      INSERT INTO removed_events VALUES (OLD.owner_id, OLD.sequence)
        ON CONFLICT (owner_id) DO UPDATE SET sequence = max(sequence, excluded.sequence);
    END`,
  },
]

/** Types of events. */
export const EVENT_TYPES = [
  'device.online',
  'device.offline',
  'device.refused',
  'device.duplicate',
  'certificate.expiring',
  'certificate.failed',
  'storage.healed',
  'gateway.degraded',
  'gateway.recovered',
] as const
export type EventType = (typeof EVENT_TYPES)[number]

/** Something that has happened. */
export interface NewEvent {
  /** Milliseconds since the epoch. */
  readonly at: number
  readonly type: EventType
  /** The account that it is about; null for that of the gateway's owner. */
  readonly ownerId: string | null
  /** Details of the event, without secrets. */
  readonly details: Readonly<Record<string, unknown>>
}

/**
 * The same with its place among all: counts up by one from 1, over restarts. Where the log has a gap,
 * events have left it.
 */
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
  readonly #removedOf: Statement<[string], number>
  readonly #forgetSequence: Statement<[]>
  readonly #skipTo: Statement<[number]>
  readonly #firstSince: Statement<[number], number>
  readonly #certificateEvent: Statement<[string, string], number>
  readonly #sameSubject: Statement<[string | null, string, number, number, string], number>
  readonly #lastOfGateways: Statement<[], EventRow>
  /** Highest sequence that was delivered, even if the event is no longer stored. */
  #told = 0

  constructor(database: Database) {
    this.#database = database
    const select = `SELECT ${COLUMNS} FROM events`
    this.#append = database.prepare(
      'INSERT INTO events (at, type, owner_id, details) VALUES (?, ?, ?, ?)',
    )
    this.#after = database.prepare(`${select} WHERE sequence > ? ORDER BY sequence LIMIT ?`)
    this.#before = database.prepare(`${select} WHERE sequence < ? ORDER BY sequence DESC LIMIT ?`)
    this.#get = database.prepare(`${select} WHERE sequence = ?`)
    this.#newest = pluck(database, "SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    this.#removedOf = pluck(database, 'SELECT sequence FROM removed_events WHERE owner_id = ?')
    this.#skipTo = database.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)")
    this.#forgetSequence = database.prepare("DELETE FROM sqlite_sequence WHERE name = 'events'")
    this.#firstSince = pluck(database, 'SELECT min(sequence) FROM events WHERE at >= ?')
    const same = (path: string) =>
      `json_extract(events.details, '${path}') IS json_extract(told.details, '${path}')`
    this.#certificateEvent = database
      .prepare<[string, string], number>(
        `WITH told (type, details) AS (VALUES (?, ?))
         SELECT 1 FROM events JOIN told USING (type)
         WHERE ${['$.domain.id', '$.since', '$.ends_at'].map(same).join(' AND ')} LIMIT 1`,
      )
      .pluck()
    const subject = (row: string) => {
      const paths = ['$.claimed_device_id', '$.device.id', '$.ip']
      return `coalesce(${paths.map((path) => `json_extract(${row}.details, '${path}')`).join(', ')})`
    }
    this.#sameSubject = database
      .prepare<[string | null, string, number, number, string], number>(
        `WITH told (owner_id, type, since, at, details) AS (VALUES (?, ?, ?, ?, ?))
         SELECT 1 FROM events JOIN told USING (type)
         WHERE events.owner_id IS told.owner_id AND events.at BETWEEN told.since AND told.at
           AND ${subject('events')} = ${subject('told')} LIMIT 1`,
      )
      .pluck()
    this.#lastOfGateways = database.prepare(
      `${select} WHERE sequence IN (SELECT max(sequence) FROM events
         WHERE type IN ('gateway.degraded', 'gateway.recovered')
         GROUP BY json_extract(details, '$.node.id'))`,
    )
    database.onRows((changes) => {
      if (!changes.some(({ table, before }) => table === 'events' && !before)) return
      for (const listener of this.#listeners) listener()
    })
  }

  /** The sequence of the newest that there ever was; 0 before the first. */
  get newest(): number {
    return Math.max(this.#newest.get() ?? 0, this.#told)
  }

  /** New events get higher sequences: a damaged database may have lost delivered events. */
  goOnBehind(sequence: number): void {
    this.#told = sequence
  }

  /** Sequence of an account's newest event that was removed; 0 if there is none. */
  newestRemovedOf(ownerId: string): number {
    return this.#removedOf.get(ownerId) ?? 0
  }

  /** Goes with the change that is open. */
  append({ at, type, ownerId, details }: NewEvent): void {
    this.#database.join(() => {
      if ((this.#newest.get() ?? 0) < this.#told) {
        this.#forgetSequence.run()
        this.#skipTo.run(this.#told)
      }
      this.#append.run(at, type, ownerId, JSON.stringify(details))
    })
  }

  /** Events after `sequence`, oldest first. */
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

  /** Sequence of the first event since a time; undefined if there is none. */
  firstSince(at: number): number | undefined {
    return this.#firstSince.get(at) ?? undefined
  }

  /** Whether it was told of this trouble: of that domain, since then, before that end. */
  hasCertificateEvent(type: EventType, details: Readonly<Record<string, unknown>>): boolean {
    return this.#certificateEvent.get(type, JSON.stringify(details)) !== undefined
  }

  /**
   * Whether the log has an event of the same account, type and subject from the last `withinMs`. The subject is
   * the claimed device id, else the device, else the address.
   */
  hasSame({ at, type, ownerId, details }: NewEvent, withinMs: number): boolean {
    const told = JSON.stringify(details)
    return this.#sameSubject.get(ownerId, type, at - withinMs, at, told) !== undefined
  }

  /** The last problem, or end of a problem, of each gateway in the log. */
  lastOfGateways(): GatewayEvent[] {
    return this.#lastOfGateways.all().map(toEvent)
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
