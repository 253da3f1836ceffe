import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { type Connection, Sqlite } from '../../store/sqlite.ts'

/** A damaged index alone can be worth thousands of lines. */
const MAX_PROBLEMS = 20
const BUSY_MS = 2_000
const MAX_FILES = 200

/** What can be told of a database from outside: nothing that stands in it. */
export interface DatabaseCheck {
  readonly file: string
  readonly result: 'ok' | 'damaged' | 'unreadable'
  readonly problems: readonly string[]
  readonly sqlite?: string
  readonly journal_mode?: unknown
  readonly rows?: Readonly<Record<string, number>>
}

/** Files of a data folder, with sizes and rights: enough to see what is missing, large or open. */
export function listFolder(folder: string): object[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .slice(0, MAX_FILES)
      .map((entry) => {
        const { size, mode, mtime, uid, gid } = statSync(join(folder, entry.name))
        const kind = entry.isFile() ? 'file' : entry.isDirectory() ? 'folder' : 'other'
        const rights = (mode & 0o777).toString(8)
        return { name: entry.name, kind, bytes: size, mode: rights, uid, gid, changed_at: mtime }
      })
  } catch (error) {
    return [{ problem: (error as NodeJS.ErrnoException).code ?? String(error) }]
  }
}

/** What a database says of itself; undefined where there is none. */
export function checkDatabase(path: string, isInUse: boolean): DatabaseCheck | undefined {
  if (!existsSync(path)) return undefined
  const file = basename(path)
  try {
    return { file, ...readDatabase(path, isInUse, examine) }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return { file, result: 'unreadable', problems: [code ?? message] }
  }
}

/** The policies of the tunnels in it, for whoever has to know what must not be shown. */
export function policiesIn(path: string, isInUse: boolean): string[] {
  try {
    return readDatabase(path, isInUse, (database) =>
      database
        .prepare('SELECT policy FROM tunnels')
        .pluck()
        .all()
        .filter((text) => typeof text === 'string'),
    )
  } catch {
    return []
  }
}

/**
 * Reads a database where it lies while its agent runs, else a copy of it: opening one that was left in
 * the middle of something changes it.
 */
function readDatabase<T>(path: string, isInUse: boolean, read: (database: Connection) => T): T {
  if (isInUse) return readAt(path, read)
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-bundle-'))
  try {
    const copy = join(folder, basename(path))
    for (const suffix of ['', '-wal']) {
      if (existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix)
    }
    return readAt(copy, read)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function readAt<T>(path: string, read: (database: Connection) => T): T {
  const database = new Sqlite(path, { readonly: true, fileMustExist: true, timeout: BUSY_MS })
  try {
    return read(database)
  } finally {
    database.close()
  }
}

function examine(database: Connection): Omit<DatabaseCheck, 'file'> {
  const found = database.pragma(`integrity_check(${MAX_PROBLEMS})`) as object[]
  const problems = found.flatMap((row) => Object.values(row).map(String))
  const isSound = problems.length === 1 && problems[0] === 'ok'
  return {
    result: isSound ? 'ok' : 'damaged',
    problems: isSound ? [] : problems,
    sqlite: String(database.prepare('SELECT sqlite_version()').pluck().get()),
    journal_mode: database.pragma('journal_mode', { simple: true }),
    rows: isSound ? countRows(database) : {},
  }
}

function countRows(database: Connection): Record<string, number> {
  const names = database
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    .pluck()
    .all() as string[]
  return Object.fromEntries(
    names.map((name) => [
      name,
      Number(
        database
          .prepare(`SELECT count(*) FROM "${name.replaceAll('"', '""')}"`)
          .pluck()
          .get(),
      ),
    ]),
  )
}
