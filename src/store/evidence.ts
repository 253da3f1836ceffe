import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Backup, listBackups } from './backup.ts'
import {
  type Damage,
  type DamageCheck,
  hasKnownHeader,
  type Inspection,
  inspect,
  VERSIONS_AT,
} from './damage.ts'
import { isWritable } from './data-folder.ts'
import { type JournalContent, readJournal } from './journal/journal-text.ts'
import type { Migration } from './migrations.ts'
import type { BackupSource, RecoverySources } from './recovery.ts'
import { type Connection, openFile, openMemory } from './sqlite.ts'
import { faultOf } from './storage-state.ts'

/** Version for a database without a WAL, because memory has no WAL. */
const NO_LOG = 1

/**
 * Opens an in-memory copy of a database file with its WAL. SQLite cannot even read such a database in a
 * folder that is not writable. Returns undefined if the file is not a database.
 */
export function openImage(path: string): Connection | undefined {
  if (!existsSync(path) || !hasKnownHeader(path)) return undefined
  try {
    const bytes = foldLogIn(path) ?? readFileSync(path)
    for (const at of VERSIONS_AT) if (at < bytes.length) bytes[at] = NO_LOG
    return openMemory(bytes)
  } catch (error) {
    if (faultOf(error) === 'damaged') return undefined
    throw error
  }
}

/**
 * Merges the WAL into a copy in a temporary folder. After a power cut, the newest rows are only in the WAL.
 */
function foldLogIn(path: string): Buffer | undefined {
  if (!existsSync(`${path}-wal`)) return undefined
  const parent = ['/dev/shm', tmpdir()].find(isWritable)
  if (parent === undefined) return undefined
  const scratch = mkdtempSync(join(parent, 'device-agent-'))
  try {
    const copy = join(scratch, 'copy.db')
    copyFileSync(path, copy)
    copyFileSync(`${path}-wal`, `${copy}-wal`)
    return serialize(copy)
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

function serialize(path: string): Buffer {
  const connection = openFile(path)
  try {
    return connection.serialize()
  } finally {
    connection.close()
  }
}

export interface SoundOptions {
  readonly path: string
  readonly applicationId: number
  readonly migrations: readonly Migration[]
}

/** Names of the files next to the database at `path`. */
export const journalOf = (path: string) => `${path}.journal`
export const markerOf = (path: string) => `${path}.initialised`

/**
 * Options for checking the file at `path`. Any of its other files proves that there was a database before.
 */
export function checkOf({ path, applicationId, migrations }: SoundOptions): DamageCheck {
  const wasInitialised =
    existsSync(markerOf(path)) || existsSync(journalOf(path)) || listBackups(path).length > 0
  return { applicationId, migrations, wasInitialised }
}

/** Collects all sources from which the rows of a database can be recovered. */
export function gather(options: SoundOptions, database: Inspection | Damage): RecoverySources {
  const { path } = options
  const journal = journalFor(path, database)
  const check = { ...checkOf(options), wasInitialised: true }
  return {
    database,
    writtenAt: lastWritten(path),
    journal,
    backups: () => listBackups(path).flatMap((backup) => sourceOf(backup, check)),
  }
}

/**
 * Returns the journal. Without one, a new journal may be complete but not in place yet: returns that, unless
 * the database is sound and uses no journal.
 */
function journalFor(path: string, database: Inspection | Damage): JournalContent | undefined {
  const inPlace = readJournal(journalOf(path))
  if (inPlace || (typeof database !== 'string' && !database.hasJournal)) return inPlace
  const waiting = readJournal(`${journalOf(path)}.tmp`)
  return waiting?.tail === 'clean' ? waiting : undefined
}

function sourceOf(backup: Backup, check: DamageCheck): BackupSource[] {
  const connection = openImage(backup.path)
  if (!connection) return []
  try {
    const found = inspect(connection, check)
    if (typeof found === 'string') return []
    const { n, rows } = found
    return [{ copy: 'backup', n, madeAt: backup.madeAt, rows, trails: found.trails() }]
  } finally {
    connection.close()
  }
}

function lastWritten(path: string): number {
  const times = [path, `${path}-wal`].map((file) => statSync(file, { throwIfNoEntry: false }))
  return Math.max(0, ...times.map((stat) => stat?.mtimeMs ?? 0))
}
