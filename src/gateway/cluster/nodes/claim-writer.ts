import { randomUUID } from 'node:crypto'
import type { Clock } from '../../../base/clock.ts'
import { createDeferred, type Deferred } from '../../../base/deferred.ts'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import { type Claim, type ClaimHolder, ClaimHolderSchema, NoClaimsError } from './claim.ts'
import type { NodeLease } from './node-lease.ts'

/** As many change in one message; more wait for the next. */
const MAX_BATCH = 1_000
/** A node has fewer names than that. */
const MAX_WAITING = 50_000
/** A restart of the database is not seen by who claims. */
const WAIT_MS = 2_000
const RETRY_MS = 100

/** What came of a claim: it is this node's in an epoch, or somebody else's. */
export type ClaimOutcome = { readonly epoch: number } | { readonly holder: ClaimHolder }

interface Change {
  readonly kind: 'claim' | 'take' | 'release'
  readonly claim: Claim
  /** Of a release: the node that is to have the name next. */
  readonly movesTo: string | undefined
  readonly since: number
  readonly outcome: Deferred<ClaimOutcome>
}

export interface ClaimWriterOptions {
  readonly connection: Pick<PostgresConnection, 'query'>
  readonly lease: Pick<NodeLease, 'nodeId' | 'epoch' | 'state'>
  /** What was written is in the database with that mark. */
  readonly onWritten?: (mark: string) => void
  readonly clock: Clock
}

/**
 * Writes this node's claims, in the order in which they came: what waits rides in the next message.
 * - a claim has its outcome within a bounded time; when it fails, nobody knows whether it was done
 * - a release is tried until it is done, or the epoch is over, and the claim with it
 */
export class ClaimWriter {
  readonly #options: ClaimWriterOptions
  readonly #stopping = new AbortController()
  #waiting: Change[] = []
  #writing: Promise<void> | undefined

  constructor(options: ClaimWriterOptions) {
    this.#options = options
  }

  /** Throws a NoClaimsError or a DatabaseError. */
  async claim(claim: Claim): Promise<ClaimOutcome> {
    if (this.#options.lease.state !== 'held') throw new NoClaimsError('the lease has expired')
    return await this.#add('claim', claim)
  }

  /** The same, also from a node that has it by an earlier session of the same process. */
  async take(claim: Claim): Promise<ClaimOutcome> {
    if (this.#options.lease.state !== 'held') throw new NoClaimsError('the lease has expired')
    return await this.#add('take', claim)
  }

  /** Resolves when the name is free for others, or for the node that wants it. */
  async release(claim: Claim, movesTo?: string): Promise<void> {
    await this.#add('release', claim, movesTo)
  }

  /** Tries once more to write what waits. */
  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#writing
  }

  #add(kind: Change['kind'], claim: Claim, movesTo?: string): Promise<ClaimOutcome> {
    if (this.#stopping.signal.aborted || this.#waiting.length >= MAX_WAITING) {
      return Promise.reject(new NoClaimsError('too many names are changing at once'))
    }
    const outcome = createDeferred<ClaimOutcome>()
    const since = this.#options.clock.monotonic()
    this.#waiting.push({ kind, claim, movesTo, outcome, since })
    this.#writing ??= this.#write()
    return outcome.promise
  }

  async #write(): Promise<void> {
    // What is asked for in one turn of the event loop goes together.
    await new Promise((resolve) => setImmediate(resolve))
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, MAX_BATCH)
      const error = await this.#writeBatch(batch)
      if (error) await this.#afterFailure(new Set(batch), error)
      else this.#waiting.splice(0, batch.length)
    }
    this.#writing = undefined
  }

  /** Why it was not done, as far as anybody knows. */
  async #writeBatch(batch: readonly Change[]): Promise<unknown> {
    const { connection, lease, onWritten } = this.#options
    const changes = batch.map(({ kind, claim: { key, facts }, movesTo }) => ({
      ...{ do: kind, ...key, facts, movesTo },
    }))
    const { epoch } = lease
    const mark = randomUUID()
    try {
      const [row] = await connection.query<{ answers: unknown[] | null }>(
        'SELECT change_claims($1::text, $2::bigint, $3::text, $4::jsonb) AS answers',
        [lease.nodeId, epoch, mark, JSON.stringify(changes, withoutOddities)],
      )
      const answers = row?.answers && ClaimHolderSchema.nullable().array().parse(row.answers)
      if (answers) onWritten?.(mark)
      for (const [at, change] of batch.entries()) settle(change, epoch, answers?.[at])
      return undefined
    } catch (error) {
      return error
    }
  }

  /** Claims that have waited for too long fail. */
  async #afterFailure(batch: ReadonlySet<Change>, error: unknown): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#stopping
    const now = clock.monotonic()
    const isLate = (change: Change) =>
      batch.has(change) && change.kind !== 'release' && now - change.since >= WAIT_MS
    this.#waiting = this.#waiting.filter((change) => {
      if (!signal.aborted && !isLate(change)) return true
      change.outcome.reject(error)
      return false
    })
    if (!signal.aborted) await clock.sleep(RETRY_MS, signal).catch(() => {})
  }
}

/** What devices say of themselves may hold what jsonb refuses, and with it the claims of all others. */
function withoutOddities(_name: string, value: unknown): unknown {
  return typeof value === 'string' ? value.replaceAll(/[\p{Cc}\p{Cs}]/gu, '\ufffd') : value
}

/** `holder` is undefined when the epoch is over: its claims are nobody's, and it gets no new ones. */
function settle({ kind, outcome }: Change, epoch: number, holder: ClaimHolder | null | undefined) {
  if (holder === null || kind === 'release') outcome.resolve({ epoch })
  else if (holder) outcome.resolve({ holder })
  else outcome.reject(new NoClaimsError('the lease has expired'))
}
