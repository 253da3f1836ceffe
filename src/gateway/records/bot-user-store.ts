import type { Database } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'
import { ServiceError } from './service-error.ts'

export const BOT_USER_MIGRATIONS: readonly Migration[] = [
  {
    id: 'bot-users-1',
    sql: `CREATE TABLE bot_users (
      id TEXT PRIMARY KEY,
      name TEXT NOT NULL UNIQUE,
      active INTEGER NOT NULL CHECK (active IN (0, 1)),
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
]

/** An owner of credentials that is no person: usually one per device or site (spec 2.5). */
export interface BotUser {
  readonly id: string
  readonly name: string
  /** While false, its credentials open nothing. */
  readonly active: boolean
  /** Quotas that the gateway's owner has set, by name; for all others the defaults hold. */
  readonly quotas: Readonly<Record<string, number>>
  readonly createdAt: number
}

export class BotUserStore extends ResourceTable<BotUser> {
  readonly findByName = this.getBy('name')

  constructor(database: Database) {
    super({
      database,
      name: 'bot_users',
      columns: {
        id: 'plain',
        name: 'plain',
        active: 'flag',
        quotas: 'json',
        createdAt: 'plain',
      },
    })
  }

  /** Throws ServiceError 634 for an owner that is no bot user; null is the gateway's owner. */
  checkOwner(ownerId: string | null): void {
    if (ownerId === null || this.get(ownerId)) return
    throw new ServiceError(634, `The owner ${ownerId} is not an existing bot user.`)
  }
}
