import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import { ResourceTable } from '../../records/resource-table.ts'

export const CERTIFICATE_AUTHORITY_MIGRATIONS: readonly Migration[] = [
  {
    id: 'certificate-authorities-1',
    sql: `CREATE TABLE certificate_authorities (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      ca_pem TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX certificate_authorities_owner ON certificate_authorities (owner_id)`,
  },
]

/** A CA that signs certificates of clients. Its certificates never change. */
export interface CertificateAuthority {
  /** `ca_<ksuid>` */
  readonly id: string
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  readonly description: string
  readonly metadata: string
  /** One CA certificate or more. */
  readonly caPem: string
  readonly createdAt: number
}

export class CertificateAuthorityStore extends ResourceTable<CertificateAuthority> {
  readonly #countOf: Statement<[string | null], number>
  /** Policies read an authority at each connection. */
  readonly #kept = new Map<string, CertificateAuthority>()
  #keptVersion = -1

  constructor(database: Database) {
    super({
      database,
      name: 'certificate_authorities',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        description: 'plain',
        metadata: 'plain',
        caPem: 'plain',
        createdAt: 'plain',
      },
    })
    this.#countOf = database
      .prepare<[string | null], number>(
        'SELECT count(*) FROM certificate_authorities WHERE owner_id IS ?',
      )
      .pluck()
  }

  /** Number of an account; null: the gateway's owner. */
  countOf(ownerId: string | null): number {
    return this.#countOf.get(ownerId) ?? 0
  }

  /**
   * PEM of an authority that policies of an account may use: the account's own, or the gateway owner's.
   * Undefined if there is none.
   */
  pemFor(id: string, ownerId: string | null): string | undefined {
    if (this.version !== this.#keptVersion) this.#kept.clear()
    this.#keptVersion = this.version
    const authority = this.#kept.get(id) ?? this.get(id)
    if (!authority || (authority.ownerId !== null && authority.ownerId !== ownerId))
      return undefined
    this.#kept.set(id, authority)
    return authority.caPem
  }
}
