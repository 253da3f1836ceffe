import { accessSync, chmodSync, constants, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { StartError } from '../base/app-error.ts'
import { makeFile, makeFolder } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { type Connection, Sqlite } from './sqlite.ts'
import { isHeld } from './storage-state.ts'

/**
 * Makes sure that the data folder is there and closed to other users.
 * Answers whether it can be written; throws a StartError when it cannot even be made.
 */
export function prepareDataFolder(folder: string, log: Logger): boolean {
  try {
    makeFolder(folder)
    closeToOthers(folder, log)
    return isWritable(folder)
  } catch (error) {
    throw new StartError(
      `Cannot create or open the data directory ${folder}: ${error instanceof Error ? error.message : error}`,
      { cause: error },
    )
  }
}

/** True when files in `path`, or the file itself, can be written by this process. */
export function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK)
    return true
  } catch {
    return false
  }
}

/** A folder with things for others in it may be one that they need: there only a warning. */
function closeToOthers(folder: string, log: Logger): void {
  if (!isOpenToOthers(folder) || !isWritable(folder)) return
  const isShared = readdirSync(folder).some(
    (name) => !name.startsWith('.') && isOpenToOthers(join(folder, name)),
  )
  if (!isShared && statSync(folder).uid === process.getuid?.()) chmodSync(folder, 0o700)
  else log.warn({ folder }, 'other users can read the data directory')
}

function isOpenToOthers(path: string): boolean {
  return (statSync(path).mode & 0o077) !== 0
}

interface FolderLockOptions {
  readonly folder: string
  /** Who locks, such as `agent`: the lock is the file `agent.lock`. */
  readonly owner: string
  readonly log: Logger
}

/** A connection that nobody refers to is closed by the garbage collector, and its lock is gone. */
const held = new Set<Connection>()

/** Held until `release()` or the end of the process, however it ends. */
export interface FolderLock {
  release(): void
  /** After `release()`, or when the folder can be written at last. Throws like `lockFolder`. */
  reclaim(): void
}

/**
 * Makes this process the only `owner` on a data folder; throws a StartError when there is one.
 * SQLite is the lock because Node has no flock: the system frees it even after a kill -9.
 * A folder that cannot be written needs no lock, nothing in it can be fought over.
 */
export function lockFolder(options: FolderLockOptions): FolderLock {
  const lock = tryLockFolder(options)
  if (lock) return lock
  throw heldByAnother(options)
}

/** The same for who can do without: undefined when there is an `owner` already. */
export function tryLockFolder({ folder, owner, log }: FolderLockOptions): FolderLock | undefined {
  const isWritten = prepareDataFolder(folder, log)
  try {
    let connection = isWritten ? lockFile(join(folder, `${owner}.lock`)) : undefined
    return {
      release: () => {
        if (!connection) return
        held.delete(connection)
        connection.close()
        connection = undefined
      },
      reclaim: () => {
        if (isWritten || isWritable(folder)) connection ??= reopen(folder, owner)
      },
    }
  } catch (error) {
    if (isHeld(error)) return undefined
    if (error instanceof StartError) throw error
    throw new StartError(
      `Cannot lock the data directory ${folder}: ${error instanceof Error ? error.message : error}`,
      { cause: error },
    )
  }
}

function reopen(folder: string, owner: string): Connection {
  try {
    return lockFile(join(folder, `${owner}.lock`))
  } catch (error) {
    throw isHeld(error) ? heldByAnother({ folder, owner }) : error
  }
}

function heldByAnother({ folder, owner }: Pick<FolderLockOptions, 'folder' | 'owner'>): StartError {
  return new StartError(
    `Another ${owner} is using the data directory ${folder}. Stop it or set another directory.`,
  )
}

function lockFile(path: string): Connection {
  makeFile(path)
  const connection = new Sqlite(path, { timeout: 0 })
  try {
    // No journal file: the lock never writes a byte, so it also works on a full disk.
    connection.pragma('journal_mode = MEMORY')
    connection.exec('BEGIN EXCLUSIVE')
    held.add(connection)
    return connection
  } catch (error) {
    connection.close()
    throw error
  }
}
