import * as z from 'zod'
import { BoundedCache } from '../../../base/bounded-cache.ts'
import type { Clock } from '../../../base/clock.ts'
import { createDeferred, type Deferred } from '../../../base/deferred.ts'
import type { Logger } from '../../../base/logger.ts'
import { DatabaseError } from '../postgres/database-error.ts'
import { Cursor } from '../postgres/database-follower.ts'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import { type ClaimFacts, ClaimFactsSchema, ClaimKeySchema, type ClaimRow } from './claim.ts'
import { type NodeRow, NodeRowSchema } from './node-facts.ts'

/** Limit of shared strings. Forgotten strings stay valid where they are used. */
const MAX_STRINGS = 20_000

/**
 * Shares equal strings of claims, such as devices, accounts and nodes: each row of the database has its own
 * copies.
 */
export class StringPool {
  readonly #words = new BoundedCache((word) => word, MAX_STRINGS)

  /** The same row; written out, because an object that is put together of others takes more memory. */
  rowOf(row: ClaimRow): ClaimRow {
    const { facts } = row
    const { movesTo } = facts
    // Whole, or it does not compile: a fact that is left out here is gone for visitors.
    const shared: Required<Omit<ClaimFacts, 'movesTo'>> = {
      endpointId: facts.endpointId,
      kind: facts.kind,
      protocol: facts.protocol,
      url: facts.url,
      ownerId: this.#once(facts.ownerId),
      endsTls: facts.endsTls,
      isShared: facts.isShared,
      sessionId: this.#once(facts.sessionId),
      credentialId: this.#once(facts.credentialId),
      clientId: this.#once(facts.clientId),
      deviceId: this.#once(facts.deviceId),
      instance: this.#once(facts.instance),
      generation: facts.generation,
    }
    return {
      scope: this.#words.get(row.scope),
      entrance: row.entrance,
      host: row.host,
      member: row.member,
      node: this.#once(row.node),
      epoch: row.epoch,
      facts: movesTo === undefined ? shared : { ...shared, movesTo },
    }
  }

  #once(word: string | null): string | null {
    return word === null ? null : this.#words.get(word)
  }
}

/** Interval of polls without a notification. */
const POLL_MS = 500
/** Limit of own changes that no poll has shown. Beyond it, everything is read again. */
const MAX_UNSEEN = 1_000
/** Mark of no change: expecting it forces a full read. */
const NO_MARK = ''
/** Rows named in one log line. */
const MAX_NAMED_NODES = 10

export const ClaimRowSchema = ClaimKeySchema.extend({
  node: z.string().nullable(),
  epoch: z.number().int(),
  facts: ClaimFactsSchema,
})

const LookSchema = z.object({
  number: z.number().int(),
  mark: z.string().nullable(),
  seen_mark: z.string().nullable(),
  own: z.number().int(),
  nodes: z.unknown().array(),
  claims: z.unknown().array(),
})

/** Identifying fields of a row that cannot be parsed. */
const NameSchema = z.object({
  id: z.string().optional(),
  entrance: z.string().optional(),
  host: z.string().optional(),
  member: z.string().optional(),
})

/** Result of a read. */
interface Found extends Omit<z.infer<typeof LookSchema>, 'nodes' | 'claims'> {
  readonly nodes: readonly NodeRow[]
  readonly claims: readonly ClaimRow[]
}

/** The last change of a look. */
type Seen = Pick<Found, 'number' | 'mark'>

/** One statement, so that all of it is of one moment. */
const LOOK = `
SELECT head.number,
  (SELECT mark FROM claim_changes c WHERE c.number = head.number) AS mark,
  (SELECT mark FROM claim_changes c WHERE c.number = $1) AS seen_mark,
  (SELECT count(*) FROM claim_changes c WHERE c.mark = ANY($2::text[])) AS own,
  (SELECT coalesce(jsonb_agg(n), '[]') FROM nodes n) AS nodes,
  (SELECT coalesce(jsonb_agg(c), '[]') FROM claims c WHERE c.number > $1) AS claims
FROM claim_head head`

export interface ClusterFeedOptions {
  readonly connection: PostgresConnection
  readonly lookMs?: number
  /** Called after each look. */
  readonly onNodes: (nodes: readonly NodeRow[]) => void
  /** `isAll`: earlier claims are no longer valid. */
  readonly onClaims: (claims: readonly ClaimRow[], isAll: boolean) => void
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Reads nodes and claims, and later their changes. Each change has a random mark. If the mark of the last
 * change differs, or that of an own change is missing, the database is an older copy that continued
 * separately: then everything is read again.
 */
export class ClusterFeed {
  readonly #options: ClusterFeedOptions
  readonly #cursor: Cursor
  readonly #words = new StringPool()
  #seen: Seen | undefined
  /** Marks of own changes that no poll has shown. */
  readonly #unseen = new Set<string>()
  /** Callers that wait for the end of the next poll. */
  #awaited: Deferred<boolean>[] = []
  /** Rows that the last look left out, and why it failed. */
  #odd: ReadonlySet<string> = new Set()
  #problem: string | undefined

