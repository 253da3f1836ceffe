import { randomBytes } from 'node:crypto'
import { parse } from 'tldts'
import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const WEEK_MS = 7 * DAY_MS
/** Orders are kept a little longer than the longest window of a budget. */
const KEPT_MS = WEEK_MS + DAY_MS
/** Delay after a failed order: doubled with each failure. Authorities often allow five failures an hour. */
const RETRY_MS = 300_000
const MAX_RETRY_MS = 43_200_000
/** An order further ahead is of a clock that was wrong, and does not count. */
const AHEAD_MS = 300_000

export const CERTIFICATE_ORDER_MIGRATIONS: readonly Migration[] = [
  {
    id: 'certificate-orders-1',
    sql: `CREATE TABLE certificate_orders (
      id TEXT PRIMARY KEY,
      name TEXT NOT NULL,
      registered_domain TEXT NOT NULL,
      account TEXT NOT NULL,
      is_renewal INTEGER NOT NULL CHECK (is_renewal IN (0, 1)),
      at INTEGER NOT NULL,
      is_issued INTEGER NOT NULL CHECK (is_issued IN (0, 1)),
      error TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX certificate_orders_at ON certificate_orders (at);
    CREATE INDEX certificate_orders_name ON certificate_orders (name, at)`,
  },
]

interface OrderBudget {
  readonly max: number
  readonly windowMs: number
  readonly text: string
  /** Orders that it counts and limits; unset: all. */
  readonly isNew?: true
  readonly isOfBotUsers?: true
  /** Counts failed orders, and limits accounts that have one in the same time. */
  readonly isFailed?: true
  readonly per?: readonly ('account' | 'domain')[]
}

/**
 * Most orders in a time. Let's Encrypt allows 300 orders in 3 hours, and 50 certificates a week for a
 * registered domain. Renewals and failed orders do not count for the registered domain, there and here. Bot
 * users together leave a part to the gateway's owner, and new certificates leave a part to renewals.
 */
export const ORDER_BUDGETS = {
  gateway: { max: 20, windowMs: HOUR_MS, text: '20 orders an hour for all accounts' },
  new: {
    ...{ max: 15, windowMs: HOUR_MS, isNew: true },
    text: '15 new certificates an hour for all accounts',
  },
  botUsers: {
    ...{ max: 15, windowMs: HOUR_MS, isOfBotUsers: true },
    text: '15 orders an hour for all bot users',
  },
  newOfBotUsers: {
    ...{ max: 10, windowMs: HOUR_MS, isNew: true, isOfBotUsers: true },
    text: '10 new certificates an hour for all bot users',
  },
  failed: {
    ...{ max: 7, windowMs: HOUR_MS, isFailed: true, isOfBotUsers: true },
    text: '7 failed orders an hour for all bot users',
  },
  account: {
    ...{ max: 5, windowMs: HOUR_MS, isOfBotUsers: true, per: ['account'] },
    text: '5 orders an hour for one bot user',
  },
  domain: {
    ...{ max: 30, windowMs: WEEK_MS, isNew: true, per: ['domain'] },
    text: '30 new certificates a week for one domain',
  },
  domainOfBotUsers: {
    ...{ max: 20, windowMs: WEEK_MS, isNew: true, isOfBotUsers: true, per: ['domain'] },
    text: '20 new certificates a week for all bot users below one domain',
  },
  share: {
    ...{ max: 5, windowMs: WEEK_MS, isNew: true, isOfBotUsers: true, per: ['account', 'domain'] },
    text: '5 new certificates a week for one bot user below one domain',
  },
} as const satisfies Readonly<Record<string, OrderBudget>>

/** An order that is about to be placed. */
export interface WantedOrder {
  readonly name: string
  /** Bot user; null for the gateway's owner. */
  readonly ownerId: string | null
  /** The name has a certificate of this authority. */
  readonly isRenewal: boolean
}

/** Reason why an order must wait. */
export interface OrderDelay {
  readonly waitMs: number
  readonly reason: string
}

interface Known {
  readonly at: number
  readonly is_issued: 0 | 1
  readonly error: string | null
}

const INTERRUPTED = 'The gateway ended before the order was complete.'

/** Orders of single certificates, for budgets and for delays after failures. They outlast restarts. */
export class CertificateOrderStore {
  readonly #database: Database
  readonly #ofName: Statement<[string, number], Known>
  readonly #budgets: readonly { budget: OrderBudget; nth: Statement<[object], number> }[]
  readonly #lastFailed: Statement<[string, number, number], number>
  readonly #add: Statement<[object]>
  readonly #conclude: Statement<[object]>
  readonly #sweep: Statement<[number, number]>

