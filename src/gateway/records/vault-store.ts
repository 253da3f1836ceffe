import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'

export const VAULT_MIGRATIONS: readonly Migration[] = [
  {
    id: 'vaults-1',
    sql: `CREATE TABLE vaults (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      name TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      updated_at INTEGER NOT NULL,
      updated_by TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX vaults_name ON vaults (coalesce(owner_id, ''), name);
    CREATE INDEX vaults_owner ON vaults (owner_id);
    CREATE TABLE vault_secrets (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      vault_id TEXT NOT NULL REFERENCES vaults (id) ON DELETE CASCADE,
      name TEXT NOT NULL,
      sealed TEXT NOT NULL,
      allow TEXT NOT NULL CHECK (json_valid(allow)),
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      updated_at INTEGER NOT NULL,
      updated_by TEXT NOT NULL,
      value_at INTEGER NOT NULL,
      UNIQUE (vault_id, name)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX vault_secrets_owner ON vault_secrets (owner_id)`,
  },
]

/** Texts and times of vaults and secrets. `createdBy` and `updatedBy` are ids of API keys. */
interface Kept {
  readonly id: string
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  readonly name: string
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
  readonly createdBy: string
  readonly updatedAt: number
  readonly updatedBy: string
}

/** A named set of secrets. */
export interface Vault extends Kept {}

/** A secret for policies. */
export interface VaultSecret extends Kept {
  readonly vaultId: string
  /** See `SecretSeal`. */
  readonly sealed: string
  /** Authtokens, bot users and domains whose policies may use it, besides cloud endpoints of its account. */
  readonly allow: readonly string[]
  /** When the value was set. */
  readonly valueAt: number
}

const KEPT = {
  id: 'plain',
  ownerId: 'plain',
  name: 'plain',
  description: 'plain',
  metadata: 'plain',
  createdAt: 'plain',
  createdBy: 'plain',
  updatedAt: 'plain',
  updatedBy: 'plain',
} as const

export class VaultStore extends ResourceTable<Vault> {
  readonly #find: Statement<[string, string], string>

  constructor(database: Database) {
    super({ database, name: 'vaults', columns: KEPT })
    this.#find = database
      .prepare<[string, string], string>(
        "SELECT id FROM vaults WHERE coalesce(owner_id, '') = ? AND name = ?",
      )
      .pluck()
  }

  /** The vault of an account with a name. */
  find(ownerId: string | null, name: string): Vault | undefined {
    const id = this.#find.get(ownerId ?? '', name)
    return id === undefined ? undefined : this.get(id)
  }
}

export class VaultSecretStore extends ResourceTable<VaultSecret> {
  readonly ofVault = this.allBy('vault_id')
  readonly #find: Statement<[string, string], string>

  constructor(database: Database) {
    super({
      database,
      name: 'vault_secrets',
      columns: { ...KEPT, vaultId: 'plain', sealed: 'plain', allow: 'json', valueAt: 'plain' },
    })
    this.#find = database
      .prepare<[string, string], string>(
        'SELECT id FROM vault_secrets WHERE vault_id = ? AND name = ?',
      )
      .pluck()
  }

  find(vaultId: string, name: string): VaultSecret | undefined {
    const id = this.#find.get(vaultId, name)
    return id === undefined ? undefined : this.get(id)
  }
}
