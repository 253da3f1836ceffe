import * as z from 'zod'
import { AutoResetEvent } from '../../base/auto-reset-event.ts'
import type { Clock } from '../../base/clock.ts'
import { createDeferred, type Deferred } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import { DatabaseError } from '../postgres/database-error.ts'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import { ClaimFactsSchema, ClaimKeySchema, type ClaimRow } from './claim.ts'
import { type NodeRow, NodeRowSchema } from './node-facts.ts'
import { SharedWords } from './shared-words.ts'

/** How often it is looked when nobody says that there is something to see. */
const LOOK_MS = 500
/** Between two looks, however often somebody says that there is something to see. */
const PAUSE_MS = 20
/** Rows that one line of the log names. */
const MOST_NAMED = 10

const ClaimRowSchema = ClaimKeySchema.extend({
  node: z.string().nullable(),
  epoch: z.number().int(),
  facts: ClaimFactsSchema,
})

const LookSchema = z.object({
  number: z.number().int(),
  mark: z.string().nullable(),
  seen_mark: z.string().nullable(),
  nodes: z.unknown().array(),
  claims: z.unknown().array(),
})

/** What a row is known by, however odd the rest of it. */
const NameSchema = z.object({
  id: z.string().optional(),
  entrance: z.string().optional(),
  host: z.string().optional(),
  member: z.string().optional(),
})

/** What was found at one moment. */
interface Found extends Omit<z.infer<typeof LookSchema>, 'nodes' | 'claims'> {
  readonly nodes: readonly NodeRow[]
  readonly claims: readonly ClaimRow[]
}

/** One statement, so that all of it is of one moment. */
const LOOK = `
SELECT head.number,
  (SELECT mark FROM claim_changes c WHERE c.number = head.number) AS mark,
  (SELECT mark FROM claim_changes c WHERE c.number = $1) AS seen_mark,
  (SELECT coalesce(jsonb_agg(n), '[]') FROM nodes n) AS nodes,
  (SELECT coalesce(jsonb_agg(c), '[]') FROM claims c WHERE c.number > $1) AS claims
FROM claim_head head`

export interface ClusterFeedOptions {
  readonly connection: PostgresConnection
  readonly lookMs?: number
  /** Called after each look. */
  readonly onNodes: (nodes: readonly NodeRow[]) => void
  /** `isAll`: what was known before does not hold any more. */
  readonly onClaims: (claims: readonly ClaimRow[], isAll: boolean) => void
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Reads who is there and who has which name, and what has changed since. Each change has a random mark:
 * where that of the last one is another now, the database is an older copy that has gone on by itself,
 * and everything is read anew.
 */
export class ClusterFeed {
  readonly #options: ClusterFeedOptions
  readonly #bell = new AutoResetEvent()
  readonly #stopping = new AbortController()
  readonly #words = new SharedWords()
  #seen: { readonly number: number; readonly mark: string | null } | undefined
  #looking: Promise<void> | undefined
  /** Those who wait for the end of a look that has not begun. */
  #awaited: Deferred<boolean>[] = []
  /** Rows that the last look left out, and why it failed. */
  #odd: ReadonlySet<string> = new Set()
  #problem: string | undefined

  constructor(options: ClusterFeedOptions) {
    this.#options = options
  }

  /** Number of the last change that was seen; undefined before the first look. */
  get number(): number | undefined {
    return this.#seen?.number
  }

  /** Looks for the first time. Throws a DatabaseError. */
  async start(): Promise<void> {
    await this.look()
    this.#looking ??= this.#keepLooking()
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    this.#bell.set()
    await this.#looking
  }

  /** There may be something new. */
  ring(): void {
    this.#bell.set()
  }

  /** Looks once more, and resolves when that is over: false where it has failed. */
  async lookNow(): Promise<boolean> {
    if (!this.#looking || this.#stopping.signal.aborted) return false
    const over = createDeferred<boolean>()
    this.#awaited.push(over)
    this.ring()
    return over.promise
  }

  /** Throws a DatabaseError. */
  async look(): Promise<void> {
    const found = await this.#read(this.#seen?.number ?? 0)
    const isAll = !this.#seen || !this.#goesOn(found)
    const { number, mark, nodes, claims } =
      isAll && this.#seen && this.#seen.number > 0 ? await this.#read(0) : found
    this.#options.onNodes(nodes)
    if (isAll || claims.length > 0) this.#options.onClaims(claims, isAll)
    this.#seen = { number, mark }
  }

  /** One row that is not understood leaves the others as they are. */
  async #read(after: number): Promise<Found> {
    const [row] = await this.#options.connection.query(LOOK, [after])
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
      { rows: fresh.slice(0, MOST_NAMED), count: fresh.length, err: odd.get(first) },
      'rows of the cluster are not understood, and left out',
    )
  }

  /** Whether what was found follows on what was seen. */
  #goesOn({ number, seen_mark }: Found): boolean {
    const seen = this.#seen
    if (!seen || seen.number > number) return false
    // Of what was too long ago there is no mark any more.
    return seen.number === 0 || seen.mark === seen_mark
  }

  async #keepLooking(): Promise<void> {
    const { clock, lookMs = LOOK_MS } = this.#options
    while (!this.#stopping.signal.aborted) {
      await this.#bell.wait(clock, lookMs)
      const awaited = this.#awaited.splice(0)
      const hasLooked = !this.#stopping.signal.aborted && (await this.#lookOnce())
      for (const over of awaited) over.resolve(hasLooked)
      await clock.sleep(PAUSE_MS, this.#stopping.signal).catch(() => {})
    }
    for (const over of this.#awaited.splice(0)) over.resolve(false)
  }

  async #lookOnce(): Promise<boolean> {
    try {
      await this.look()
      this.#tell(undefined)
      return true
    } catch (error) {
      this.#tell(error)
      return false
    }
  }

  /** Why it does not see, once for each reason. The connection tells of what is wrong with itself. */
  #tell(err: unknown): void {
    const { log } = this.#options
    const isOurs = err !== undefined && !(err instanceof DatabaseError)
    const problem = isOurs ? String(err) : undefined
    const isNew = isOurs && problem !== this.#problem
    if (isNew) log.warn({ err }, 'nodes and claims are not seen: what was known before holds')
    else if (err !== undefined) log.debug({ err }, 'could not see the claims')
    else if (this.#problem !== undefined) log.info('nodes and claims are seen again')
    // An outage of the database in between is no reason to tell it again.
    if (isOurs || err === undefined) this.#problem = problem
  }
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
