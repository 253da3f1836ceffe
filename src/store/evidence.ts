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
import type { BackupSource, Evidence } from './recovery.ts'
import { type Connection, openFile, openMemory } from './sqlite.ts'
import { faultOf } from './storage-state.ts'

/** No log: memory has none. */
const NO_LOG = 1

/**
 * A database as it lies there, with its log, as a copy in memory: SQLite does not even read a
 * database with a log from a folder that it may not write. Undefined when it is no database at all.
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

/** After a power cut the newest rows are in the log alone: SQLite joins them in a scratch folder. */
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

/** What lies beside the database at `path`, under names of its own. */
export const journalOf = (path: string) => `${path}.journal`
export const markerOf = (path: string) => `${path}.initialised`

/** How to judge the file at `path`: whatever lies beside it says that there was one before. */
export function checkOf({ path, applicationId, migrations }: SoundOptions): DamageCheck {
  const wasInitialised =
    existsSync(markerOf(path)) || existsSync(journalOf(path)) || listBackups(path).length > 0
  return { applicationId, migrations, wasInitialised }
}

/** Everything that says what the rows of a database are. */
export function gather(options: SoundOptions, database: Inspection | Damage): Evidence {
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
 * The journal; or one that was whole and had not taken its place yet, where the database knows of it.
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