  constructor(database: Database) {
    this.#database = database
    this.#ofName = database.prepare(
      `SELECT at, is_issued, error FROM certificate_orders WHERE name = ? AND at <= ?
       ORDER BY at DESC LIMIT 32`,
    )
    this.#budgets = Object.values(ORDER_BUDGETS).map((budget: OrderBudget) => ({
      budget,
      nth: database
        .prepare<[object], number>(
          `SELECT at FROM certificate_orders
           WHERE at > @since AND at <= @latest ${conditionOf(budget)}
           ORDER BY at DESC LIMIT 1 OFFSET ${budget.max - 1}`,
        )
        .pluck(),
    }))
    this.#lastFailed = database
      .prepare<[string, number, number], number>(
        `SELECT at FROM certificate_orders
         WHERE account = ? AND at > ? AND at <= ? AND error IS NOT NULL ORDER BY at DESC LIMIT 1`,
      )
      .pluck()
    this.#add = database.prepare(
      `INSERT INTO certificate_orders
       VALUES (@id, @name, @domain, @account, @renewal, @now, 0, NULL)`,
    )
    this.#conclude = database.prepare(
      'UPDATE certificate_orders SET is_issued = @issued, error = @error WHERE id = @id',
    )
    this.#sweep = database.prepare('DELETE FROM certificate_orders WHERE at < ? OR at > ?')
  }

  /** Number of failed and interrupted orders of a name since its last certificate. */
  failuresOf(name: string, now: number): number {
    return failuresIn(this.#known(name, now))
  }

  /** How long a name must wait after its last failure; undefined if it need not wait. */
  delayAfterFailure(name: string, now: number): OrderDelay | undefined {
    const known = this.#known(name, now)
    const failures = failuresIn(known)
    const [last] = known
    if (failures === 0 || !last) return undefined
    const delayMs = Math.min(MAX_RETRY_MS, RETRY_MS * 2 ** Math.min(failures - 1, 30))
    const waitMs = Math.min(delayMs, last.at + delayMs - now)
    return waitMs > 0 ? { waitMs, reason: last.error ?? INTERRUPTED } : undefined
  }

  /** Why a budget does not allow an order now. */
  overBudget(wanted: WantedOrder, now: number): OrderDelay | undefined {
    const values = valuesOf(wanted)
    for (const { budget, nth } of this.#budgets) {
      const { windowMs, text, isNew, isOfBotUsers, isFailed } = budget
      if ((isNew && wanted.isRenewal) || (isOfBotUsers && wanted.ownerId === null)) continue
      const [since, latest] = [now - windowMs, now + AHEAD_MS]
      if (isFailed && this.#lastFailed.get(values.account, since, latest) === undefined) continue
      const oldest = nth.get({ ...values, since, latest })
      if (oldest === undefined) continue
      const waitMs = Math.min(windowMs, oldest + windowMs - now)
      return { waitMs, reason: `The limit for certificates is reached: ${text}.` }
    }
    return undefined
  }

  /** Counts an order and returns its id, or returns why it must wait. It is on disk before it is placed. */
  begin(wanted: WantedOrder, now: number): Promise<string | OrderDelay> {
    const id = randomBytes(12).toString('hex')
    return this.#database.change(() => {
      const delay = this.overBudget(wanted, now)
      if (delay) return delay
      this.#sweep.run(now - KEPT_MS, now + AHEAD_MS)
      this.#add.run({ ...valuesOf(wanted), id, now })
      return id
    })
  }

  /** Records the result. Without an error the certificate was issued. */
  async conclude(id: string, error: string | undefined): Promise<void> {
    const values = { id, issued: error === undefined ? 1 : 0, error: error ?? null }
    await this.#database.change(() => this.#conclude.run(values))
  }

  /** The last orders of a name, the latest first. */
  #known(name: string, now: number): readonly Known[] {
    return this.#ofName.all(name, now + AHEAD_MS)
  }
}

function failuresIn(known: readonly Known[]): number {
  const issued = known.findIndex(({ is_issued }) => is_issued === 1)
  return issued === -1 ? known.length : issued
}

/** SQL condition for the orders that a budget counts. */
function conditionOf({ isNew, isOfBotUsers, isFailed, per = [] }: OrderBudget): string {
  const conditions = []
  if (isNew) conditions.push('AND is_renewal = 0')
  if (isOfBotUsers) conditions.push("AND account <> ''")
  if (isFailed) conditions.push('AND error IS NOT NULL')
  if (per.includes('account')) conditions.push('AND account = @account')
  if (per.includes('domain')) {
    // Authorities count certificates. Without a result, an order may have led to one.
    conditions.push('AND registered_domain = @domain AND (is_issued = 1 OR error IS NULL)')
  }
  return conditions.join(' ')
}

function valuesOf({ name, ownerId, isRenewal }: WantedOrder) {
  return {
    name,
    domain: registeredDomain(name),
    account: ownerId ?? '',
    renewal: isRenewal ? 1 : 0,
  }
}

/** The domain that an authority counts certificates for. Private suffixes, as `github.io`, count too. */
function registeredDomain(name: string): string {
  const { domain } = parse(name, { allowPrivateDomains: true, extractHostname: false })
  return domain ?? name
}
