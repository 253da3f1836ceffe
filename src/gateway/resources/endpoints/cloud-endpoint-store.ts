import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import type { EndpointProtocol } from '../../records/endpoint-protocol.ts'
import { ResourceTable } from '../../records/resource-table.ts'

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
  {
    // Internal names are unique for each owner, public names for all. SQLite cannot drop a constraint.
    id: 'cloud-endpoints-2',
    sql: `CREATE TABLE cloud_endpoints_2 (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      protocol TEXT NOT NULL CHECK (protocol IN ('http', 'https')),
      host TEXT NOT NULL,
      shared INTEGER NOT NULL CHECK (shared IN (0, 1)),
      traffic_policy TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO cloud_endpoints_2
      SELECT id, NULL, protocol, host, 0, traffic_policy, description, metadata, created_at,
        updated_at
      FROM cloud_endpoints;
    DROP TABLE cloud_endpoints;
    ALTER TABLE cloud_endpoints_2 RENAME TO cloud_endpoints;
    CREATE UNIQUE INDEX cloud_endpoints_host ON cloud_endpoints (
      host, (CASE WHEN host LIKE '%.internal' THEN coalesce(owner_id, '') ELSE '' END)
    )`,
  },
  {
    // A host has an endpoint for each scheme.
    id: 'cloud-endpoints-3',
    sql: `DROP INDEX cloud_endpoints_host;
    CREATE UNIQUE INDEX cloud_endpoints_address ON cloud_endpoints (
      protocol, host, (CASE WHEN host LIKE '%.internal' THEN coalesce(owner_id, '') ELSE '' END)
    )`,
  },
  {
    // Members of a pool share an address.
    id: 'cloud-endpoints-4',
    sql: `ALTER TABLE cloud_endpoints
      ADD COLUMN pooled INTEGER NOT NULL DEFAULT 0 CHECK (pooled IN (0, 1));
    DROP INDEX cloud_endpoints_address;
    CREATE UNIQUE INDEX cloud_endpoints_address ON cloud_endpoints (
      protocol, host, (CASE WHEN host LIKE '%.internal' THEN coalesce(owner_id, '') ELSE '' END)
    ) WHERE pooled = 0`,
  },
  {
    // Endpoints of TCP and TLS; a server name belongs to an HTTPS endpoint, or to a TLS one.
    id: 'cloud-endpoints-5',
    sql: `CREATE TABLE cloud_endpoints_5 (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      protocol TEXT NOT NULL CHECK (protocol IN ('http', 'https', 'tcp', 'tls')),
      host TEXT NOT NULL,
      shared INTEGER NOT NULL CHECK (shared IN (0, 1)),
      traffic_policy TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      pooled INTEGER NOT NULL DEFAULT 0 CHECK (pooled IN (0, 1))
    ) STRICT, WITHOUT ROWID;
    INSERT INTO cloud_endpoints_5
      SELECT id, owner_id, protocol, host, shared, traffic_policy, description, metadata,
        created_at, updated_at, pooled
      FROM cloud_endpoints;
    DROP TABLE cloud_endpoints;
    ALTER TABLE cloud_endpoints_5 RENAME TO cloud_endpoints;
    CREATE UNIQUE INDEX cloud_endpoints_address ON cloud_endpoints (
      (CASE protocol WHEN 'tls' THEN 'https' ELSE protocol END),
      host,
      (CASE WHEN host LIKE '%.internal' OR host LIKE '%.internal:%'
        THEN coalesce(owner_id, '') ELSE '' END)
    ) WHERE pooled = 0`,
  },
]

/** A stored cloud endpoint. The port in its URL is that of the ingress at creation. */
export interface StoredCloudEndpoint {
  readonly id: string
  /** Bot user of the account; null for the gateway's owner. */
  readonly ownerId: string | null
  readonly protocol: EndpointProtocol
  /** Lower case; a wildcard starts with `*.`, and the host of a TCP address has its port. */
  readonly host: string
  /** Whether policies of all accounts find it; an internal one only. */
  readonly isShared: boolean
  /** Whether it shares its address with others of its account. */
  readonly isPooled: boolean
  /** JSON or YAML as it was sent. */
  readonly trafficPolicy: string
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
  readonly updatedAt: number
}

export class CloudEndpointStore extends ResourceTable<StoredCloudEndpoint> {
  readonly #rivals: Statement<
    [Pick<StoredCloudEndpoint, 'id' | 'protocol' | 'host' | 'ownerId'>],
    number
  >

  constructor(database: Database) {
    super({
      database,
      name: 'cloud_endpoints',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        protocol: 'plain',
        host: 'plain',
        isShared: 'flag',
        isPooled: 'flag',
        trafficPolicy: 'plain',
        description: 'plain',
        metadata: 'plain',
        createdAt: 'plain',
        updatedAt: 'plain',
      },
    })
    this.#rivals = database
      .prepare<[Pick<StoredCloudEndpoint, 'id' | 'protocol' | 'host' | 'ownerId'>], number>(
        `SELECT pooled AND protocol = @protocol FROM cloud_endpoints
         WHERE host = @host AND id <> @id
           AND (CASE protocol WHEN 'tls' THEN 'https' ELSE protocol END)
             = (CASE @protocol WHEN 'tls' THEN 'https' ELSE @protocol END)
           AND ((host NOT LIKE '%.internal' AND host NOT LIKE '%.internal:%')
             OR owner_id IS @ownerId)`,
      )
      .pluck()
  }

  /** Whether its address is used by another cloud endpoint that is no member of its pool. */
  isTaken({ id, protocol, host, ownerId, isPooled }: StoredCloudEndpoint): boolean {
    const rivals = this.#rivals.all({ id, protocol, host, ownerId })
    return rivals.some((pooled) => pooled === 0 || !isPooled)
  }
}
