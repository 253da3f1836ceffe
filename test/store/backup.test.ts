import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listBackups } from '../../src/store/backup.ts'
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

  it('makes the last one at the close when something changed', async () => {
    const { database, path, add } = await settledNotes()
    add('at the last moment')
    database.close()
    expect(newestTexts(path)).toEqual(['at the last moment'])
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

  it('tells when the newest was made', async () => {
    const { database, path } = await settledNotes()
    expect(database.report().lastBackupAt).toBe(statSync(join(`${path}.backup-1`)).mtimeMs)
  })
})