  constructor(options: ClusterFeedOptions) {
    this.#options = options
    const { lookMs: pollMs = POLL_MS, clock } = options
    this.#cursor = new Cursor({ poll: () => this.#poll(), pollMs, clock })
  }

  /** Number of the last change that was read; undefined before the first poll. */
  get number(): number | undefined {
    return this.#seen?.number
  }

  /** Looks for the first time. Throws a DatabaseError. */
  async start(): Promise<void> {
    await this.poll()
    this.#cursor.start()
  }

  async stop(): Promise<void> {
    await this.#cursor.stop()
    for (const over of this.#awaited.splice(0)) over.resolve(false)
  }

  /** This node has made a change: the next look that begins has to show it. */
  expect(mark: string): void {
    this.#unseen.add(this.#unseen.size < MAX_UNSEEN ? mark : NO_MARK)
  }

  /** There may be something new. */
  ring(): void {
    this.#cursor.wake()
  }

  /** Looks once more, and resolves when that is over: false where it has failed. */
  async lookNow(): Promise<boolean> {
    if (!this.#cursor.isRunning) return false
    const over = createDeferred<boolean>()
    this.#awaited.push(over)
    this.ring()
    return over.promise
  }

  /** Throws a DatabaseError. */
  async poll(): Promise<void> {
    const own = [...this.#unseen]
    const seen = this.#seen
    const found = await this.#read(seen?.number ?? 0, own)
    const isAll = !seen || !goesOn(seen, found) || found.own < own.length
    const { number, mark, nodes, claims } =
      isAll && seen && seen.number > 0 ? await this.#read(0) : found
    this.#options.onNodes(nodes)
    if (isAll || claims.length > 0) this.#options.onClaims(claims, isAll)
    this.#seen = { number, mark }
    for (const shown of own) this.#unseen.delete(shown)
  }

  /** One row that is not understood leaves the others as they are. */
  async #read(after: number, own: readonly string[] = []): Promise<Found> {
    const [row] = await this.#options.connection.query(LOOK, [after, own])
    const { nodes, claims, ...head } = LookSchema.parse(row)
    const odd = new Map<string, z.ZodError>()
    const found = {
      ...head,
      nodes: nodes.flatMap((it) => understood(NodeRowSchema, it, odd)),
      claims: claims
        .flatMap((it) => understood(ClaimRowSchema, it, odd))
        .map((row) => this.#words.rowOf(row)),
    }
    this.#tellOdd(odd)
    return found
  }

  /** Once, as long as they stay. */
  #tellOdd(odd: ReadonlyMap<string, z.ZodError>): void {
    const fresh = [...odd.keys()].filter((name) => !this.#odd.has(name))
    this.#odd = new Set(odd.keys())
    const [first] = fresh
    if (first === undefined) return
    this.#options.log.warn(
      { rows: fresh.slice(0, MAX_NAMED_NODES), count: fresh.length, err: odd.get(first) },
      'ignoring cluster rows that cannot be parsed',
    )
  }

  async #poll(): Promise<void> {
    const awaited = this.#awaited.splice(0)
    const hasLooked = await this.#lookOnce()
    for (const over of awaited) over.resolve(hasLooked)
  }

  async #lookOnce(): Promise<boolean> {
    try {
      await this.poll()
      this.#tell(undefined)
      return true
    } catch (error) {
      this.#tell(error)
      return false
    }
  }

  /** Logs each reason once. The connection logs its own problems. */
  #tell(err: unknown): void {
    const { log } = this.#options
    const isOurs = err !== undefined && !(err instanceof DatabaseError)
    const problem = isOurs ? String(err) : undefined
    const isNew = isOurs && problem !== this.#problem
    if (isNew) log.warn({ err }, 'nodes and claims cannot be read: using the last known state')
    else if (err !== undefined) log.debug({ err }, 'claims could not be read')
    else if (this.#problem !== undefined) log.info('nodes and claims can be read again')
    // An outage of the database in between is no reason to tell it again.
    if (isOurs || err === undefined) this.#problem = problem
  }
}

/** Whether a result continues the earlier one. */
function goesOn(seen: Seen, { number, seen_mark }: Found): boolean {
  if (seen.number > number) return false
  // Old changes have no mark any longer.
  return seen.number === 0 || seen.mark === seen_mark
}

function understood<T>(schema: z.ZodType<T>, row: unknown, odd: Map<string, z.ZodError>): T[] {
  const { data, error } = schema.safeParse(row)
  if (data !== undefined) return [data]
  if (error) odd.set(nameOf(row), error)
  return []
}

function nameOf(row: unknown): string {
  const { id, entrance, host, member } = NameSchema.safeParse(row).data ?? {}
  return id === undefined ? `claim ${entrance} ${host} ${member}`.trimEnd() : `node ${id}`
}
