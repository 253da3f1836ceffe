import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'

export const TLS_CERTIFICATE_MIGRATIONS: readonly Migration[] = [
  {
    id: 'tls-certificates-1',
    sql: `CREATE TABLE tls_certificates (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE SET NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      cert_pem TEXT NOT NULL,
      sealed_key TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX tls_certificates_owner ON tls_certificates (owner_id);
    ALTER TABLE reserved_domains
      ADD COLUMN certificate_id TEXT REFERENCES tls_certificates (id);
    CREATE INDEX reserved_domains_certificate ON reserved_domains (certificate_id)`,
  },
]

/** A certificate that was uploaded for reserved domains. Certificate and key never change. */
export interface TlsCertificate {
  /** `cert_<ksuid>` */
  readonly id: string
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  readonly description: string
  readonly metadata: string
  /** Certificate and chain, leaf first. */
  readonly certPem: string
  /** Private key in PEM, see `SecretSeal`. */
  readonly sealedKey: string
  readonly createdAt: number
}

export class TlsCertificateStore extends ResourceTable<TlsCertificate> {
  readonly #countOf: Statement<[string | null], number>
  readonly #domainsOf: Statement<[string], string>

  constructor(database: Database) {
    super({
      database,
      name: 'tls_certificates',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        description: 'plain',
        metadata: 'plain',
        certPem: 'plain',
        sealedKey: 'plain',
        createdAt: 'plain',
      },
    })
    this.#countOf = database
      .prepare<[string | null], number>('SELECT count(*) FROM tls_certificates WHERE owner_id IS ?')
      .pluck()
    this.#domainsOf = database
      .prepare<[string], string>(
        'SELECT domain FROM reserved_domains WHERE certificate_id = ? ORDER BY domain',
      )
      .pluck()
  }

  /** Number of an account; null: the gateway's owner. */
  countOf(ownerId: string | null): number {
    return this.#countOf.get(ownerId) ?? 0
  }

  /** Reserved domains that use a certificate. */
  domainsOf(id: string): string[] {
    return this.#domainsOf.all(id)
  }
}
