import { Backoff } from '../../../base/backoff.ts'
import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import { DatabaseError, toDatabaseError } from './database-error.ts'
import {
  PostgresSession,
  type Row,
  type SessionOptions,
  type Statements,
} from './postgres-session.ts'

/**
 * A connection to the database. `waiting`: the last try failed, or the session was lost; the next try
 * comes after a while.
 */
export type ConnectionState = 'idle' | 'opening' | 'ready' | 'waiting' | 'closed'

type ConnectionEvent = 'open' | 'opened' | 'lost' | 'close'

const NEXT: Record<ConnectionState, Partial<Record<ConnectionEvent, ConnectionState>>> = {
  idle: { open: 'opening', close: 'closed' },
  opening: { opened: 'ready', lost: 'waiting', close: 'closed' },
  ready: { lost: 'waiting', close: 'closed' },
  waiting: { open: 'opening', close: 'closed' },
  closed: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
function nextConnectionState(state: ConnectionState, event: ConnectionEvent): ConnectionState {
  return NEXT[state][event] ?? state
}

/** A restart of the server takes about a second. Queries wait for this time. */
const WAIT_MS = 2_000
/** More than that wait only when something is wrong. */
const MAX_WAITING = 1_000
/** Delays for transient problems: short, because names and writes wait. */
const SOON = { baseMs: 100, capMs: 2_000, jitter: 0.5 }
/** Delays for problems that a person has to fix. */
const LATER = { baseMs: 2_000, capMs: 30_000, jitter: 0.5 }
/** A session that lasted that long was a good one. */
const STABLE_MS = 5_000

export interface ConnectionOptions extends SessionOptions {
  /** Runs first on each session, before any other work. */
  readonly prepare?: (statements: Statements) => Promise<void>
  /** How long work waits for its turn before it fails. */
  readonly waitMs?: number
  readonly log: Logger
  readonly clock: Clock
}

interface Work {
  run(session: PostgresSession): Promise<void>
  refuse(error: DatabaseError): void
}

/**
 * A PostgreSQL session that is reopened when it is lost.
 * - at most one session, and one attempt to open one, at a time
 * - work has the session to itself, in the order of its calls; nothing is done twice
 * - work that is refused while it waits was not started: `isUndone` is true
 */
export class PostgresConnection {
  readonly #options: ConnectionOptions
  readonly #log: Logger
  readonly #stopping = new AbortController()
  readonly #soon = new Backoff(SOON)
  readonly #later = new Backoff(LATER)
  readonly #waiting = new Set<Work>()
  #state: ConnectionState = 'idle'
  #session: PostgresSession | undefined
  #isWorking = false
  #problem: DatabaseError | undefined
  #keeping: Promise<void> | undefined

  constructor(options: ConnectionOptions) {
    this.#options = options
    this.#log = options.log.child({ database: options.name })
  }

  get state(): ConnectionState {
    return this.#state
  }

  /** Why there is no session; undefined while there is one, or before the first try has ended. */
  get problem(): DatabaseError | undefined {
    return this.#problem
  }

  /** Begins to connect. */
  start(): void {
    this.#keeping ??= this.#keep()
  }

  /** Ends the session, and refuses waiting work. */
  async stop(): Promise<void> {
    this.#enter('close')
    this.#stopping.abort('stopped')
    this.#session?.close()
    const closed = new DatabaseError('database-unreachable', 'the gateway is stopping')
    for (const work of this.#waiting) work.refuse(closed)
    await this.#keeping
  }

  query<R extends Row = Row>(sql: string, values?: readonly unknown[]): Promise<R[]> {
    return this.run((session) => session.query<R>(sql, values))
  }

  transaction<T>(work: (statements: Statements) => Promise<T>): Promise<T> {
    return this.run((session) => session.transaction(work))
  }

  /** Runs `work` when it is its turn; rejects with a DatabaseError when that does not come in time. */
  run<T>(work: (session: PostgresSession) => Promise<T>): Promise<T> {
    if (this.#state === 'closed' || this.#waiting.size >= MAX_WAITING) {
      return Promise.reject(this.#refusal())
    }
    return new Promise((resolve, reject) => {
      const item: Work = {
        run: async (session) => {
          leave()
          try {
            resolve(await work(session))
          } catch (error) {
            reject(error)
          }
        },
        refuse: (error) => {
          leave()
          reject(error)
        },
      }
      const leave = () => {
        clearTimeout(timer)
        this.#waiting.delete(item)
      }
      const { waitMs = WAIT_MS } = this.#options
      const timer = setTimeout(() => item.refuse(this.#refusal()), waitMs)
      this.#waiting.add(item)
      void this.#work()
    })
  }

  /** Error of work that waited too long. */
  #refusal(): DatabaseError {
    if (this.#state === 'ready')
      return new DatabaseError('database-slow', 'too many queries are waiting')
    const { code = 'database-unreachable' as const } = this.#problem ?? {}
    return new DatabaseError(code, 'not connected', { cause: this.#problem })
  }

  async #work(): Promise<void> {
    if (this.#isWorking) return
    this.#isWorking = true
    try {
      for (const work of this.#waiting) {
        if (!this.#session) return
        await work.run(this.#session)
      }
    } finally {
      this.#isWorking = false
    }
  }

  async #keep(): Promise<void> {
    const { clock } = this.#options
    while (this.#state !== 'closed') {
      this.#enter('open')
      const since = clock.monotonic()
      const problem = await this.#useOne()
      if (this.#stopping.signal.aborted) return
      if (clock.monotonic() - since > STABLE_MS) {
        this.#soon.reset()
        this.#later.reset()
      }
      this.#enter('lost')
      this.#tell(problem)
      const delays = problem.isTransient ? this.#soon : this.#later
      await clock.sleep(delays.next(), this.#stopping.signal).catch(() => {})
    }
  }

  /** Opens a session and keeps it to its end, which it gives the reason of. */
  async #useOne(): Promise<DatabaseError> {
    const { prepare } = this.#options
    let session: PostgresSession | undefined
    try {
      session = await PostgresSession.open(this.#options, this.#stopping.signal)
      await prepare?.(session)
      // Stopped meanwhile, so this session has no owner.
      if (this.#stopping.signal.aborted) return new DatabaseError('database-unreachable', 'stopped')
      this.#session = session
      this.#enter('opened')
      if (this.#problem) this.#log.info('database connection restored')
      this.#problem = undefined
      void this.#work()
      return await session.ended
    } catch (error) {
      return toDatabaseError(error, false)
    } finally {
      this.#session = undefined
      session?.close()
    }
  }

  /** Once for each reason: an outage of an hour is not 2,000 lines. */
  #tell(problem: DatabaseError): void {
    if (this.#problem?.code !== problem.code) {
      this.#log.warn({ err: problem }, 'database connection lost')
    }
    this.#problem = problem
  }

  #enter(event: ConnectionEvent): void {
    this.#state = nextConnectionState(this.#state, event)
  }
}
