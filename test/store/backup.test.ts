import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Backups, listBackups } from '../../src/store/backup.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

function textsIn(path: string): string[] {
  const backup = new Sqlite(path, { readonly: true })
  try {
    return backup.prepare<[], string>('SELECT text FROM notes ORDER BY id').pluck().all()
  } finally {
    backup.close()
  }
}

const newestTexts = (path: string) => textsIn(listBackups(path)[0]?.path ?? '')

/** Notes with a first backup, and nothing waiting for one. */
async function settledNotes(folder = temporaryFolder()) {
  const clock = new ManualClock()
  const captured = captureLog()
  const notes = openNotes(folder, { clock, log: captured.log })
  await clock.advance(5_000)
  return { ...notes, folder, clock, lines: captured.lines }
}

describe('Backups', () => {
  it('is made once the changes have settled', async () => {
    const { path, clock, add } = await settledNotes()
    add('one')
    await clock.advance(4_999)
    add('two')
    await clock.advance(4_999)
    expect(newestTexts(path)).toEqual([])
    await clock.advance(1)
    expect(newestTexts(path)).toEqual(['one', 'two'])
    expect(listBackups(path).map(({ number }) => number)).toEqual([2, 1])
  })

  it('does not wait longer than a minute when changes never stop', async () => {
    const { path, clock, add } = await settledNotes()
    for (let second = 0; second < 60; second += 1) {
      add(`at ${second}`)
      await clock.advance(1_000)
    }
    expect(newestTexts(path)).toHaveLength(60)
  })

  it('keeps the newest three, counted and not timed', async () => {
    const { path, clock, add } = await settledNotes()
    for (const text of ['a', 'b', 'c', 'd']) {
      clock.stepWall(-365 * 86_400_000)
      add(text)
      await clock.advance(5_000)
    }
    expect(listBackups(path).map(({ number }) => number)).toEqual([5, 4, 3])
    expect(newestTexts(path)).toEqual(['a', 'b', 'c', 'd'])
  })

  it('counts on from the highest number, and takes no other file for a backup', async () => {
    const { path, folder, clock, add } = await settledNotes()
    renameSync(`${path}.backup-1`, `${path}.backup-10`)
    copyFileSync(`${path}.backup-10`, `${path}.backup-9`)
    const others = ['notes.db.backup-11x', 'notes.db.backup-x11', 'agent.db.backup-11']
    for (const name of others) writeFileSync(join(folder, name), '')
    add('one')
    await clock.advance(5_000)
    expect(listBackups(path).map(({ number }) => number)).toEqual([11, 10, 9])
    expect(readdirSync(folder)).toEqual(expect.arrayContaining(others))
  })

  it('makes the last one at the close when something changed, and none after it', async () => {
    const { database, path, clock, lines, add } = await settledNotes()
    add('at the last moment')
    database.close()
    await clock.advance(60_000)
    expect(newestTexts(path)).toEqual(['at the last moment'])
    expect(listBackups(path)).toHaveLength(2)
    expect(lines.filter(({ level }) => level === 'warn')).toEqual([])
  })

  it('makes none at the close when nothing changed', async () => {
    const { database, path } = await settledNotes()
    const before = listBackups(path)
    database.close()
    expect(listBackups(path)).toEqual(before)
  })

  it('is a file for this user alone, and whole before it has its name', async () => {
    const { path, folder, clock, add } = await settledNotes()
    writeFileSync(`${path}.backup-2.tmp`, 'left by a power cut')
    add('one')
    await clock.advance(5_000)
    const [backup] = listBackups(path)
    expect(statSync(backup?.path ?? '').mode & 0o777).toBe(0o600)
    expect(readdirSync(folder).filter((name) => name.endsWith('.tmp'))).toEqual([])
    expect(
      readFileSync(backup?.path ?? '')
        .subarray(0, 15)
        .toString(),
    ).toBe('SQLite format 3')
  })

  it('says so when it cannot be made, and is made after the next change', async () => {
    const { path, clock, lines, add } = await settledNotes()
    mkdirSync(`${path}.backup-2.tmp`)
    add('one')
    await clock.advance(5_000)
    expect(lines).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        err: expect.objectContaining({ message: expect.stringContaining('backup-2.tmp') }),
      }),
    )
    rmdirSync(`${path}.backup-2.tmp`)
    add('two')
    await clock.advance(5_000)
    expect(newestTexts(path)).toEqual(['one', 'two'])
  })

  it('is made at the close when the one before could not be made', async () => {
    const { database, path, clock, add } = await settledNotes()
    mkdirSync(`${path}.backup-2.tmp`)
    add('one')
    await clock.advance(5_000)
    rmdirSync(`${path}.backup-2.tmp`)
    database.close()
    expect(newestTexts(path)).toEqual(['one'])
  })

  it('leaves nothing behind when it fails half way', () => {
    const folder = temporaryFolder()
    const path = join(folder, 'busy.db')
    const connection = new Sqlite(path)
    onTestFinished(() => {
      connection.close()
    })
    const backups = new Backups({
      connection,
      path,
      verify: () => {},
      onMade: () => {},
      log: captureLog().log,
      clock: new ManualClock(),
    })
    // SQLite makes no copy from within a transaction.
    connection.exec('BEGIN')
    expect(() => backups.make()).toThrow('VACUUM')
    expect(readdirSync(folder)).toEqual(['busy.db'])
  })

  it('tells when the newest was made', async () => {
    const { database, path } = await settledNotes()
    expect(database.report().lastBackupAt).toBe(statSync(join(`${path}.backup-1`)).mtimeMs)
  })
})
