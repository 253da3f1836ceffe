import { createRequire } from 'node:module'
import process from 'node:process'
import type BetterSqlite from 'better-sqlite3'
import { StartError } from '../base/app-error.ts'
import { makeFile } from '../base/file.ts'

export type Connection = BetterSqlite.Database
export type { Statement } from 'better-sqlite3'

/** The part of `process.versions` that decides: Node's version, and that of its Node-API. */
export interface NodeVersions {
  readonly node: string
  readonly napi?: string | undefined
}

/** A package that is better-sqlite3, under the name that package.json gives it. */
interface Package {
  readonly name: string
  readonly major: number
}

/**
 * The better-sqlite3 for a Node; throws a StartError where there is none. Loading the other one
 * is no error that could be caught: 13 is built for Node-API 10 and ends an older Node with
 * SIGSEGV, 12 is built for one V8 and aborts on Node 24.19 and newer.
 */
export function packageFor({ node, napi }: NodeVersions): Package {
  if (Number(napi) >= 10) return { name: 'better-sqlite3', major: 13 }
  if (node.startsWith('20.')) return { name: 'better-sqlite3-node20', major: 12 }
  throw new StartError(
    `Node.js ${node} is not supported. Use Node.js 24 or newer, 22.14 or newer, or 20.19 or newer.`,
  )
}

/** Loads it, native part included; throws a StartError when what is installed does not fit. */
export function loadSqlite(versions: NodeVersions, load: NodeJS.Require): typeof BetterSqlite {
  const { name, major } = packageFor(versions)
  try {
    const Sqlite: typeof BetterSqlite = load(name)
    const { version } = load(`${name}/package.json`)
    if (!version.startsWith(`${major}.`)) throw new Error(`${name} is version ${version}`)
    // The native part is loaded with the first database.
    new Sqlite(':memory:').close()
    return Sqlite
  } catch (error) {
    throw new StartError(
      `Cannot load SQLite on Node.js ${versions.node} (${reasonOf(error)}). Install device-agent ` +
        'again with this Node.js version. In a clone, run `npm run setup`.',
      { cause: error },
    )
  }
}

/** The first sentence of an error of the loader, without the paths that it tried. */
function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const [first = message] = message.split(/\. |\nRequire stack/)
  return first.replace(/\s+/g, ' ')
}

/** The library; whoever imports this module on a Node without one gets a StartError. */
export const Sqlite = loadSqlite(process.versions, createRequire(import.meta.url))
/** What the library throws, with SQLite's result code as `code`. */
export const SqliteError = Sqlite.SqliteError

/** A second connection exists only while a person looks into the file; waiting blocks the process. */
const BUSY_TIMEOUT_MS = 250
/** PRAGMA synchronous: 2 is FULL, a commit waits for fsync. */
const FULL = 2
/**
 * The log goes into the file after this many pages (256 KiB): on a full disk, folding it in needs
 * as much room as the log has, and the reserve file must be enough for that.
 */
const CHECKPOINT_PAGES = 64
/** A log that grew while another process read the file goes back to this size at its next start. */
const LOG_BYTES = CHECKPOINT_PAGES * 4096

/** Opens or makes a database file, mode 0600. Nothing is written to it yet. */
export function openFile(path: string): Connection {
  makeFile(path)
  return new Sqlite(path, { timeout: BUSY_TIMEOUT_MS })
}

/** Opens a database in memory: empty, or with the bytes of a database file. */
export function openMemory(bytes?: Buffer): Connection {
  const connection = new Sqlite(bytes ?? ':memory:')
  connection.pragma('foreign_keys = ON')
  return connection
}

/** Sets up a file connection so that a commit is on stable storage when it returns. */
export function makeDurable(connection: Connection): void {
  connection.pragma('foreign_keys = ON')
  const journal = connection.pragma('journal_mode = WAL', { simple: true })
  // On every open: the library's own default for a log is NORMAL, which loses acknowledged rows
  // when the power is cut.
  connection.pragma('synchronous = FULL')
  connection.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`)
  connection.pragma(`journal_size_limit = ${LOG_BYTES}`)
  if (journal !== 'wal' || connection.pragma('synchronous', { simple: true }) !== FULL) {
    throw new StartError(
      `The file system of ${connection.name} does not support a durable database. Move the data directory to a local disk.`,
    )
  }
}

/** Runs `change` within the transaction that is open. Throws outside of one. */
export function joinChange<T>(connection: Connection, change: () => T): T {
  if (connection.inTransaction) return change()
  throw new Error('these rows are changed within Database.change() only')
}
