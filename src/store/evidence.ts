import { existsSync, statSync } from 'node:fs'
import { type Backup, listBackups } from './backup.ts'
import { type Damage, type DamageCheck, type Inspection, inspect } from './damage.ts'
import { openImage } from './image.ts'
import { type JournalContent, readJournal } from './journal/journal-text.ts'
import type { Migration } from './migrations.ts'
import type { BackupSource, Evidence } from './recovery.ts'

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
