import type { Clock } from '../../base/clock.ts'
import { TokenBuckets } from '../../base/limiter.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'

/** So many of the newest events stay. */
export const MAX_EVENTS = 1_000
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
      WHERE id <= (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET ${MAX_EVENTS});
    END;
    CREATE TABLE event_ids (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      reserved INTEGER NOT NULL
    ) STRICT`,
  },
  { id: 'events-2', sql: 'DROP TABLE event_ids' },
]

/** Types of events. */
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

/** A change, and the state after it. */
export interface AgentChange {
  readonly type: AgentEventType
  readonly data: Readonly<Record<string, unknown>>
}

/** A change as an event. */
export interface AgentEvent extends AgentChange {
  /** Rises with each event, over restarts. About the time in milliseconds since the epoch. */
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
 * INVARIANT: no id is used twice. A kill or a power cut can lose the events of the last seconds, which
 * subscribers have seen. Ids follow the clock, so the next process is ahead of them, unless its clock runs
 * behind: then it can use again the ids of events that were lost.
 */
export class EventLog {
  readonly #database: Database
  readonly #clock: Clock
  readonly #log: Logger
  readonly #insert: Statement<[EventRow]>
  readonly #pace: TokenBuckets
  readonly #stopping = new AbortController()
  /** Oldest first. */
  readonly #events: AgentEvent[]
  #unwritten: AgentEvent[] = []
  /** Id of the newest event. */
  #lastId: number
  /** Events up to this id are no longer kept. */
  #droppedUpTo: number
  #isWriting = false
  #writtenSinceBackup = 0

  constructor({ database, clock, log }: { database: Database; clock: Clock; log: Logger }) {
    this.#database = database
    this.#clock = clock
    this.#log = log
    this.#insert = database.prepare(
      'INSERT INTO events (id, at, type, data) VALUES (@id, @at, @type, @data)',
    )
    this.#pace = new TokenBuckets({ ...WRITES, clock })
    const rows = database
      .prepare<[number], EventRow>('SELECT * FROM events ORDER BY id DESC LIMIT ?')
      .all(MAX_EVENTS)
    this.#events = rows.reverse().map((row) => ({ ...row, data: JSON.parse(row.data) }))
    this.#lastId = this.#events.at(-1)?.id ?? 0
    const [oldest] = this.#events
    this.#droppedUpTo = oldest && this.#events.length === MAX_EVENTS ? oldest.id - 1 : 0
  }

  append({ type, data }: AgentChange): AgentEvent {
    const at = this.#clock.now()
    this.#lastId = Math.max(this.#lastId + 1, at)
    const event = { id: this.#lastId, at, type, data }
    this.#events.push(event)
    if (this.#events.length > MAX_EVENTS) {
      this.#droppedUpTo = this.#events.shift()?.id ?? this.#droppedUpTo
    }
    this.#unwritten.push(event)
    if (this.#unwritten.length > MAX_EVENTS) this.#unwritten.shift()
    if (!this.#isWriting) void this.#writeSoon()
    return event
  }

  /** The events after an id, oldest first, and whether all of them are still kept. */
  after(id: number): { readonly events: readonly AgentEvent[]; readonly isComplete: boolean } {
    // No event has this id: the database was replaced.
    const isUnknown = id > this.#lastId
    const from = isUnknown ? 0 : id
    const isComplete = !isUnknown && (id === 0 || id >= this.#droppedUpTo)
    return { events: this.#events.filter((event) => event.id > from), isComplete }
  }

  /** Writes events that are not on disk yet. */
  stop(): void {
    if (this.#stopping.signal.aborted) return
    this.#stopping.abort()
    this.#write()
  }

  async #writeSoon(): Promise<void> {
    this.#isWriting = true
    const { signal } = this.#stopping
    try {
      await this.#clock.sleep(WRITE_MS, signal)
      for (let waitMs = this.#pace.tryCount(''); waitMs > 0; waitMs = this.#pace.tryCount('')) {
        await this.#clock.sleep(waitMs, signal)
      }
    } catch {
      return
    }
    this.#isWriting = false
    this.#write()
  }

  /** Events that cannot be written stay in memory. The next event tries again. */
  #write(): void {
    if (this.#unwritten.length === 0) return
    const withoutBackup = this.#writtenSinceBackup + this.#unwritten.length < BACKUP_EVERY
    try {
      this.#database.write(
        () => {
          for (const event of this.#unwritten) {
            this.#insert.run({ ...event, data: JSON.stringify(event.data) })
          }
        },
        { withoutBackup },
      )
    } catch (error) {
      this.#log.debug({ err: error }, 'cannot write events')
      return
    }
    this.#writtenSinceBackup = withoutBackup ? this.#writtenSinceBackup + this.#unwritten.length : 0
    this.#unwritten = []
  }
}
