import { AsyncResource } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import { AppError } from '../../../base/app-error.ts'
import type { Clock } from '../../../base/clock.ts'
import type { RowFeed } from '../../../store/journal/row-recorder.ts'
import { SqliteError } from '../../../store/sqlite.ts'
import { DatabaseError } from '../postgres/database-error.ts'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import type { PostgresSession, Statements } from '../postgres/postgres-session.ts'
import { BehindError, type LogFollower } from './log-follower.ts'
import { append, type Outcome, type Proposal, readHead } from './record-log.ts'
import type { Attempt, Replica } from './replica.ts'
import { toReplicaError } from './replica-error.ts'

/** Time limit for a change, in milliseconds: a restart of the database takes about a second. */
const TRY_MS = 2_000
const PAUSE_MS = 50
/** Conflicts in a row after which the next attempt locks the log, so that other nodes wait. */
const MAX_CONFLICTS = 3
/** Limits of changes in one message, and of changes that wait. */
const MAX_BATCH = 200
const MAX_WAITING = 10_000
const GIVEN_UP = 'The other gateways marked this gateway as lost'

export interface ChangeQueueOptions {
  readonly connection: PostgresConnection
  readonly replica: Replica
  readonly follower: LogFollower
  readonly feed: RowFeed
  readonly node: string
  /** Current epoch of the node; undefined before it joins the cluster. */
  readonly epoch: () => number | undefined
  readonly clock: Clock
}

/** Result of a change, and the reports to make after it is stored. */
interface Done {
  readonly result: unknown
  readonly told: () => void
}

interface Waiting {
  readonly change: () => Done
  resolve(result: unknown): void
  reject(error: unknown): void
}

type Batch = readonly Waiting[]

interface Tried {
  readonly proposal: Proposal
  readonly attempt: Attempt<Done>
  /** Number of its log entry. Once it is set, the change is stored, even if later steps here fail. */
  takenAt: number | undefined
  /** Whether it was sent without an answer, so that it may be stored. */
  isUnknown: boolean
}

/**
 * Stores the changes of this node in PostgreSQL, one message after the other. Changes that arrive meanwhile
 * share the next message.
 *
 * Each change is tried on the local copy and rolled back. PostgreSQL stores its rows only if no node changed
 * anything since. So all checks, by SQLite and by the change itself, hold for all nodes.
 *
 * INVARIANTS
 * - A change resolves when its rows are in PostgreSQL and in the local copy. If the copy cannot be updated in
 *   time, PostgreSQL suffices.
 * - An error of a change itself is returned only after PostgreSQL confirms that the copy was current.
 * - A message without an answer is sent again unchanged. Its mark is stored only once.
 * - A change in an ended epoch is not stored. The node first follows the log, then tries the change again.
 */
export class ChangeQueue {
  readonly #options: ChangeQueueOptions
  readonly #waiting: Waiting[] = []
  #isRunning = false
  #isPaused = false

  constructor(options: ChangeQueueOptions) {
    this.#options = options
  }

  add<T>(change: () => { result: T; told: () => void }): Promise<T> {
    if (this.#isPaused) {
      return Promise.reject(refusal('Another process of this node is taking over', true))
    }
    if (this.#waiting.length >= MAX_WAITING) {
      return Promise.reject(refusal('Too many changes are waiting', true))
    }
    return new Promise((resolve, reject) => {
      const bound = AsyncResource.bind(change)
      this.#waiting.push({ change: bound, resolve: (done) => resolve(done as T), reject })
      void this.#run()
    })
  }

