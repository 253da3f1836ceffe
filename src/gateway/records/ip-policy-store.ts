import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import { ResourceTable } from './resource-table.ts'

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

interface IpPolicyRuleRow {
  id: string
  ip_policy_id: string
  cidr: string
  action: 'allow' | 'deny'
  description: string
  metadata: string
  created_at: number
}

export class IpPolicyRuleStore extends ResourceTable<IpPolicyRule, IpPolicyRuleRow> {
  readonly #idsOfPolicy: Statement<[string], string>

  constructor(database: Database) {
    super({
      database,
      name: 'ip_policy_rules',
      columns: ['id', 'ip_policy_id', 'cidr', 'action', 'description', 'metadata', 'created_at'],
      toRow: ({ ipPolicyId, createdAt, ...row }) => ({
        ...row,
        ip_policy_id: ipPolicyId,
        created_at: createdAt,
      }),
      toItem: ({ ip_policy_id, created_at, ...item }) => ({
        ...item,
        ipPolicyId: ip_policy_id,
        createdAt: created_at,
      }),
    })
    this.#idsOfPolicy = database
      .prepare<[string], string>(
        'SELECT id FROM ip_policy_rules WHERE ip_policy_id = ? ORDER BY id',
      )
      .pluck()
  }

  ofPolicy(ipPolicyId: string): IpPolicyRule[] {
    return this.#idsOfPolicy.all(ipPolicyId).flatMap((id) => this.get(id) ?? [])
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
