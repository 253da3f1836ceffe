import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { wildcardsAbove } from './domain-name.ts'
import type { PrivateKeyType } from './private-key.ts'
import { ResourceTable } from './resource-table.ts'

export const RESERVED_DOMAIN_MIGRATIONS: readonly Migration[] = [
  {
    id: 'reserved-domains-1',
    sql: `CREATE TABLE reserved_domains (
      id TEXT PRIMARY KEY,
      domain TEXT NOT NULL UNIQUE,
      region TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      dns_label TEXT NOT NULL UNIQUE,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
  {
    id: 'reserved-domains-2',
    sql: `ALTER TABLE reserved_domains ADD COLUMN authority TEXT NOT NULL DEFAULT 'gateway';
      ALTER TABLE reserved_domains ADD COLUMN private_key_type TEXT NOT NULL DEFAULT 'ecdsa'`,
  },
  {
    // DNS records outlast an owner, so its domains stay with the gateway.
    id: 'reserved-domains-3',
    sql: `ALTER TABLE reserved_domains
      ADD COLUMN owner_id TEXT REFERENCES bot_users (id) ON DELETE SET NULL`,
  },
  {
    // It is unknown whether the gateway's owner created earlier domains.
    id: 'reserved-domains-4',
    sql: `ALTER TABLE reserved_domains
      ADD COLUMN granted INTEGER NOT NULL DEFAULT 0 CHECK (granted IN (0, 1))`,
  },
  {
    id: 'reserved-domains-5',
    sql: `ALTER TABLE reserved_domains ADD COLUMN challenge TEXT NOT NULL DEFAULT 'dns-01'`,
  },
]

/** Issuer of a domain's certificate: the gateway's own CA, or the ACME authority. */
export const CERTIFICATE_AUTHORITIES = ['gateway', 'letsencrypt'] as const
export type CertificateAuthorityName = (typeof CERTIFICATE_AUTHORITIES)[number]

/**
 * How an ACME authority checks a domain. `dns-01`: by DNS, also for a wildcard. `on-demand`: by connections to
 * the gateway, separately for each name that is reserved or online.
 */
export const CHALLENGE_METHODS = ['dns-01', 'on-demand'] as const
export type ChallengeMethod = (typeof CHALLENGE_METHODS)[number]

/** A name, or a wildcard with all names below it, that endpoints may be bound on (spec 2.4). */
export interface ReservedDomain {
  readonly id: string
  /** Lower case. */
  readonly domain: string
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  readonly region: string
  readonly description: string
  readonly metadata: string
  /** First label of the CNAME targets; drawn once, so that DNS records stay good. */
  readonly dnsLabel: string
  readonly createdAt: number
  readonly authority: CertificateAuthorityName
  readonly privateKeyType: PrivateKeyType
  readonly challenge: ChallengeMethod
  /** Uploaded certificate; null: the authority issues the certificate. */
  readonly certificateId: string | null
  /** The gateway's owner has made it, or given it to its owner: it may overlap with others. */
  readonly isGranted: boolean
}

/** Whether certificates are ordered for single names, by challenges on the public ports. */
export function isOnDemand({
  authority,
  challenge,
}: Pick<ReservedDomain, 'authority' | 'challenge'>) {
  return authority !== 'gateway' && challenge === 'on-demand'
}

export class ReservedDomainStore extends ResourceTable<ReservedDomain> {
  /** The reservation of exactly this name: read several times for each bind. */
  readonly find = this.getBy('domain')
  readonly #idsBelow: Statement<[{ apex: string; suffix: string }], string>

  constructor(database: Database) {
    super({
      database,
      name: 'reserved_domains',
      columns: {
        id: 'plain',
        domain: 'plain',
        ownerId: 'plain',
        region: 'plain',
        description: 'plain',
        metadata: 'plain',
        dnsLabel: 'plain',
        createdAt: 'plain',
        authority: 'plain',
        privateKeyType: 'plain',
        challenge: 'plain',
        certificateId: 'plain',
        isGranted: 'flag',
      },
    })
    this.#idsBelow = database
      .prepare<[{ apex: string; suffix: string }], string>(
        `SELECT id FROM reserved_domains
         WHERE domain = @apex OR substr(domain, -length(@suffix)) = @suffix`,
      )
      .pluck()
  }

  /** The reservations above a domain and below it, and of the domain itself. */
  related(domain: string): ReservedDomain[] {
    const above = [domain, ...wildcardsAbove(domain)].flatMap((name) => this.find(name) ?? [])
    if (!domain.startsWith('*.')) {
      const wildcard = this.find(`*.${domain}`)
      return wildcard ? [...above, wildcard] : above
    }
    const below = this.#idsBelow.all({ apex: domain.slice(2), suffix: domain.slice(1) })
    return [...above, ...below.flatMap((id) => this.get(id) ?? [])]
  }
}
