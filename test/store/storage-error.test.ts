import { describe, expect, it } from 'vitest'
import { AppError } from '../../src/base/app-error.ts'
import { SqliteError } from '../../src/store/sqlite.ts'
import { describeFault, faultOf, toStorageError } from '../../src/store/storage-error.ts'

const sqlite = (code: string) => new SqliteError('from SQLite', code)
const system = (code: string) => Object.assign(new Error('from the system'), { code })

describe('faultOf', () => {
  it.each([
    [sqlite('SQLITE_FULL'), 'full'],
    [system('ENOSPC'), 'full'],
    [sqlite('SQLITE_CORRUPT'), 'damaged'],
    [sqlite('SQLITE_CORRUPT_INDEX'), 'damaged'],
    [sqlite('SQLITE_NOTADB'), 'damaged'],
    [sqlite('SQLITE_IOERR_SHORT_READ'), 'damaged'],
    [sqlite('SQLITE_IOERR_WRITE'), 'unwritable'],
    [sqlite('SQLITE_READONLY_DBMOVED'), 'unwritable'],
    [sqlite('SQLITE_CANTOPEN'), 'unwritable'],
    [system('EROFS'), 'unwritable'],
    [sqlite('SQLITE_BUSY'), undefined],
    [sqlite('SQLITE_CONSTRAINT_UNIQUE'), undefined],
    [sqlite('SQLITE_FULLER'), undefined],
    [system('toString'), undefined],
    ['SQLITE_FULL', undefined],
  ])('%s is %s', (error, fault) => {
    expect(faultOf(error)).toBe(fault)
  })
})

describe('toStorageError', () => {
  it.each([
    ['SQLITE_FULL', 507, 'storage-full', describeFault('full')],
    ['SQLITE_CORRUPT', 503, 'storage-unavailable', describeFault('damaged')],
    ['SQLITE_IOERR_FSYNC', 503, 'storage-unavailable', describeFault('unwritable')],
    ['SQLITE_BUSY_SNAPSHOT', 503, 'storage-unavailable', 'Another program is using the database.'],
  ])('%s becomes %i %s', (code, status, appCode, detail) => {
    const error = toStorageError(sqlite(code))
    expect(error).toBeInstanceOf(AppError)
    expect(error).toMatchObject({ status, code: appCode, message: detail })
  })

  it('keeps what SQLite said for the log alone', () => {
    const cause = sqlite('SQLITE_FULL')
    expect(toStorageError(cause)).toMatchObject({ cause })
  })

  it('leaves the mistakes of an owner alone', () => {
    const broken = sqlite('SQLITE_CONSTRAINT_NOTNULL')
    expect(toStorageError(broken)).toBe(broken)
  })
})
