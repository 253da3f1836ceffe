import { existsSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { StartError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import { writeFileDurably } from '../base/file.ts'
import { hasKnownHeader, inspect, VERSIONS_AT } from './damage.ts'
import { isWritable } from './data-folder.ts'
import { journalOf, openImage, type SoundOptions } from './evidence.ts'
import { markInitialised } from './heal.ts'
import { RowJournal } from './journal/row-journal.ts'
import { readState } from './journal/trail.ts'
import { JOURNAL_MIGRATION, type Migration, trailsOf } from './migrations.ts'
import { type Connection, openFile, openMemory } from './sqlite.ts'

/** Version for a database without a WAL: memory has none. */
const NO_LOG = 1

/** Describes the schema of a database, without the place of its file. */
export type SnapshotSchema = Pick<SoundOptions, 'applicationId' | 'migrations'>

/**
 * Returns the database at `path` as of one moment, as the bytes of a database file. Another process may use the
 * database meanwhile. Throws a StartError if the database is missing or damaged.
 */
export function takeSnapshot(path: string, schema: SnapshotSchema): Buffer {
  if (!existsSync(path)) throw new StartError(`${path} does not exist.`)
  const bytes = isWritable(dirname(path)) ? copyOfOpen(path) : openImage(path)?.serialize()
  if (!bytes) throw damaged(path)
  checkSnapshot(bytes, schema, path)
  return bytes
}

/** A read transaction shows all pages as of its start. */
function copyOfOpen(path: string): Buffer | undefined {
  if (!hasKnownHeader(path)) return undefined
  let connection: Connection | undefined
  try {
    connection = openFile(path)
    const open = connection
    return withoutLog(open.transaction(() => open.serialize())())
  } catch {
    return undefined
  } finally {
    connection?.close()
  }
}

function withoutLog(bytes: Buffer): Buffer {
  for (const at of VERSIONS_AT) if (at < bytes.length) bytes[at] = NO_LOG
  return bytes
}

/**
 * Checks pages, indexes, constraints, schema and all rows. Throws a StartError if the bytes are no sound database
 * of this program, or of a newer version. `name` is for the message.
 */
export function checkSnapshot(bytes: Buffer, schema: SnapshotSchema, name: string): void {
  openSnapshot(bytes, schema, name).close()
}

function openSnapshot(bytes: Buffer, schema: SnapshotSchema, name: string): Connection {
  let connection: Connection
  try {
    connection = openMemory(bytes)
  } catch {
    throw damaged(name)
  }
  try {
    const found = inspect(connection, { ...withJournal(schema), wasInitialised: true })
    if (typeof found === 'string' || !found.isUsable) throw damaged(name)
    return connection
  } catch (error) {
    connection.close()
    throw error
  }
}

/**
 * Writes a snapshot as the database at `path`, with the files that prove that it is complete. The folder must not
 * contain a database.
 */
export function writeSnapshot(
  bytes: Buffer,
  path: string,
  { clock, ...schema }: SnapshotSchema & { readonly clock: Clock },
): void {
  const connection = openSnapshot(bytes, schema, basename(path))
  try {
    writeFileDurably(path, bytes)
    const { migrations } = withJournal(schema)
    const trails = trailsOf(migrations)
    const journal = new RowJournal({ path: journalOf(path), trails, clock })
    journal.prepareNew(readState(connection, trails)).finish()
    journal.close()
    markInitialised(path)
  } finally {
    connection.close()
  }
}

const withJournal = ({ applicationId, migrations }: SnapshotSchema) => ({
  applicationId,
  migrations: [...migrations, JOURNAL_MIGRATION] as readonly Migration[],
})

function damaged(name: string): StartError {
  return new StartError(
    `The database ${name} is damaged, or belongs to another program. ` +
      'If its service does not run, start the service once: it repairs its database.',
  )
}
