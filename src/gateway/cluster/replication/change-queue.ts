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

/** How long a change is tried: a restart of the database takes about a second. */
const TRY_MS = 2_000
const PAUSE_MS = 50
/** Others that were faster so many times in a row are kept waiting for once. */
const MOST_CONFLICTS = 3
/** Changes in one message, and changes that wait. */
const MOST_TOGETHER = 200
const MOST_WAITING = 10_000
const GIVEN_UP = 'The other gateways marked this gateway as lost'

export interface ChangeQueueOptions {
  readonly connection: PostgresConnection
  readonly replica: Replica
  readonly follower: LogFollower
  readonly feed: RowFeed
  readonly node: string
  /** In which the node is now; undefined before it is one of the cluster. */
  readonly epoch: () => number | undefined
  readonly clock: Clock
}

/** Result of a change, and the reports after it is stored. */
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
  /** Number of its entry. From then on, the change is made, whatever happens here. */
  takenAt: number | undefined
  /** It was sent, and no answer came. */
  isUnknown: boolean
}

/**
 * Changes of this node, one message after the other: what waits rides in the next. Each is tried on the
 * node's own copy and taken back, and its rows are taken only if nobody has changed anything since: so
 * all that SQLite checks, and all that the change itself has checked, holds for all nodes.
 *
 * INVARIANTS
 * - A change answers when its rows are in PostgreSQL and here, or cannot be brought here in time; one
 *   that is refused, when it is known that what it was refused for was true.
 * - A message without an answer is sent again as it was: its mark is taken once.
 * - What a node asks for in an epoch that is over is not taken: it looks first, and tries anew.
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
    if (this.#waiting.length >= MOST_WAITING) {
      return Promise.reject(refusal('Too many changes are waiting', true))
    }
    return new Promise((resolve, reject) => {
      const bound = AsyncResource.bind(change)
      this.#waiting.push({ change: bound, resolve: (done) => resolve(done as T), reject })
      void this.#run()
    })
  }

  /** From now on changes are refused; those that are there are made. */
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
    // Those of the same moment come along.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MOST_TOGETHER)
      try {
        settle(batch, await this.#commit(batch))
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.#isRunning = false
  }

  /** Throws an AppError when it could not be done in time. */
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
        // Two that always meet would meet again.
        await clock.sleep(Math.random() * 5 * conflicts)
      } catch (error) {
        const isLate = clock.monotonic() >= endsAt
        tried = this.#judge(error, tried, isLate)
        if (isLate && tried?.takenAt !== undefined) return tried.attempt
        await clock.sleep(PAUSE_MS)
      }
    }
  }

  /** What goes on after an error: what may have been taken is asked for again. Throws when nothing does. */
  #judge(error: unknown, tried: Tried | undefined, isLate: boolean): Tried | undefined {
    // A mistake of ours, before anything was sent.
    if (!tried && !isExpected(error)) throw error
    const problem = error instanceof BehindError ? undefined : toReplicaError(error)
    // Whoever looks takes all rows anew, or tells why it cannot.
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
      if (!tried && conflicts >= MOST_CONFLICTS) return this.#inTurn(session, batch, keep)
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

  /** Without knowing whether anybody else is at it. */
  async #send(session: PostgresSession, tried: Tried): Promise<Outcome['outcome']> {
    if (tried.takenAt === undefined) {
      const { outcome, n } = await append(session, tried.proposal)
      tried.isUnknown = false
      if (outcome !== 'taken') return this.#giveWay(session, outcome)
      tried.takenAt = n
    }
    await this.#take(session, tried)
    return 'taken'
  }

  /** While all others wait, which they have to do for two messages. */
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
    await this.#take(session, tried)
    return 'taken'
  }

  /** Others were faster: what they did comes first. */
  async #giveWay(statements: Statements, outcome: Outcome['outcome']): Promise<Outcome['outcome']> {
    await this.#options.follower.follow(statements)
    if (outcome === 'schema') throw outdated()
    return outcome
  }

  /** What was taken is here before anybody hears of it. */
  async #take(statements: Statements, { proposal, takenAt: n = 0 }: Tried): Promise<void> {
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

/** For people: what is known of the change, and what they may do. */
function refusal(reason: string, isUndone: boolean): AppError {
  const about = isUndone
    ? 'The change was not made. Try again.'
    : 'It is unknown if the change was made. Check before you repeat it.'
  return new AppError('storage-unavailable', `${reason}. ${about}`, {
    serviceCode: isUndone ? 'ERR_GATEWAY_RECORDS_UNAVAILABLE' : 'ERR_GATEWAY_RECORDS_UNKNOWN',
    retryAfterS: 1,
  })
}
