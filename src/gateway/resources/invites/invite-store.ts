import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import { ResourceTable } from '../../records/resource-table.ts'

export const INVITE_MIGRATIONS: readonly Migration[] = [
  {
    id: 'invites-1',
    sql: `CREATE TABLE invites (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      join_id TEXT NOT NULL UNIQUE,
      secret_hash TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      name TEXT,
      tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
      domain TEXT,
      acl TEXT NOT NULL CHECK (json_type(acl) = 'array'),
      granted INTEGER NOT NULL CHECK (granted IN (0, 1)),
      expires_at INTEGER NOT NULL,
      max_uses INTEGER NOT NULL,
      withdrawn_at INTEGER,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX invites_owner ON invites (coalesce(owner_id, ''), expires_at);
    CREATE TABLE invite_claims (
      id TEXT PRIMARY KEY,
      invite_id TEXT NOT NULL REFERENCES invites (id) ON DELETE CASCADE,
      claim_hash TEXT NOT NULL,
      name TEXT NOT NULL,
      hostname TEXT NOT NULL,
      address TEXT NOT NULL,
      credential_id TEXT NOT NULL,
      at INTEGER NOT NULL,
      UNIQUE (invite_id, claim_hash)
    ) STRICT, WITHOUT ROWID`,
  },
]

/** An invitation for devices. Only the hash of its secret is stored. */
export interface Invite {
  /** `inv_<ksuid>` */
  readonly id: string
  /** Account of the devices; null: each device gets a bot user of its own. */
  readonly ownerId: string | null
  /** Id in the join string, 16 hex digits. */
  readonly joinId: string
  readonly secretHash: string
  readonly description: string
  readonly metadata: string
  /** Name of the device, or a template with `{name}`; null: the host name of the device. */
  readonly name: string | null
  readonly tags: readonly string[]
  /** Wildcard for the names of the device, which may contain `{name}`; null: no domain. */
  readonly domain: string | null
  /** Further rules for the authtoken, which may contain `{name}`. */
  readonly acl: readonly string[]
  /** Whether the gateway's owner made it, and so grants the rules and the domain. */
  readonly isGranted: boolean
  /** Milliseconds since the epoch, as all times here. */
  readonly expiresAt: number
  readonly maxUses: number
  readonly withdrawnAt: number | null
  readonly createdAt: number
}

/** A device that has joined with an invitation. */
export interface InviteClaim {
  readonly id: string
  readonly inviteId: string
  /** SHA-256 of the claim of the device. */
  readonly claimHash: string
  readonly name: string
  readonly hostname: string
  /** Address of the device without the port. */
  readonly address: string
  /** Current authtoken from this invitation. */
  readonly credentialId: string
  readonly at: number
}

export class InviteStore extends ResourceTable<Invite> {
  readonly findByJoinId = this.getBy('join_id')
  readonly #count: Statement<[string], number>
  readonly #ended: Statement<[string, number], string>

  constructor(database: Database) {
    super({
      database,
      name: 'invites',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        joinId: 'plain',
        secretHash: 'plain',
        description: 'plain',
        metadata: 'plain',
        name: 'plain',
        tags: 'json',
        domain: 'plain',
        acl: 'json',
        isGranted: 'flag',
        expiresAt: 'plain',
        maxUses: 'plain',
        withdrawnAt: 'plain',
        createdAt: 'plain',
      },
    })
    this.#count = database
      .prepare<[string], number>("SELECT count(*) FROM invites WHERE coalesce(owner_id, '') = ?")
      .pluck()
    this.#ended = database
      .prepare<[string, number], string>(
        "SELECT id FROM invites WHERE coalesce(owner_id, '') = ? AND expires_at < ? ORDER BY expires_at LIMIT 100",
      )
      .pluck()
  }

  count(ownerId: string | null): number {
    return this.#count.get(ownerId ?? '') ?? 0
  }

  /** Deletes invitations of an account that ended before a time, at most 100. */
  deleteEnded(ownerId: string | null, before: number): void {
    for (const id of this.#ended.all(ownerId ?? '', before)) this.delete(id)
  }
}

export class InviteClaimStore extends ResourceTable<InviteClaim> {
  readonly #count: Statement<[string], number>
  readonly #newest: Statement<[string, number], string>
  readonly #find: Statement<[string, string], string>

  constructor(database: Database) {
    super({
      database,
      name: 'invite_claims',
      columns: {
        id: 'plain',
        inviteId: 'plain',
        claimHash: 'plain',
        name: 'plain',
        hostname: 'plain',
        address: 'plain',
        credentialId: 'plain',
        at: 'plain',
      },
    })
    const select = 'SELECT id FROM invite_claims WHERE invite_id = ?'
    this.#count = database
      .prepare<[string], number>('SELECT count(*) FROM invite_claims WHERE invite_id = ?')
      .pluck()
    this.#newest = database
      .prepare<[string, number], string>(`${select} ORDER BY at DESC, id DESC LIMIT ?`)
      .pluck()
    this.#find = database.prepare<[string, string], string>(`${select} AND claim_hash = ?`).pluck()
  }

  count(inviteId: string): number {
    return this.#count.get(inviteId) ?? 0
  }

  find(inviteId: string, claimHash: string): InviteClaim | undefined {
    const id = this.#find.get(inviteId, claimHash)
    return id === undefined ? undefined : this.get(id)
  }

  /** The devices that joined last, newest first. */
  newest(inviteId: string, limit: number): InviteClaim[] {
    return this.#newest.all(inviteId, limit).flatMap((id) => this.get(id) ?? [])
  }
}
