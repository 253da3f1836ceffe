import { Backoff } from '../../base/backoff.ts'
import type { Clock } from '../../base/clock.ts'
import { Semaphore } from '../../base/limit/semaphore.ts'
import type { Logger } from '../../base/logger.ts'
import { ACCOUNT_KEY } from '../certificates/acme/acme-authority.ts'
import type { ZoneView } from '../certificates/acme/challenge-zone.ts'
import type {
  CertificateId,
  CertificateRecord,
  Claimed,
  OrderBook,
  SiteOrder,
} from '../certificates/acme/order-book.ts'
import type { NodeLease } from '../cluster/node-lease.ts'
import type { SharedMaterial } from '../cluster/shared-material.ts'
import { DatabaseError } from '../postgres/database-error.ts'
import { PostgresConnection } from '../postgres/postgres-connection.ts'
import type { PostgresServer } from '../postgres/postgres-session.ts'
import { FreshReader } from './fresh-reader.ts'

/** How often it is looked for what others have ordered. */
const LOOK_MS = 1_000
/** Looks between two tries to take over what another gateway orders. */
const HELD_LOOKS = 5
/** As with one gateway: authorities count failed orders, five an hour for a name are common. */
const RETRY = { baseMs: 300_000, capMs: 43_200_000 }
const RETRY_FLOOR_MS = 60_000
/** Nothing is ordered again sooner, whoever does not like what was issued. */
const ISSUED_MS = 600_000
/** Orders that people may ask for out of turn, in an hour. */
const EARLY_RETRIES = 3
const NOTHING: CertificateRecord = {
  ...{ number: 0, pem: undefined, startedAt: undefined, error: undefined },
  ...{ retriesAt: undefined, failingSince: undefined },
}
/** With an index of its own: anybody may ask for challenges. */
export const ASKED = "SELECT challenge_name, challenges FROM certificates WHERE challenges <> '{}'"
const UNKEPT = 'What the authority answered cannot be kept: the log of the gateway says more.'
const OF = 'domain = $1 AND authority = $2 AND key_type = $3'

interface Row {
  readonly [column: string]: unknown
  readonly domain: string
  readonly authority: string
  readonly key_type: string
  readonly number: number
  readonly pem: string | null
  readonly started_at: number | null
  readonly error: string | null
  readonly failing_since: number | null
  readonly next_at: number
}

export interface SiteOrdersOptions {
  readonly server: PostgresServer
  readonly material: Pick<SharedMaterial, 'findSecret' | 'keepSecret'>
  readonly lookMs?: number | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** The orders of the site, as `certificate-steps.ts` has them in PostgreSQL. */
export class SiteOrders implements OrderBook {
  readonly #options: SiteOrdersOptions
  readonly #connection: PostgresConnection
  /** For who asks for challenges: behind no order, and no order behind them. */
  readonly #asking: PostgresConnection
  readonly #challenges: FreshReader<ReadonlyMap<string, readonly string[]>>
  readonly #records = new Map<string, CertificateRecord>()
  readonly #listeners = new Map<string, () => void>()
  readonly #stopping = new AbortController()
  readonly #claiming = new Semaphore(1)
  /** Until then nobody is asked: as many are ordered as may be, or nobody answers. Of the monotonic clock. */
  #pausesUntil = 0
  #lease: Pick<NodeLease, 'nodeId' | 'epoch' | 'state' | 'standing'> | undefined
  #seen = 0
  /** The database knows something else of what was seen: it may have been put back from an older copy. */
  #isDoubted = false
  /** Which record was refused last as one that has changed. */
  readonly #refused = new Map<string, number>()
  #looking: Promise<void> | undefined

  constructor(options: SiteOrdersOptions) {
    const { server, log, clock } = options
    this.#options = options
    this.#connection = new PostgresConnection({ server, name: 'orders', log, clock })
    this.#asking = new PostgresConnection({ server, name: 'challenges', log, clock })
    this.#challenges = new FreshReader({ read: () => this.#readChallenges(), clock })
  }

  start(): void {
    this.#connection.start()
    this.#asking.start()
    this.#looking ??= this.#look()
  }

