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
/** Callers do not notice a restart of the database within this time. */
const WAIT_MS = 2_000
const RETRY_MS = 100

/** Result of a claim: this node's in an epoch, or another holder. */
export type ClaimOutcome = { readonly epoch: number } | { readonly holder: ClaimHolder }

interface Change {
  readonly kind: 'claim' | 'take' | 'release'
  readonly claim: Claim
  /** For a release: the node that gets the name next. */
  readonly movesTo: string | undefined
  readonly since: number
  readonly outcome: Deferred<ClaimOutcome>
}

export interface ClaimWriterOptions {
  readonly connection: Pick<PostgresConnection, 'query'>
  readonly lease: Pick<NodeLease, 'nodeId' | 'epoch' | 'state'>
  /** Called when the changes are in the database with this mark. */
  readonly onWritten?: (mark: string) => void
  readonly clock: Clock
}

/**
 * Writes this node's claims in order. Waiting changes go into the next statement together.
 * - A claim has its result within a bounded time. If it fails, it is unknown whether it was written.
 * - A release is repeated until it succeeds, or the epoch ends, and the claim with it.
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

  /** Tries once more to write the waiting changes. */
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
    // Combines the changes of one turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve))
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, MAX_BATCH)
      const error = await this.#writeBatch(batch)
      if (error) await this.#afterFailure(new Set(batch), error)
      else this.#waiting.splice(0, batch.length)
    }
    this.#writing = undefined
  }

  /** Returns the error, if any. */
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

/** Data of devices may contain characters that jsonb refuses, which would fail all other claims, too. */
function withoutOddities(_name: string, value: unknown): unknown {
  return typeof value === 'string' ? value.replaceAll(/[\p{Cc}\p{Cs}]/gu, '\ufffd') : value
}

/** `holder` is undefined when the epoch has ended: its claims are free, and it gets no new ones. */
function settle({ kind, outcome }: Change, epoch: number, holder: ClaimHolder | null | undefined) {
  if (holder === null || kind === 'release') outcome.resolve({ epoch })
  else if (holder) outcome.resolve({ holder })
  else outcome.reject(new NoClaimsError('the lease has expired'))
}
