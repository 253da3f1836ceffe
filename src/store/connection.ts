import { StartError } from '../base/app-error.ts'
import { makeFile } from '../base/file.ts'
import { type Connection, Sqlite } from './sqlite.ts'

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
