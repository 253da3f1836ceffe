import { SqliteError } from 'better-sqlite3'
import { AppError } from '../base/app-error.ts'

/** Reading such a file fails for good, and another copy of it may be fine. */
const DAMAGE = ['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_IOERR_READ', 'SQLITE_IOERR_SHORT_READ']
const UNAVAILABLE = ['SQLITE_IOERR', 'SQLITE_READONLY', 'SQLITE_CANTOPEN', 'SQLITE_PERM']

/** The family or the extended code of an SQLite error, such as `SQLITE_IOERR_WRITE`. */
export function sqliteCode(error: unknown): string | undefined {
  return error instanceof SqliteError ? error.code : undefined
}

/** True when the bytes of the database are wrong, not the moment. */
export function isDamage(error: unknown): boolean {
  return belongsTo(sqliteCode(error), DAMAGE)
}

/**
 * What people are told when the storage refuses: `storage-full` or `storage-unavailable`.
 * Anything else, such as a broken constraint, comes back as it is: its owner knows what it means.
 */
export function toStorageError(error: unknown): unknown {
  const code = sqliteCode(error)
  if (code === 'SQLITE_FULL') {
    return new AppError('storage-full', 'The disk of the device is full; delete something first.', {
      cause: error,
    })
  }
  if (belongsTo(code, ['SQLITE_BUSY', 'SQLITE_LOCKED'])) {
    return new AppError('storage-unavailable', 'Another program holds the database.', {
      cause: error,
      retryAfterS: 5,
    })
  }
  if (belongsTo(code, [...DAMAGE, ...UNAVAILABLE])) {
    return new AppError(
      'storage-unavailable',
      'The disk of the device cannot be written; what runs keeps running, changes are refused.',
      { cause: error },
    )
  }
  return error
}

function belongsTo(code: string | undefined, families: readonly string[]): boolean {
  return families.some((family) => code === family || code?.startsWith(`${family}_`))
}
