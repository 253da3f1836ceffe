import BetterSqlite, { type Database as Connection } from 'better-sqlite3'
import { StartError } from '../base/app-error.ts'

export type { Database as Connection, Statement } from 'better-sqlite3'

/** A second connection exists only while a person looks into the file. */
const BUSY_TIMEOUT_MS = 2_000
/** PRAGMA synchronous: 2 is FULL. The library is built with NORMAL for WAL: it loses acknowledged rows. */
const FULL = 2

/** Opens a database file so that a commit is on stable storage when it returns. */
export function openConnection(path: string): Connection {
  const connection = new BetterSqlite(path, { timeout: BUSY_TIMEOUT_MS })
  try {
    connection.pragma('foreign_keys = ON')
    const journal = connection.pragma('journal_mode = WAL', { simple: true })
    connection.pragma('synchronous = FULL')
    if (journal !== 'wal' || connection.pragma('synchronous', { simple: true }) !== FULL) {
      throw new StartError(
        `The file system under ${path} cannot hold a durable database: put the data folder on a local disk.`,
      )
    }
    return connection
  } catch (error) {
    connection.close()
    throw error
  }
}

/** A database that lives in memory, empty or with the bytes of a database file. */
export function openMemory(bytes?: Buffer): Connection {
  const connection = new BetterSqlite(bytes ?? ':memory:')
  connection.pragma('foreign_keys = ON')
  return connection
}