  /** Refuses new changes. Changes that already wait are still made. */
  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
  }

  stop(): void {
    this.#isPaused = true
    const stopped = refusal('The gateway is stopping', true)
    for (const { reject } of this.#waiting.splice(0)) reject(stopped)
  }

  async #run(): Promise<void> {
    if (this.#isRunning) return
    this.#isRunning = true
    // Changes made at the same moment join this batch.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_BATCH)
      try {
        settle(batch, await this.#commit(batch))
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.#isRunning = false
  }

  /** Throws an AppError if the changes could not be made in time. */
  async #commit(batch: Batch): Promise<Attempt<Done>> {
    const { clock } = this.#options
    const endsAt = clock.monotonic() + TRY_MS
    let tried: Tried | undefined
    let conflicts = 0
    for (;;) {
      const keep = (it: Tried) => {
        tried = it
        return it
      }
      try {
        const outcome = await this.#commitOnce(batch, { tried, keep, conflicts })
        if (outcome === 'taken' && tried) return tried.attempt
        tried = undefined
        if (outcome === 'fenced') {
          if (clock.monotonic() >= endsAt) throw refusal(GIVEN_UP, true)
          await clock.sleep(PAUSE_MS)
          continue
        }
        conflicts += 1
        // A random pause, so that two nodes do not collide again.
        await clock.sleep(Math.random() * 5 * conflicts)
      } catch (error) {
        const isLate = clock.monotonic() >= endsAt
        tried = this.#judge(error, tried, isLate)
        if (isLate && tried?.takenAt !== undefined) return tried.attempt
        await clock.sleep(PAUSE_MS)
      }
    }
  }

  /**
   * Decides how to continue after an error. Returns an attempt that may be stored, to send it again.
   * Undefined: run the changes again. Throws if the time is over or the error is permanent.
   */
  #judge(error: unknown, tried: Tried | undefined, isLate: boolean): Tried | undefined {
    // A bug of ours, before anything was sent.
    if (!tried && !isExpected(error)) throw error
    const problem = error instanceof BehindError ? undefined : toReplicaError(error)
    // The follower then reloads all rows, or logs why it cannot.
    if (!problem || problem.code === 'replica-failed') this.#options.follower.wake()
    if (tried && problem?.isUndone === false) tried.isUnknown = true
    if (tried?.takenAt !== undefined) return tried
    const isUnknown = tried?.isUnknown ?? false
    if (isLate || problem?.isTransient === false) {
      throw refusal(
        problem ? sentenceOf(problem) : 'The records on this node are out of date',
        !isUnknown,
      )
    }
    return isUnknown ? tried : undefined
  }

  #commitOnce(
    batch: Batch,
    {
      tried,
      keep,
      conflicts,
    }: { tried: Tried | undefined; keep: (tried: Tried) => Tried; conflicts: number },
  ): Promise<Outcome['outcome']> {
    return this.#options.connection.run(async (session) => {
      if (!tried && conflicts >= MAX_CONFLICTS) return this.#inTurn(session, batch, keep)
      return this.#send(session, tried ?? keep(this.#try(batch)))
    })
  }

  #try(batch: Batch): Tried {
    const { replica, node, epoch, follower } = this.#options
    const seen = replica.position
    if (follower.state === 'outdated') throw outdated()
    if (!seen) throw new BehindError()
    const attempt = replica.attempt(batch.map(({ change }) => change))
    const { rows } = attempt
    const { schema } = replica
    const proposal = { seen, mark: randomUUID(), node, epoch: epoch(), schema, rows }
    return { proposal, attempt, takenAt: undefined, isUnknown: false }
  }

  /** Sends an attempt without a lock: another node may append first. */
  async #send(session: PostgresSession, tried: Tried): Promise<Outcome['outcome']> {
    if (tried.takenAt === undefined) {
      const { outcome, n } = await append(session, tried.proposal)
      tried.isUnknown = false
      if (outcome !== 'taken') return this.#giveWay(session, outcome)
      tried.takenAt = n
    }
    await this.#applyStored(session, tried)
    return 'taken'
  }

  /** Makes the changes with the log locked. All other nodes wait for two messages. */
  async #inTurn(
    session: PostgresSession,
    batch: Batch,
    keep: (tried: Tried) => Tried,
  ): Promise<Outcome['outcome']> {
    const { tried, outcome, n } = await session.transaction(async (statements) => {
      await readHead(statements, { lock: true })
      await this.#options.follower.follow(statements)
      const tried = keep(this.#try(batch))
      return { tried, ...(await append(statements, tried.proposal)) }
    })
    if (outcome !== 'taken') return this.#giveWay(session, outcome)
    tried.takenAt = n
    await this.#applyStored(session, tried)
    return 'taken'
  }

  /** Applies the entries of other nodes after a refused attempt. */
  async #giveWay(statements: Statements, outcome: Outcome['outcome']): Promise<Outcome['outcome']> {
    await this.#options.follower.follow(statements)
    if (outcome === 'schema') throw outdated()
    return outcome
  }

  /** Applies the stored rows to the local copy, before callers get their results. */
  async #applyStored(statements: Statements, { proposal, takenAt: n = 0 }: Tried): Promise<void> {
    const { replica, feed, follower } = this.#options
    const { rows, mark } = proposal
    if (rows.length > 0) feed.tell(replica.apply({ n, mark, rows }) ?? [])
    if ((replica.position?.n ?? 0) < n) await follower.follow(statements)
  }
}

function isExpected(error: unknown): boolean {
  const kinds = [BehindError, DatabaseError, SqliteError]
  return kinds.some((kind) => error instanceof kind)
}

function outdated(): DatabaseError {
  return new DatabaseError('database-newer', 'the schema of the records has changed')
}

function settle(batch: Batch, { outcomes }: Attempt<Done>): void {
  for (const [at, { resolve, reject }] of batch.entries()) {
    const outcome = outcomes[at]
    if (outcome?.status !== 'fulfilled') {
      reject(outcome?.reason)
      continue
    }
    outcome.value.told()
    resolve(outcome.value.result)
  }
}

function sentenceOf({ message }: DatabaseError): string {
  return message.replace(/\.$/, '')
}

/** Error for users: whether the change was made, and how to continue. */
function refusal(reason: string, isUndone: boolean): AppError {
  const about = isUndone
    ? 'The change was not made. Try again.'
    : 'It is unknown if the change was made. Check before you repeat it.'
  return new AppError('storage-unavailable', `${reason}. ${about}`, {
    serviceCode: isUndone ? 'ERR_GATEWAY_RECORDS_UNAVAILABLE' : 'ERR_GATEWAY_RECORDS_UNKNOWN',
    retryAfterS: 1,
  })
}
