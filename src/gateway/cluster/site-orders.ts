import { Backoff } from '../../base/backoff.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { ACCOUNT_KEY } from '../certificates/acme/acme-authority.ts'
import type {
  CertificateId,
  CertificateRecord,
  Claimed,
  OrderBook,
  SiteOrder,
  ZoneView,
} from '../certificates/acme/order-book.ts'
import { CertificateRecords } from './certificate-records.ts'
import type { NodeLease } from './nodes/node-lease.ts'
import type { SharedMaterial } from './nodes/shared-material.ts'
import { DatabaseError } from './postgres/database-error.ts'
import type { PostgresConnection } from './postgres/postgres-connection.ts'

/** Between two reads. */
const PAUSE_MS = 20

/**
 * Shares reads among many callers: each result was read after its call. At most one read runs, and one waits.
 */
export class FreshReader<T> {
  readonly #read: () => Promise<T>
  readonly #clock: Clock
  #running: Promise<unknown> = Promise.resolve()
  #next: Promise<T> | undefined

  constructor({ read, clock }: { read: () => Promise<T>; clock: Clock }) {
    this.#read = read
    this.#clock = clock
  }

  /** Rejects when the read does. */
  read(): Promise<T> {
    if (this.#next) return this.#next
    const next = this.#running.then(() => {
      this.#next = undefined
      return this.#read()
    })
    this.#next = next
    this.#running = next.catch(() => {}).then(() => this.#clock.sleep(PAUSE_MS))
    return next
  }
}

/** Interval of polls for orders of other gateways. */
const POLL_MS = 1_000
/** Polls between attempts to take over an order of another gateway. */
const HELD_POLLS = 5
/** As with one gateway: authorities count failed orders, five an hour for a name are common. */
const RETRY = { baseMs: 300_000, capMs: 43_200_000 }
const RETRY_FLOOR_MS = 60_000
/** Shortest time between two orders of a certificate, even if its result is unusable. */
const ISSUED_MS = 600_000
/** Orders that people may ask for out of turn, in an hour. */
const EARLY_RETRIES = 3
/** Has its own index: any client can ask for challenges. */
export const ASKED = "SELECT challenge_name, challenges FROM certificates WHERE challenges <> '{}'"
/** Refusals that follow a check of the clock, so they show that it is correct. */
const AFTER_CLOCK: ReadonlySet<Refusal> = new Set(['clock', 'later', 'busy'])
const CLOCK_OFF =
  'The clock of this gateway differs from PostgreSQL by more than 5 minutes. It orders no certificates ' +
  'until both clocks are correct. Use NTP, for example.'
const UNKEPT = 'The answer of the authority could not be saved. See the log of the gateway.'
const OF = 'domain = $1 AND authority = $2 AND key_type = $3'

export interface SiteOrdersOptions {
  readonly connection: PostgresConnection
  /** For reads: the followed records, and challenges that anyone can ask for. */
  readonly reads: PostgresConnection
  readonly material: Pick<SharedMaterial, 'findSecret' | 'keepSecret'>
  readonly lookMs?: number | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** The orders of the site, as `certificate-steps.ts` has them in PostgreSQL. */
export class SiteOrders implements OrderBook {
  readonly #options: SiteOrdersOptions
  readonly #connection: PostgresConnection
  readonly #challenges: FreshReader<ReadonlyMap<string, readonly string[]>>
  readonly #records: CertificateRecords
  readonly #stopping = new AbortController()
  readonly #claiming = new Semaphore(1)
  /**
   * Monotonic time until which no order is claimed: the limit is reached, or the database does not answer.
   */
  #pausesUntil = 0
  #isClockOff = false
  #lease: Pick<NodeLease, 'nodeId' | 'epoch' | 'state' | 'standing'> | undefined
  constructor(options: SiteOrdersOptions) {
    const { connection, reads, lookMs = POLL_MS, log, clock } = options
    this.#options = options
    this.#connection = connection
    this.#records = new CertificateRecords({ connection: reads, lookMs, log, clock })
    this.#challenges = new FreshReader({ read: () => this.#readChallenges(), clock })
  }

  start(): void {
    this.#records.start()
  }

  /** From now on this gateway may order, while it has its lease. */
  orderAs(lease: Pick<NodeLease, 'nodeId' | 'epoch' | 'state' | 'standing'>): void {
    this.#lease = lease
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#records.stop()
  }

  find(id: CertificateId): CertificateRecord {
    return this.#records.find(id)
  }

  follow(id: CertificateId, listener: () => void): () => void {
    return this.#records.follow(id, listener)
  }

  /** One at a time: a refusal for all orders then applies to the waiting calls, too. */
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
    this.#pausesUntil = this.#options.clock.monotonic() + HELD_POLLS * this.#lookMs
  }

