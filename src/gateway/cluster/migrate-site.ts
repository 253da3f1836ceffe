import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { lockFolder } from '../../store/data-folder.ts'
import { SECRETS_KEY } from '../access/secret-seal.ts'
import { ACCOUNT_KEY } from '../certificates/acme/acme-authority.ts'
import { CERTIFICATES, loadCertificate } from '../certificates/certificate-file.ts'
import { GATEWAY_MIGRATIONS, openGatewayDatabase } from '../gateway-database.ts'
import { isPrivateKey } from '../records/private-key.ts'
import { SITE_STEPS } from './open-site.ts'
import { DatabaseError } from './postgres/database-error.ts'
import {
  type PostgresServer,
  PostgresSession,
  type Statements,
} from './postgres/postgres-session.ts'
import { migrateSchema } from './postgres/schema.ts'
import { importRecords, NotEmptyError, readOwnRecords } from './replication/import-records.ts'

/**
 * `<domain>.<authority>.pem`. Certificates of the own CA have no authority; each gateway issues them itself.
 */
const FILE = /^(rd_[^.]+)\.(.+)\.pem$/

/**
 * Imports the certificates of authorities and the account key of a gateway into the open transaction.
 * Unusable certificates are skipped, and ordered again.
 */
async function importCertificates(
  statements: Statements,
  folder: string,
  log: Logger,
): Promise<void> {
  const keyPath = join(folder, ACCOUNT_KEY)
  const key = existsSync(keyPath) ? readFileSync(keyPath, 'utf8') : undefined
  if (key !== undefined && isPrivateKey(key)) {
    await statements.query(
      'INSERT INTO site_secrets (name, content) VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [ACCOUNT_KEY, key],
    )
  } else if (key !== undefined) {
    log.warn(
      { file: ACCOUNT_KEY },
      'the key of the ACME account is damaged: restore it, or delete it',
    )
  }
  const certificates = join(folder, CERTIFICATES)
  const names = existsSync(certificates) ? readdirSync(certificates) : []
  for (const name of names) {
    const [, domainId, authority] = FILE.exec(name) ?? []
    if (domainId === undefined) continue
    const kept = loadCertificate(join(certificates, name), { hasIssued: () => true })
    if (!kept) {
      log.warn({ file: name }, 'a certificate cannot be read: ordering a new one')
      continue
    }
    await statements.query(
      `WITH head AS (UPDATE certificate_head SET number = number + 1 RETURNING number)
       INSERT INTO certificates (domain, authority, key_type, number, pem)
       SELECT $1, $2, $3, number, $4 FROM head`,
      [domainId, authority, kept.keyType, kept.certPem],
    )
  }
}

/** Imports the key of secrets and uploaded certificates, without which their values cannot be opened. */
async function importSecretsKey(statements: Statements, folder: string): Promise<void> {
  const path = join(folder, SECRETS_KEY)
  if (!existsSync(path)) return
  await statements.query(
    'INSERT INTO site_secrets (name, content) VALUES ($1, $2) ON CONFLICT DO NOTHING',
    [SECRETS_KEY, readFileSync(path, 'utf8')],
  )
}

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
 * Copies the records and certificates of a gateway into an empty PostgreSQL database, in one transaction. The
 * gateway's own records stay unchanged. Returns the number of rows. Throws a StartError.
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
    return await importSite(options)
  } finally {
    lock.release()
  }
}

/** The same for a folder that no other process uses. */
export async function importSite(options: MigrationOptions): Promise<number> {
  try {
    return await copy(join(options.folder, 'gateway.db'), options)
  } catch (error) {
    if (error instanceof NotEmptyError) {
      throw new StartError(
        'The database already contains records, and two sites cannot be merged. Use an empty database.',
      )
    }
    if (error instanceof DatabaseError) throw new StartError(error.message, { cause: error })
    throw error
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
      await importSecretsKey(statements, folder)
      await importCertificates(statements, folder, log)
    })
  } finally {
    session.close()
  }
  return rows.length
}
