import type { Database, Statement } from '../../store/database.ts'
import type { Migration } from '../../store/migrations.ts'
import type { EndpointProtocol } from './endpoint-protocol.ts'
import { ResourceTable } from './resource-table.ts'

export const CLOUD_ENDPOINT_MIGRATIONS: readonly Migration[] = [
  {
    id: 'cloud-endpoints-1',
    sql: `CREATE TABLE cloud_endpoints (
      id TEXT PRIMARY KEY,
      protocol TEXT NOT NULL CHECK (protocol IN ('http', 'https')),
      host TEXT NOT NULL UNIQUE,
      traffic_policy TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
]

/** A cloud endpoint as it is kept; the port in its URL is that of the ingress at the time. */
export interface StoredCloudEndpoint {
  readonly id: string
  readonly protocol: EndpointProtocol
  /** Lower case; a wildcard starts with `*.`. */
  readonly host: string
  /** JSON or YAML as it was sent. */
  readonly trafficPolicy: string
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
  readonly updatedAt: number
}

interface CloudEndpointRow {
  id: string
  protocol: EndpointProtocol
  host: string
  traffic_policy: string
  description: string
  metadata: string
  created_at: number
  updated_at: number
}

export class CloudEndpointStore extends ResourceTable<StoredCloudEndpoint, CloudEndpointRow> {
  readonly #allIds: Statement<[], string>

  constructor(database: Database) {
    super({
      database,
      name: 'cloud_endpoints',
      columns: [
        'id',
        'protocol',
        'host',
        'traffic_policy',
        'description',
        'metadata',
        'created_at',
        'updated_at',
      ],
      toRow: ({ trafficPolicy, createdAt, updatedAt, ...row }) => ({
        ...row,
        traffic_policy: trafficPolicy,
        created_at: createdAt,
        updated_at: updatedAt,
      }),
      toItem: ({ traffic_policy, created_at, updated_at, ...item }) => ({
        ...item,
        trafficPolicy: traffic_policy,
        createdAt: created_at,
        updatedAt: updated_at,
      }),
    })
    this.#allIds = database
      .prepare<[], string>('SELECT id FROM cloud_endpoints ORDER BY id')
      .pluck()
  }

  /** Oldest first. */
  all(): StoredCloudEndpoint[] {
    return this.#allIds.all().flatMap((id) => this.get(id) ?? [])
  }
}