  async #claim(id: CertificateId, seen: number): Promise<Claimed> {
    const { clock } = this.#options
    const lease = this.#lease
    const heldMs = HELD_POLLS * this.#lookMs
    if (lease?.state !== 'held' || lease.standing !== 'serving') return { waitMs: heldMs }
    const { nodeId, epoch } = lease
    const [row] = await this.#connection.query<{ claimed: ClaimAnswer }>(
      `SELECT claim_certificate($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::bigint,
         $7::bigint, $8::bigint) AS claimed`,
      [...valuesOf(id), seen, nodeId, epoch, clock.now(), delayAfter(1)],
    )
    const { refused, wait_ms, failures = 0 } = row?.claimed ?? {}
    if (refused === undefined || AFTER_CLOCK.has(refused)) this.#tellClock(refused === 'clock')
    if (refused === undefined) return { order: this.#order(id, nodeId, epoch, failures) }
    if (refused === 'busy') this.#pause()
    if (refused === 'changed') this.#records.doubt(id, seen)
    return { waitMs: wait_ms ?? heldMs, problem: refused === 'clock' ? CLOCK_OFF : undefined }
  }

  #tellClock(isOff: boolean): void {
    if (isOff === this.#isClockOff) return
    this.#isClockOff = isOff
    const { log } = this.#options
    if (isOff) log.warn(CLOCK_OFF)
    else log.info('the clock of this gateway matches PostgreSQL again: ordering certificates')
  }

  async retry(id: CertificateId): Promise<void> {
    await this.#connection.query(
      `WITH head AS (UPDATE certificate_head SET number = number + 1 RETURNING number)
       UPDATE certificates SET number = head.number, next_at = 0,
         early = array(SELECT t FROM pg_catalog.unnest(early) t WHERE t > now_ms() - 3600000) || now_ms()
       FROM head WHERE ${OF} AND error IS NOT NULL AND node IS NULL AND $4 >
         (SELECT count(*) FROM pg_catalog.unnest(early) t WHERE t > now_ms() - 3600000)`,
      [...valuesOf(id), EARLY_RETRIES],
    )
  }

  async forget(domainId: string): Promise<void> {
    // `:` separates the id of a reserved wildcard from a name below it.
    await this.#connection.query(
      "DELETE FROM certificates WHERE domain = $1 OR starts_with(domain, $1 || ':')",
      [domainId],
    )
    await this.#records.forget(domainId)
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
    return this.#options.lookMs ?? POLL_MS
  }

  #order(id: CertificateId, nodeId: string, epoch: number, failures: number): SiteOrder {
    const own = [...valuesOf(id), nodeId, epoch]
    const isOwn = `${OF} AND node = $4 AND epoch = $5`
    const require = async (sql: string, values: readonly unknown[] = []) => {
      const rows = await this.#connection.query(sql, [...own, ...values])
      if (rows.length === 0) throw new Error('another gateway took over the order')
    }
    return {
      publish: (name, value) =>
        require(`UPDATE certificates SET challenge_name = $6, challenges = challenges || $7::text
           WHERE ${isOwn} RETURNING domain`, [name, value]),
      requireOwn: () => require(`SELECT domain FROM certificates WHERE ${isOwn}`),
      conclude: (outcome) => this.#conclude(own, outcome, failures),
    }
  }

  /** Repeats until the result is recorded: an order without a result blocks all others. */
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
          `SELECT conclude_certificate($1::text, $2::text, $3::text, $4::text, $5::bigint, $6::text,
             $7::text, $8::bigint) AS is_kept`,
          values,
        )
        if (!row?.is_kept) log.warn('certificate discarded: another gateway took over the order')
        return
      } catch (err) {
        if (!(err instanceof DatabaseError)) throw err
        if (err.code === 'database-value') {
          log.error({ err }, 'the result of an order could not be saved')
          values.splice(own.length, 3, null, UNKEPT, delayAfter(failures + 1))
        }
        log.debug({ err }, 'the end of an order was not recorded')
      }
      await clock.sleep(this.#lookMs, signal).catch(() => {})
    }
  }

  async #readChallenges(): Promise<ReadonlyMap<string, readonly string[]>> {
    const rows = await this.#options.reads.query<{ challenge_name: string; challenges: string[] }>(
      ASKED,
    )
    const found = new Map<string, string[]>()
    for (const { challenge_name: name, challenges } of rows) {
      found.set(name, [...(found.get(name) ?? []), ...challenges])
    }
    return found
  }
}

type Refusal = 'lease' | 'changed' | 'held' | 'clock' | 'later' | 'busy'

interface ClaimAnswer {
  readonly refused?: Refusal
  readonly wait_ms?: number
  readonly failures?: number
}

function valuesOf({ domainId, authority, keyType }: CertificateId): unknown[] {
  return [domainId, authority, keyType]
}

/** The delay after so many failures in a row. */
function delayAfter(failures: number): number {
  const backoff = new Backoff({ ...RETRY, attempts: failures - 1 })
  return Math.max(RETRY_FLOOR_MS, backoff.next())
}
