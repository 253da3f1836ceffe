import type { Database } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'

export const IP_POLICY_MIGRATIONS: readonly Migration[] = [
  {
    id: 'ip-policies-1',
    sql: `CREATE TABLE ip_policies (
      id TEXT PRIMARY KEY,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
]

/** A named set of rules that say which addresses may pass. */
export interface IpPolicy {
  readonly id: string
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
}

interface IpPolicyRow {
  id: string
  description: string
  metadata: string
  created_at: number
}

export class IpPolicyStore extends ResourceTable<IpPolicy, IpPolicyRow> {
  constructor(database: Database) {
    super({
      database,
      name: 'ip_policies',
      columns: ['id', 'description', 'metadata', 'created_at'],
      toRow: ({ createdAt, ...row }) => ({ ...row, created_at: createdAt }),
      toItem: ({ created_at, ...item }) => ({ ...item, createdAt: created_at }),
    })
  }
}
