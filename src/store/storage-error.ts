import { AppError } from '../base/app-error.ts'
import { SqliteError } from './sqlite.ts'
import type { StorageFault } from './storage-state.ts'

/** SQLite's result codes, or the beginnings of them, by what they mean for the storage. */
const FAULTS: Readonly<Record<StorageFault, readonly string[]>> = {
  // No room for the index of the log, which is a file, too.
  full: ['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE'],
  damaged: ['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_IOERR_READ', 'SQLITE_IOERR_SHORT_READ'],
  unwritable: ['SQLITE_READONLY', 'SQLITE_CANTOPEN', 'SQLITE_PERM', 'SQLITE_IOERR'],
}
/** The same, said by the file system. */
const SYSTEM_FAULTS: ReadonlyMap<unknown, StorageFault> = new Map([
  ['ENOSPC', 'full'],
  ['EDQUOT', 'full'],
  ['EROFS', 'unwritable'],
  ['EACCES', 'unwritable'],
  ['EPERM', 'unwritable'],
  ['EIO', 'unwritable'],
])
const HELD = ['SQLITE_BUSY', 'SQLITE_LOCKED']

const DETAILS: Readonly<Record<StorageFault, string>> = {
  full: 'The disk is full. Free disk space, then try again.',
  damaged: 'The database is damaged. The next start restores a backup.',
  unwritable: 'The disk is not writable. Online tunnels stay online, changes are refused.',
}

/** What an error says about the storage; undefined when it is about something else. */
export function faultOf(error: unknown): StorageFault | undefined {
  if (hasCode(error, FAULTS.full)) return 'full'
  if (hasCode(error, FAULTS.damaged)) return 'damaged'
  if (hasCode(error, FAULTS.unwritable)) return 'unwritable'
  return error instanceof Error && 'code' in error ? SYSTEM_FAULTS.get(error.code) : undefined
}

/** True when another connection holds the lock. */
export function isHeld(error: unknown): boolean {
  return hasCode(error, HELD)
}

/** What people are told about a fault, one sentence. */
export function describeFault(fault: StorageFault): string {
  return DETAILS[fault]
}

/** What a change is refused with: AppError `storage-full` or `storage-unavailable`. */
export function refusalOf(fault: StorageFault, cause?: unknown): AppError {
  const code = fault === 'full' ? 'storage-full' : 'storage-unavailable'
  return new AppError(code, describeFault(fault), { cause })
}

/**
 * An error of the storage as people are told it. Any other error, such as a broken constraint,
 * comes back as it is: its owner knows what it means.
 */
export function toStorageError(error: unknown): unknown {
  if (isHeld(error)) {
    const detail = 'Another program is using the database.'
    return new AppError('storage-unavailable', detail, { cause: error, retryAfterS: 5 })
  }
  const fault = faultOf(error)
  return fault ? refusalOf(fault, error) : error
}

function hasCode(error: unknown, families: readonly string[]): boolean {
  if (!(error instanceof SqliteError)) return false
  return families.some((family) => error.code === family || error.code.startsWith(`${family}_`))
}
