import type { Database } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import { ResourceTable } from '../../records/resource-table.ts'

export const IP_POLICY_RULE_MIGRATIONS: readonly Migration[] = [
  {
    id: 'ip-policy-rules-1',
    sql: `CREATE TABLE ip_policy_rules (
      id TEXT PRIMARY KEY,
      ip_policy_id TEXT NOT NULL REFERENCES ip_policies (id) ON DELETE CASCADE,
      cidr TEXT NOT NULL,
      action TEXT NOT NULL CHECK (action IN ('allow', 'deny')),
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      UNIQUE (ip_policy_id, cidr)
    ) STRICT, WITHOUT ROWID`,
  },
]

/** One range of addresses in an IP policy. */
export interface IpPolicyRule {
  readonly id: string
  readonly ipPolicyId: string
  /** Lowest address and mask, such as `10.0.0.0/8` or `2001:db8::/32`. */
  readonly cidr: string
  readonly action: 'allow' | 'deny'
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
}

export class IpPolicyRuleStore extends ResourceTable<IpPolicyRule> {
  readonly ofPolicy = this.allBy('ip_policy_id')

  constructor(database: Database) {
    super({
      database,
      name: 'ip_policy_rules',
      columns: {
        id: 'plain',
        ipPolicyId: 'plain',
        cidr: 'plain',
        action: 'plain',
        description: 'plain',
        metadata: 'plain',
        createdAt: 'plain',
      },
    })
  }
}

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

export class IpPolicyStore extends ResourceTable<IpPolicy> {
  constructor(database: Database) {
    super({
      database,
      name: 'ip_policies',
      columns: {
        id: 'plain',
        description: 'plain',
        metadata: 'plain',
        createdAt: 'plain',
      },
    })
  }
}