  /** From now on this gateway may order, while it has its lease. */
  orderAs(lease: Pick<NodeLease, 'nodeId' | 'epoch' | 'state' | 'standing'>): void {
    this.#lease = lease
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#looking
    await Promise.all([this.#connection.stop(), this.#asking.stop()])
  }

  find(id: CertificateId): CertificateRecord {
    return this.#records.get(keyOf(id)) ?? NOTHING
  }

  follow(id: CertificateId, listener: () => void): () => void {
    const key = keyOf(id)
    this.#listeners.set(key, listener)
    return () => {
      if (this.#listeners.get(key) === listener) this.#listeners.delete(key)
    }
  }

  /** One at a time: what one hears of all orders holds for those behind it. */
  claim(id: CertificateId, seen: number): Promise<Claimed> {
    return this.#claiming.run(async () => {
      const waitMs = this.#pausesUntil - this.#options.clock.monotonic()
      if (waitMs > 0) return { waitMs }
      try {
        return await this.#claim(id, seen)
      } catch (error) {
        this.#pause()
        throw error
      }
    })
  }

  #pause(): void {
    this.#pausesUntil = this.#options.clock.monotonic() + HELD_LOOKS * this.#lookMs
  }

  async #claim(id: CertificateId, seen: number): Promise<Claimed> {
    const { clock, log } = this.#options
    const lease = this.#lease
    const heldMs = HELD_LOOKS * this.#lookMs
    if (lease?.state !== 'held' || lease.standing !== 'serving') return { waitMs: heldMs }
    const { nodeId, epoch } = lease
    const [row] = await this.#connection.query<{ claimed: ClaimAnswer }>(
      'SELECT claim_certificate($1, $2, $3, $4, $5, $6, $7, $8) AS claimed',
      [...valuesOf(id), seen, nodeId, epoch, clock.now(), delayAfter(1)],
    )
    const { refused, wait_ms, failures = 0 } = row?.claimed ?? {}
    if (refused === undefined) return { order: this.#order(id, nodeId, epoch, failures) }
    if (refused === 'clock') {
      log.warn('the clock of this gateway is not that of the database: it orders no certificates')
    }
    if (refused === 'busy') this.#pause()
    if (refused === 'changed') {
      // Again, on the same: what is new since then does not say it.
      this.#isDoubted ||= this.#refused.get(keyOf(id)) === seen
      this.#refused.set(keyOf(id), seen)
    }
    return { waitMs: wait_ms ?? heldMs }
  }

