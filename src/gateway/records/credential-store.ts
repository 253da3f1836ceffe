import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'

export const CREDENTIAL_MIGRATIONS: readonly Migration[] = [
  {
    id: 'credentials-1',
    sql: `CREATE TABLE credentials (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      acl TEXT NOT NULL CHECK (json_type(acl) = 'array'),
      token_hash TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX credentials_owner ON credentials (owner_id)`,
  },
  {
    // Of the rules of before, those for the account's own domains may be by the account itself.
    id: 'credentials-2',
    sql: `ALTER TABLE credentials ADD COLUMN granted TEXT NOT NULL DEFAULT '[]';
      UPDATE credentials SET granted = (
        SELECT json_group_array(value) FROM json_each(acl) WHERE NOT EXISTS (
          SELECT 1 FROM reserved_domains
          WHERE reserved_domains.owner_id = credentials.owner_id AND (
            lower(value) = 'bind:' || domain
            OR domain LIKE '*.%' AND lower(value) LIKE 'bind:%' || substr(domain, 2)
          )
        )
      )`,
  },
]

/** An authtoken with what it may bind. Only the hash of the token is kept. */
export interface Credential {
  readonly id: string
  /** The bot user that it belongs to; null for one that belongs to the gateway's owner. */
  readonly ownerId: string | null
  readonly description: string
  readonly metadata: string
  /** Rules as `acl.ts` reads them; without any it may bind what its owner has. */
  readonly acl: readonly string[]
  /** Those of the rules that the gateway's owner has set: they may give names of the owner's domains. */
  readonly granted: readonly string[]
  readonly tokenHash: string
  readonly createdAt: number
}

export class CredentialStore extends ResourceTable<Credential> {
  readonly #idsOfOwner: Statement<[string], string>

  constructor(database: Database) {
    super({
      database,
      name: 'credentials',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        description: 'plain',
        metadata: 'plain',
        acl: 'json',
        granted: 'json',
        tokenHash: 'plain',
        createdAt: 'plain',
      },
    })
    this.#idsOfOwner = database
      .prepare<[string], string>('SELECT id FROM credentials WHERE owner_id = ? ORDER BY id')
      .pluck()
  }

  idsOfOwner(ownerId: string): string[] {
    return this.#idsOfOwner.all(ownerId)
  }
}
