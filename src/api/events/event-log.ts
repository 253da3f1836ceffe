import type { Clock } from '../../base/clock.ts'
import { TokenBuckets } from '../../base/limit/token-buckets.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'

/** So many of the newest events stay. */
export const MOST_EVENTS = 1_000
/** Ids that no other process gives out; they are put by on disk all at once. */
const RESERVED = 1_000
/** Events are told at once, and written together this much later … */
const WRITE_MS = 1_000
/** … or later when that was often: storage on devices wears out. */
const WRITES = { capacity: 20, refillPerS: 1 / 30, maxKeys: 1 }
/** The second copy of the database has the newest events only as far back as its newest backup. */
const BACKUP_EVERY = 200

export const AGENT_EVENT_MIGRATIONS: readonly Migration[] = [
  {
    id: 'events-1',
    trail: 'events',
    sql: `CREATE TABLE events (
      id INTEGER PRIMARY KEY,
      at INTEGER NOT NULL,
      type TEXT NOT NULL,
      data TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER events_are_bounded AFTER INSERT ON events BEGIN
      DELETE FROM events
      WHERE id <= (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET ${MOST_EVENTS});
    END;
    CREATE TABLE event_ids (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      reserved INTEGER NOT NULL
    ) STRICT`,
  },
]

/** What events can be about. */
export const AGENT_EVENT_TYPES = [
  'agent.started',
  'tunnel.created',
  'tunnel.changed',
  'tunnel.state',
  'tunnel.deleted',
  'link.state',
  'storage.state',
  'policy.default',
] as const
export type AgentEventType = (typeof AGENT_EVENT_TYPES)[number]

/** A change, and what is true since. */
export interface AgentChange {
  readonly type: AgentEventType
  readonly data: Readonly<Record<string, unknown>>
}

/** The same as it is told. */
export interface AgentEvent extends AgentChange {
  /** Counts up, over restarts; not always by one. */
  readonly id: number
  /** Milliseconds since the epoch. */
  readonly at: number
}

interface EventRow {
  id: number
  at: number
  type: AgentEventType
  data: string
}

/**
 * The newest events of the agent, in memory and on disk.
 *
 * INVARIANT: an id is told once. It is put by on disk before, if the disk takes anything: after a kill
 * or a power cut, in which the last seconds of events may be lost, ids go on behind it.
 */
export class EventLog {
  readonly #database: Database
  readonly #clock: Clock
  readonly #log: Logger
  readonly #insert: Statement<[EventRow]>
  readonly #reserve: Statement<[number]>
  readonly #pace: TokenBuckets
  readonly #stopping = new AbortController()
  /** Oldest first. */
  readonly #events: AgentEvent[]
  #unwritten: AgentEvent[] = []
  #next: number
  #reserved: number
  #isWriting = false
  #writtenSinceBackup = 0

  constructor({ database, clock, log }: { database: Database; clock: Clock; log: Logger }) {
    this.#database = database
    this.#clock = clock
    this.#log = log
    this.#insert = database.prepare(
      'INSERT INTO events (id, at, type, data) VALUES (@id, @at, @type, @data)',
    )
    this.#reserve = database.prepare(
      'INSERT INTO event_ids (id, reserved) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET reserved = excluded.reserved',
    )
    this.#pace = new TokenBuckets({ ...WRITES, clock })
    const rows = database
      .prepare<[number], EventRow>('SELECT * FROM events ORDER BY id DESC LIMIT ?')
      .all(MOST_EVENTS)
    this.#events = rows.reverse().map((row) => ({ ...row, data: JSON.parse(row.data) }))
    const put = database.prepare<[], number>('SELECT reserved FROM event_ids').pluck().get()
    this.#reserved = Math.max(put ?? 0, this.#events.at(-1)?.id ?? 0)
    this.#next = this.#reserved + 1
  }

  append({ type, data }: AgentChange): AgentEvent {
    if (this.#next > this.#reserved) this.#putBy(this.#next + RESERVED - 1)
    const event = { id: this.#next, at: this.#clock.now(), type, data }
    this.#next += 1
    for (const list of [this.#events, this.#unwritten]) {
      list.push(event)
      if (list.length > MOST_EVENTS) list.shift()
    }
    if (!this.#isWriting) void this.#writeSoon()
    return event
  }

  /** Those behind an id, oldest first, and whether there were none between that are not kept any more. */
  after(id: number): { readonly events: readonly AgentEvent[]; readonly isComplete: boolean } {
    // Nobody has been told such an id: the database was begun anew since.
    const isForeign = id >= this.#next
    const from = isForeign ? 0 : id
    const [oldest] = this.#events
    const isComplete = !isForeign && (id === 0 || !oldest || oldest.id <= id + 1)
    return { events: this.#events.filter((event) => event.id > from), isComplete }
  }

  /** Writes what there is: another process may go on from here. */
  flush(): void {
    this.#write({ reserved: this.#next - 1 })
  }

  /** Writes what there is; the ids that were put by and not used are given out by the next process. */
  stop(): void {
    if (this.#stopping.signal.aborted) return
    this.#stopping.abort()
    this.#write({ reserved: this.#next - 1 })
  }

  async #writeSoon(): Promise<void> {
    this.#isWriting = true
    const { signal } = this.#stopping
    try {
      await this.#clock.sleep(WRITE_MS, signal)
      for (let waitMs = this.#pace.take(''); waitMs > 0; waitMs = this.#pace.take('')) {
        await this.#clock.sleep(waitMs, signal)
      }
    } catch {
      return
    }
    this.#isWriting = false
    this.#write()
  }

  /** What cannot be written is tried with the next event: it was told, and is in memory. */
  #write({ reserved }: { reserved?: number } = {}): void {
    if (this.#unwritten.length === 0 && (reserved ?? this.#reserved) === this.#reserved) return
    const withoutBackup = this.#writtenSinceBackup + this.#unwritten.length < BACKUP_EVERY
    try {
      this.#database.write(
        () => {
          for (const event of this.#unwritten) {
            this.#insert.run({ ...event, data: JSON.stringify(event.data) })
          }
          if (reserved !== undefined) this.#reserve.run(reserved)
        },
        { withoutBackup },
      )
    } catch (error) {
      this.#log.debug({ err: error }, 'cannot write events')
      return
    }
    this.#writtenSinceBackup = withoutBackup ? this.#writtenSinceBackup + this.#unwritten.length : 0
    this.#unwritten = []
    if (reserved !== undefined) this.#reserved = reserved
  }

  /** What is not on disk is not put by: the next event tries again. One row on a full disk is worth its reserve. */
  #putBy(reserved: number): void {
    const put = () => this.#reserve.run(reserved)
    try {
      this.#database.write(put, { withoutBackup: true, mayUseReserve: true })
      this.#reserved = reserved
    } catch (error) {
      this.#log.debug({ err: error }, 'cannot reserve event ids')
    }
  }
}