  async retry(id: CertificateId): Promise<void> {
    await this.#connection.query(
      `WITH head AS (UPDATE certificate_head SET number = number + 1 RETURNING number)
       UPDATE certificates SET number = head.number, next_at = 0,
         early = array(SELECT t FROM unnest(early) t WHERE t > now_ms() - 3600000) || now_ms()
       FROM head WHERE ${OF} AND error IS NOT NULL AND node IS NULL AND $4 >
         (SELECT count(*) FROM unnest(early) t WHERE t > now_ms() - 3600000)`,
      [...valuesOf(id), EARLY_RETRIES],
    )
  }

  async forget(domainId: string): Promise<void> {
    await this.#connection.query('DELETE FROM certificates WHERE domain = $1', [domainId])
  }

  async accountKey(make: () => Promise<string>): Promise<string> {
    const { material } = this.#options
    return (
      (await material.findSecret(ACCOUNT_KEY)) ??
      (await material.keepSecret(ACCOUNT_KEY, await make()))
    )
  }

  async zone(name: string): Promise<ZoneView> {
    const challenges = await this.#challenges.read().catch(() => undefined)
    return { name, valuesOf: (asked) => challenges && (challenges.get(asked) ?? []) }
  }

  get #lookMs(): number {
    return this.#options.lookMs ?? LOOK_MS
  }

  #order(id: CertificateId, nodeId: string, epoch: number, failures: number): SiteOrder {
    const own = [...valuesOf(id), nodeId, epoch]
    const isOwn = `${OF} AND node = $4 AND epoch = $5`
    const require = async (sql: string, values: readonly unknown[] = []) => {
      const rows = await this.#connection.query(sql, [...own, ...values])
      if (rows.length === 0) throw new Error('another gateway has taken the order over')
    }
    return {
      publish: (name, value) =>
        require(`UPDATE certificates SET challenge_name = $6, challenges = challenges || $7::text
           WHERE ${isOwn} RETURNING domain`, [name, value]),
      requireOwn: () => require(`SELECT domain FROM certificates WHERE ${isOwn}`),
      conclude: (outcome) => this.#conclude(own, outcome, failures),
    }
  }

  /** A gateway that cannot say what became of its order is in the way of all others. */
  async #conclude(
    own: readonly unknown[],
    { pem = null, error = null }: { pem?: string | null; error?: string | null },
    failures: number,
  ): Promise<void> {
    const { log, clock } = this.#options
    const { signal } = this.#stopping
    const failedMs = error === null ? 0 : delayAfter(failures + 1)
    const values = [...own, pem, error, pem === null ? failedMs : ISSUED_MS]
    while (!signal.aborted) {
      try {
        const [row] = await this.#connection.query<{ is_kept: boolean }>(
          'SELECT conclude_certificate($1, $2, $3, $4, $5, $6, $7, $8) AS is_kept',
          values,
        )
        if (!row?.is_kept) log.warn('what was ordered is not kept: another gateway orders it')
        return
      } catch (err) {
        if (!(err instanceof DatabaseError)) throw err
        if (err.code === 'database-value') {
          log.error({ err }, 'what came of an order cannot be kept')
          values.splice(own.length, 3, null, UNKEPT, delayAfter(failures + 1))
        }
        log.debug({ err }, 'the end of an order was not noted')
      }
      await clock.sleep(this.#lookMs, signal).catch(() => {})
    }
  }

  async #look(): Promise<void> {
    const { log, clock } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#readChanges().catch((err: unknown) => {
        log.debug({ err }, 'the certificates of the site were not read')
      })
      await clock.sleep(this.#lookMs, signal).catch(() => {})
    }
  }

  async #readChanges(): Promise<void> {
    const [head] = await this.#connection.query<{ number: number }>(
      'SELECT number FROM certificate_head',
    )
    const latest = head?.number ?? 0
    const seen = this.#seen
    if (latest === seen && !this.#isDoubted) return
    const isAll = this.#isDoubted || latest <= seen || seen === 0
    this.#isDoubted = false
    const rows = await this.#connection.query<Row>(
      `SELECT domain, authority, key_type, number, pem, started_at, error, failing_since, next_at
       FROM certificates WHERE number > $1`,
      [isAll ? 0 : seen],
    )
    // What is not there is not any more.
    const told = new Set(isAll ? this.#records.keys() : [])
    if (isAll) {
      this.#records.clear()
      this.#refused.clear()
    }
    for (const row of rows) {
      const key = keyOf({ ...row, domainId: row.domain, keyType: row.key_type })
      this.#records.set(key, recordOf(row))
      told.add(key)
    }
    this.#seen = latest
    for (const key of told) this.#listeners.get(key)?.()
  }

  async #readChallenges(): Promise<ReadonlyMap<string, readonly string[]>> {
    const rows = await this.#asking.query<{ challenge_name: string; challenges: string[] }>(ASKED)
    const found = new Map<string, string[]>()
    for (const { challenge_name: name, challenges } of rows) {
      found.set(name, [...(found.get(name) ?? []), ...challenges])
    }
    return found
  }
}

interface ClaimAnswer {
  readonly refused?: 'lease' | 'changed' | 'held' | 'clock' | 'later' | 'busy'
  readonly wait_ms?: number
  readonly failures?: number
}

type LooseId = Pick<CertificateId, 'domainId' | 'authority'> & { readonly keyType: string }

function valuesOf({ domainId, authority, keyType }: CertificateId): unknown[] {
  return [domainId, authority, keyType]
}

function keyOf({ domainId, authority, keyType }: LooseId): string {
  return `${domainId} ${authority} ${keyType}`
}

function recordOf({ number, pem, started_at, error, failing_since, next_at }: Row) {
  return {
    number,
    pem: pem ?? undefined,
    startedAt: started_at ?? undefined,
    error: error ?? undefined,
    retriesAt: error === null ? undefined : next_at,
    failingSince: failing_since ?? undefined,
  }
}

/** The delay after so many failures in a row. */
function delayAfter(failures: number): number {
  const backoff = new Backoff({ ...RETRY, attempts: failures - 1 })
  return Math.max(RETRY_FLOOR_MS, backoff.next())
}
