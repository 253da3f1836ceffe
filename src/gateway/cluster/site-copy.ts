import { StartError } from '../../base/app-error.ts'
import { openSchema } from '../../store/migrations.ts'
import { CERTIFICATES } from '../certificates/certificate-file.ts'
import { GATEWAY_APPLICATION_ID, GATEWAY_MIGRATIONS } from '../gateway-database.ts'
import { DatabaseError } from './postgres/database-error.ts'
import {
  type PostgresServer,
  PostgresSession,
  type Statements,
} from './postgres/postgres-session.ts'
import { readSnapshot } from './replication/record-log.ts'
import { compareSchemas, fillRecords } from './replication/record-schema.ts'

/** For all rows of a large site, in milliseconds. */
const LONG_MS = 600_000

/** The records and secrets of a site, in the form of the data directory of a gateway without others. */
export interface SiteCopy {
  /** Bytes of its database. */
  readonly database: Buffer
  /** Keys and certificates, by their path in the data directory. */
  readonly files: ReadonlyMap<string, Buffer>
}

/**
 * Copies a site from PostgreSQL as of one moment, while its gateways run. Claims, nodes and join tokens are not
 * copied: they belong to the running gateways. Throws a StartError.
 */
export async function copySite(server: PostgresServer): Promise<SiteCopy> {
  const limits = { statementMs: LONG_MS, lockMs: LONG_MS, idleMs: LONG_MS, answerMs: LONG_MS }
  let session: PostgresSession | undefined
  try {
    session = await PostgresSession.open({ server, name: 'backup', limits })
    return await session.transaction(readSite)
  } catch (error) {
    if (error instanceof DatabaseError) throw new StartError(error.message, { cause: error })
    throw error
  } finally {
    session?.close()
  }
}

/** The snapshot is the first read, and all others show the same moment. */
async function readSite(statements: Statements): Promise<SiteCopy> {
  const { rows, schema } = await readSnapshot(statements)
  if (rows.length === 0) {
    throw new StartError('The database of GATEWAY_DATABASE_URL contains no records yet.')
  }
  if (compareSchemas(schema, GATEWAY_MIGRATIONS) === 'newer') {
    throw new StartError('A newer version of this program wrote the database. Use that version.')
  }
  const applied: string[] = JSON.parse(schema)
  const connection = openSchema(
    GATEWAY_MIGRATIONS.filter(({ id }) => applied.includes(id)),
    GATEWAY_APPLICATION_ID,
  )
  try {
    fillRecords(connection, rows)
    const files = new Map([
      ...(await readSecrets(statements)),
      ...(await readCertificates(statements)),
    ])
    return { database: connection.serialize(), files }
  } finally {
    connection.close()
  }
}

async function readSecrets(statements: Statements): Promise<Map<string, Buffer>> {
  const rows = await statements.query<{ name: string; content: string }>(
    'SELECT name, content FROM site_secrets ORDER BY name',
  )
  return new Map(rows.map(({ name, content }) => [name, Buffer.from(content)]))
}

/** A domain whose key type was changed may have an older one, too: the newest wins. */
async function readCertificates(statements: Statements): Promise<Map<string, Buffer>> {
  const rows = await statements.query<{ domain: string; authority: string; pem: string }>(
    'SELECT domain, authority, pem FROM certificates WHERE pem IS NOT NULL ORDER BY number',
  )
  return new Map(
    rows.map(({ domain, authority, pem }) => [
      `${CERTIFICATES}/${domain}.${authority}.pem`,
      Buffer.from(pem),
    ]),
  )
}
