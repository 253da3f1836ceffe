import {
  accessSync,
  chmodSync,
  constants,
  lchownSync,
  lstatSync,
  readdirSync,
  statSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { StartError } from '../base/app-error.ts'
import { makeFile, makeFolder } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { finishReplacement } from './replaced-data.ts'
import { type Connection, Sqlite } from './sqlite.ts'
import { isHeld } from './storage-state.ts'

/**
 * Creates the data directory if needed and removes the access of other users. Returns whether it is writable.
 * Throws a StartError if it cannot be created.
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

/** True if this process can write the file `path`, or files in the folder `path`. */
export function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK)
    return true
  } catch {
    return false
  }
}

/**
 * Removes the access of other users. Only warns if the folder contains files with access for others, who may
 * need it.
 */
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
  /** Name of the lock holder. For `agent` the lock is the file `agent.lock`. */
  readonly owner: string
  readonly log: Logger
}

/** Keeps references: the garbage collector would close an unused connection and so release its lock. */
const held = new Set<Connection>()

/** Held until `release()` or the end of the process, including a crash. */
export interface FolderLock {
  release(): void
  /** Call it after `release()`, or when the folder has become writable. Throws like `lockFolder`. */
  reclaim(): void
}

/**
 * Makes this process the only `owner` of a data directory. Throws a StartError if there is another one.
 * SQLite provides the lock, because Node has no flock. The system releases it even after kill -9. A folder
 * that is not writable needs no lock.
 */
export function lockFolder(options: FolderLockOptions): FolderLock {
  const lock = tryLockFolder(options)
  if (lock) return lock
  throw heldByAnother(options)
}

/** Like `lockFolder`, but returns undefined if another `owner` holds the lock. */
export function tryLockFolder({ folder, owner, log }: FolderLockOptions): FolderLock | undefined {
  const isWritten = prepareDataFolder(folder, log)
  try {
    let connection = isWritten ? lockFile(join(folder, `${owner}.lock`)) : undefined
    if (connection) finishUnder(connection, folder)
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

/** Before anything reads the folder: a restore may have been interrupted in it. */
function finishUnder(lock: Connection, folder: string): void {
  try {
    finishReplacement(folder)
  } catch (error) {
    held.delete(lock)
    lock.close()
    throw error
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

/** Gives a file or folder to the owner of its folder. The service could not use what a command of root has made. */
export function giveToFolderOwner(path: string): void {
  if (process.geteuid?.() !== 0) return
  const { uid, gid } = statSync(dirname(path))
  if (lstatSync(path).uid !== uid) lchownSync(path, uid, gid)
}

function lockFile(path: string): Connection {
  makeFile(path)
  giveToFolderOwner(path)
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
