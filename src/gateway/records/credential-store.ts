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
    // Of earlier rules, those for the account's own domains count as set by the account.
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
  {
    id: 'credentials-3',
    sql: 'ALTER TABLE credentials ADD COLUMN successor TEXT CHECK (json_valid(successor))',
  },
]

/** Texts and rules that an authtoken brings. */
export type AuthtokenTerms = Pick<Credential, 'description' | 'metadata' | 'acl' | 'granted'>

/** A new authtoken of a device that has joined again, until the device uses it. */
export interface Successor extends AuthtokenTerms, Pick<Credential, 'tokenHash'> {
  /** The invitation that it comes from, for the audit trail. */
  readonly invite: { readonly id: string; readonly name: string }
}

/** An authtoken with its rules. Only the hash of the token is stored. */
export interface Credential {
  readonly id: string
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  readonly description: string
  readonly metadata: string
  /** Rules in the format of `acl.ts`. Without rules, it may bind all names of its owner. */
  readonly acl: readonly string[]
  /** Rules that the gateway's owner set: they may allow names of the owner's domains. */
  readonly granted: readonly string[]
  readonly tokenHash: string
  /** Waits for its first use; null: none. */
  readonly successor: Successor | null
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
        successor: 'json',
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
