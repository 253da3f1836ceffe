import { createRequire } from 'node:module'
import process from 'node:process'
import type BetterSqlite from 'better-sqlite3'
import { StartError } from '../base/app-error.ts'
import { makeFile } from '../base/file.ts'
import { type Machine, missingBuild, thisMachine } from '../base/machine.ts'

export type Connection = BetterSqlite.Database
export type { Statement } from 'better-sqlite3'

/** The relevant part of `process.versions`: versions of Node and Node-API. */
export interface NodeVersions {
  readonly node: string
  readonly napi?: string | undefined
}

/** A better-sqlite3 package, with its name in package.json. */
interface Package {
  readonly name: string
  readonly major: number
}

/**
 * Returns the better-sqlite3 package for a Node version. Throws a StartError if the version is not supported.
 * Loading the wrong package crashes the process. Version 13 needs Node-API 10, and an older Node ends with
 * SIGSEGV. Version 12 is built for one V8 and aborts on Node 24.19 and newer.
 */
export function packageFor({ node, napi }: NodeVersions): Package {
  if (Number(napi) >= 10) return { name: 'better-sqlite3', major: 13 }
  if (node.startsWith('20.')) return { name: 'better-sqlite3-node20', major: 12 }
  throw new StartError(
    `Node.js ${node} is not supported. Use Node.js 24 or newer, 22.14 or newer, or 20.19 or newer.`,
  )
}

/**
 * Loads the package with its native part. Throws a StartError if the installed package does not fit, or there
 * is none for the machine.
 */
export function loadSqlite(
  versions: NodeVersions,
  load: NodeJS.Require,
  machine: Machine = thisMachine(),
): typeof BetterSqlite {
  const { name, major } = packageFor(versions)
  try {
    const Sqlite: typeof BetterSqlite = load(name)
    const { version } = load(`${name}/package.json`)
    if (!version.startsWith(`${major}.`)) throw new Error(`${name} is version ${version}`)
    // Opening a database loads the native part.
    new Sqlite(':memory:').close()
    return Sqlite
  } catch (error) {
    // A library that was compiled on this machine would have been loaded.
    const missing = missingBuild('SQLite', machine)
    if (missing !== undefined) throw new StartError(missing, { cause: error })
    throw new StartError(
      `Cannot load SQLite on Node.js ${versions.node} (${reasonOf(error)}). Install device-agent ` +
        'again with this Node.js version. In a clone, run `npm run setup`.',
      { cause: error },
    )
  }
}

/** Returns the first sentence of a loader error, without the paths it tried. */
function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const [first = message] = message.split(/\. |\nRequire stack/)
  return first.replace(/\s+/g, ' ')
}

/** The library. Importing this module throws a StartError on an unsupported Node version. */
export const Sqlite = loadSqlite(process.versions, createRequire(import.meta.url))
/** Error of the library. `code` is SQLite's result code. */
export const SqliteError = Sqlite.SqliteError

/**
 * Short, because waiting blocks the process. A second connection exists only while a person looks into the
 * file.
 */
const BUSY_TIMEOUT_MS = 250
/** PRAGMA synchronous: with 2 (FULL), a commit waits for fsync. */
const FULL = 2
/**
 * Checkpoint the WAL after this many pages (256 KiB). On a full disk a checkpoint needs as much room as the
 * WAL has, and the reserve file must suffice for that.
 */
const CHECKPOINT_PAGES = 64
/** A WAL that grew while another process was reading is truncated to this size when it starts again. */
const LOG_BYTES = CHECKPOINT_PAGES * 4096

/** Opens or creates a database file, mode 0600. Writes nothing to it yet. */
export function openFile(path: string): Connection {
  makeFile(path)
  return new Sqlite(path, { timeout: BUSY_TIMEOUT_MS })
}

/** Opens an in-memory database: empty, or with the bytes of a database file. */
export function openMemory(bytes?: Buffer): Connection {
  const connection = new Sqlite(bytes ?? ':memory:')
  connection.pragma('foreign_keys = ON')
  return connection
}

/** Configures a file connection so that a commit is on stable storage when it returns. */
export function makeDurable(connection: Connection): void {
  connection.pragma('foreign_keys = ON')
  const journal = connection.pragma('journal_mode = WAL', { simple: true })
  // Needed for every connection. The library's default for WAL is NORMAL, which loses acknowledged rows in a
  // power cut.
  connection.pragma('synchronous = FULL')
  connection.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`)
  connection.pragma(`journal_size_limit = ${LOG_BYTES}`)
  if (journal !== 'wal' || connection.pragma('synchronous', { simple: true }) !== FULL) {
    throw new StartError(
      `The file system of ${connection.name} does not support a durable database. Move the data directory to a local disk.`,
    )
  }
}

/** Runs `change` within the current transaction. Throws outside of a transaction. */
export function joinChange<T>(connection: Connection, change: () => T): T {
  if (connection.inTransaction) return change()
  throw new Error('these rows are changed within Database.change() only')
}
