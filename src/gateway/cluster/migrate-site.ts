import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { lockFolder } from '../../store/data-folder.ts'
import { GATEWAY_MIGRATIONS, openGatewayDatabase } from '../records/gateway-database.ts'
import { importCertificates } from './import-certificates.ts'
import { SITE_STEPS } from './open-site.ts'
import { DatabaseError } from './postgres/database-error.ts'
import { type PostgresServer, PostgresSession } from './postgres/postgres-session.ts'
import { migrateSchema } from './postgres/schema.ts'
import { importRecords, NotEmptyError, readOwnRecords } from './replication/import-records.ts'

/** For all rows of a large site. */
const LONG_MS = 600_000

export interface MigrationOptions {
  /** The data folder of a gateway that does not run. */
  readonly folder: string
  readonly server: PostgresServer
  readonly onProgress?: (done: number, of: number) => void
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Copies the records of a gateway, and what ACME authorities have issued to it, into a PostgreSQL that
 * has none, all or nothing; its own stay as they are. Answers how many rows there are. Throws a StartError.
 */
export async function migrateSite(options: MigrationOptions): Promise<number> {
  const { folder, log } = options
  const path = join(folder, 'gateway.db')
  if (!existsSync(path)) {
    throw new StartError(
      `${folder} contains no gateway.db. Set the data directory of the gateway with --from.`,
    )
  }
  const lock = lockFolder({ folder, owner: 'gateway', log })
  try {
    return await copy(path, options)
  } catch (error) {
    if (error instanceof NotEmptyError) {
      throw new StartError(
        'The database already contains records, and two sites cannot be merged. Use an empty database.',
      )
    }
    if (error instanceof DatabaseError) throw new StartError(error.message, { cause: error })
    throw error
  } finally {
    lock.release()
  }
}

async function copy(
  path: string,
  { folder, server, onProgress = () => {}, log, clock }: MigrationOptions,
): Promise<number> {
  // In the form of this version, and whole.
  openGatewayDatabase(folder, { log, clock }).database.close()
  const rows = readOwnRecords(path)
  await migrateSchema({ server, name: 'migrates' }, SITE_STEPS)
  const limits = { statementMs: LONG_MS, lockMs: LONG_MS, idleMs: LONG_MS, answerMs: LONG_MS }
  const session = await PostgresSession.open({ server, name: 'migrates', limits })
  try {
    await session.transaction(async (statements) => {
      await importRecords(statements, { rows, migrations: GATEWAY_MIGRATIONS }, (done) =>
        onProgress(done, rows.length),
      )
      await importCertificates(statements, folder, log)
    })
  } finally {
    session.close()
  }
  return rows.length
}
