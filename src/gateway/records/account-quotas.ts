import type { Logger } from '../../base/logger.ts'
import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import type { BotUserStore } from './bot-user-store.ts'
import type { EndpointAddress, OwnedAddress } from './endpoint-protocol.ts'
import { ServiceError } from './service-error.ts'

/** Code of all refusals by a quota, in the management API and at a bind. */
export const QUOTA_CODE = 18_021

/** Default quotas of an account: enough for 1,000 devices. */
export const DEFAULT_QUOTAS = {
  domains: 2_000,
  credentials: 5_000,
  keys: 200,
  cloud_endpoints: 1_000,
  online_endpoints: 10_000,
  policy_bytes: 16 * 1024 * 1024,
  webhooks: 10,
  notification_channels: 10,
  vaults: 50,
  secrets: 500,
} as const

export type QuotaName = keyof typeof DEFAULT_QUOTAS
export type Quotas = Readonly<Record<QuotaName, number>>
export const QUOTA_NAMES = Object.keys(DEFAULT_QUOTAS) as QuotaName[]

const TEXTS: Readonly<Record<QuotaName, string>> = {
  domains: 'reserved domains',
  credentials: 'authtokens',
  keys: 'API keys',
  cloud_endpoints: 'cloud endpoints',
  online_endpoints: 'online endpoints of devices',
  policy_bytes: 'bytes of traffic policies',
  webhooks: 'webhook endpoints',
  notification_channels: 'notification channels',
  vaults: 'vaults',
  secrets: 'secrets of policies',
}

export const QUOTA_MIGRATIONS: readonly Migration[] = [
  {
    id: 'account-quotas-1',
    sql: `ALTER TABLE bot_users ADD COLUMN quotas TEXT NOT NULL DEFAULT '{}';
    CREATE INDEX reserved_domains_owner ON reserved_domains (owner_id);
    CREATE INDEX api_keys_owner ON api_keys (owner_id);
    CREATE INDEX cloud_endpoints_owner ON cloud_endpoints (owner_id);
    CREATE INDEX webhook_endpoints_owner ON webhook_endpoints (owner_id)`,
  },
]

/** Online endpoints of an account's devices. */
export interface OnlineUsage {
  readonly endpoints: number
  readonly policyBytes: number
}

/** Counters of online endpoints. */
export interface OnlineCounts {
  /** At this gateway. */
  here(ownerId: string): OnlineUsage
  /** Known endpoints at other gateways. */
  elsewhere(): Iterable<OwnedAddress>
}

/**
 * How much each account may have and has. Records are counted in the transaction that adds one, so two
 * creates at once do not pass a quota. The gateway's owner has no quotas.
 */
export class AccountQuotas {
  readonly #botUsers: Pick<BotUserStore, 'get'>
  readonly #counts: Readonly<
    Record<Exclude<QuotaName, 'online_endpoints'>, Statement<[string], number>>
  >
  #online: OnlineCounts | undefined

  constructor(database: Database, botUsers: Pick<BotUserStore, 'get'>) {
    this.#botUsers = botUsers
    const count = (table: string, what = 'count(*)') =>
      database.prepare<[string], number>(`SELECT ${what} FROM ${table} WHERE owner_id = ?`).pluck()
    this.#counts = {
      domains: count('reserved_domains'),
      credentials: count('credentials'),
      keys: count('api_keys'),
      cloud_endpoints: count('cloud_endpoints'),
      policy_bytes: count(
        'cloud_endpoints',
        'coalesce(sum(length(CAST(traffic_policy AS BLOB))), 0)',
      ),
      webhooks: count('webhook_endpoints'),
      notification_channels: count('notification_channels'),
      vaults: count('vaults'),
      secrets: count('vault_secrets'),
    }
  }

  countOnline(counts: OnlineCounts): void {
    this.#online = counts
  }

  limitsOf(ownerId: string): Quotas {
    return { ...DEFAULT_QUOTAS, ...this.#botUsers.get(ownerId)?.quotas }
  }

  usageOf(ownerId: string): Quotas {
    return Object.fromEntries(
      QUOTA_NAMES.map((name) => [name, this.#used(ownerId, name)]),
    ) as Record<QuotaName, number>
  }

  /** Says which quotas the account exceeds, such as after a lower quota. Undefined if it exceeds none. */
  warningOf(ownerId: string, names: readonly QuotaName[] = QUOTA_NAMES): string | undefined {
    const limits = this.limitsOf(ownerId)
    const exceeded = names.flatMap((name) => {
      const used = this.#used(ownerId, name)
      return used > limits[name] ? `${name} (${used} of ${limits[name]})` : []
    })
    if (exceeded.length === 0) return undefined
    return `The account exceeds its quotas: ${exceeded.join(', ')}. All it has keeps working, and new ones are refused. Delete some, or ask the gateway's owner to raise the quota.`
  }

  /** Throws ServiceError 18021 when `more` does not fit into a quota of the account. */
  check(ownerId: string | null, name: QuotaName, more = 1, moving?: EndpointAddress): void {
    if (ownerId === null || more <= 0) return
    const limit = this.limitsOf(ownerId)[name]
    const used = this.#used(ownerId, name, moving)
    if (used + more <= limit) return
    throw new ServiceError(
      QUOTA_CODE,
      `The account ${ownerId} has reached its quota of ${TEXTS[name]} (${name}): ${used} of ${limit} used, ${more} more needed. Delete some, or ask the gateway's owner to raise the quota.`,
    )
  }

  /** Checks a bind of a name that the account does not have here; at another gateway it gives it up. */
  checkBind(ownerId: string | null, address: EndpointAddress, policy: string | null): void {
    this.check(ownerId, 'online_endpoints', 1, address)
    this.check(ownerId, 'policy_bytes', Buffer.byteLength(policy ?? ''))
  }

  #used(ownerId: string, name: QuotaName, moving?: EndpointAddress): number {
    const online = this.#online?.here(ownerId)
    if (name === 'online_endpoints') {
      let endpoints = online?.endpoints ?? 0
      for (const address of this.#online?.elsewhere() ?? []) {
        const isMoving = address.host === moving?.host && address.protocol === moving.protocol
        if (address.ownerId === ownerId && !isMoving) endpoints += 1
      }
      return endpoints
    }
    const kept = this.#counts[name].get(ownerId) ?? 0
    return name === 'policy_bytes' ? kept + (online?.policyBytes ?? 0) : kept
  }
}

/** Quotas of stored records. At a start, no device is online. */
const STORED = QUOTA_NAMES.filter((name) => name !== 'online_endpoints')
/** Maximum number of accounts in the log. */
const MAX_LISTED = 20

/** Logs the accounts that exceed their quotas, for the gateway's owner. Call it once at the start. */
export function tellOfExceededQuotas(
  { botUsers, quotas }: { botUsers: Pick<BotUserStore, 'all'>; quotas: AccountQuotas },
  log: Logger,
): void {
  let count = 0
  for (const { id } of botUsers.all()) {
    const warning = quotas.warningOf(id, STORED)
    if (warning === undefined) continue
    count += 1
    if (count <= MAX_LISTED) log.warn({ account: id }, warning)
  }
  if (count > MAX_LISTED) log.warn({ count }, 'more accounts exceed their quotas than are listed')
}
