import { describe, expect, it } from 'vitest'
import { AppError } from '../../src/base/app-error.ts'
import { SqliteError } from '../../src/store/sqlite.ts'
import {
  describeFault,
  faultOf,
  type StorageFault,
  StorageState,
  toStorageError,
} from '../../src/store/storage-state.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

function watched() {
  const clock = new ManualClock()
  const { log, lines } = captureLog()
  const asked: StorageFault[] = []
  const disk = { isWell: false }
  const isOver = (fault: StorageFault) => {
    asked.push(fault)
    return disk.isWell
  }
  return {
    clock,
    lines,
    asked,
    disk,
    state: new StorageState({ folder: '/data', log, clock, isOver }),
  }
}

describe('StorageState', () => {
  it('stays in its fault until a recheck finds that it is over', async () => {
    const { clock, disk, state } = watched()
    state.fail('full')
    await clock.advance(60_000)
    expect(state.fault).toBe('full')
    disk.isWell = true
    await clock.advance(10_000)
    expect(state.fault).toBeUndefined()
    expect(clock.sleeping).toBe(0)
    state.fail('full')
    await clock.advance(10_000)
    expect(state.fault).toBeUndefined()
  })

  it('rechecks the newest fault, with one watch for all', async () => {
    const { clock, asked, state } = watched()
    state.fail('full')
    state.fail('unwritable')
    await clock.advance(20_000)
    expect(asked).toEqual(['unwritable', 'unwritable'])
  })

  it('keeps one watch over a fault that ends early and comes back', async () => {
    const { clock, asked, disk, lines, state } = watched()
    state.fail('full')
    disk.isWell = true
    state.recheck()
    expect([state.fault, lines.length]).toEqual([undefined, 2])
    state.recheck()
    disk.isWell = false
    state.fail('full')
    expect(clock.sleeping).toBe(1)
    await clock.advance(20_000)
    expect(asked).toEqual(['full', 'full', 'full'])
  })

  it('logs a fault once, not at each refused change', () => {
    const { lines, state } = watched()
    for (let change = 0; change < 5; change += 1) state.fail('full')
    expect(lines).toHaveLength(1)
  })

  it('leaves nothing behind when it stops', async () => {
    const { clock, asked, state } = watched()
    state.fail('full')
    state.stop()
    await clock.advance(60_000)
    expect(asked).toEqual([])
    expect(clock.sleeping).toBe(0)
  })
})

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
