import {
  closeSync,
  existsSync,
  openSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readJournal } from '../../src/store/journal/journal-text.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
import { type NoteStore, openNotes } from '../helpers/open-store.ts'
import { canMount, mountSmallDisk } from '../helpers/small-disk.ts'

const RESERVE = 512 * 1024
const PAGE = Buffer.alloc(4096, 1)
const NOTE = 'x'.repeat(8_000)

/** Takes what is left of the disk. */
function fill(folder: string): void {
  const file = openSync(join(folder, 'filler'), 'a')
  try {
    for (;;) writeSync(file, PAGE)
  } catch (error) {
    expect(error).toMatchObject({ code: 'ENOSPC' })
  } finally {
    closeSync(file)
  }
}

function addUntilFull({ add }: NoteStore): number {
  for (let count = 0; ; count += 1) {
    try {
      add(NOTE)
    } catch (error) {
      expect(error).toMatchObject({ code: 'storage-full', status: 507 })
      expect((error as Error).message).toMatch(
        /^The disk of \/\S+ is full\. Free disk space there\. /,
      )
      return count
    }
  }
}

describe.runIf(canMount())('a full disk (a tmpfs of 4 MiB: needs the right to mount)', () => {
  function fullStore() {
    const { folder } = mountSmallDisk('4m')
    const clock = new ManualClock()
    const notes = openNotes(folder, { clock, reserveBytes: RESERVE })
    const count = addUntilFull(notes)
    return { ...notes, folder, clock, count }
  }

  it('refuses new rows with storage-full and loses none of the acknowledged', () => {
    const { database, texts, count } = fullStore()
    expect(count).toBeGreaterThan(100)
    expect(texts()).toHaveLength(count)
    expect(database.report().fault).toBe('full')
  })

  it('lets every row be deleted, one by one', () => {
    const { texts, remove, count, folder } = fullStore()
    fill(folder)
    for (let id = 1; id <= count; id += 1) remove(id)
    expect(texts()).toEqual([])
  })

  it('folds the log in for a delete that has not enough room with the reserve alone', () => {
    const { folder } = mountSmallDisk('4m')
    const tiny = { reserveBytes: 1 }
    const { database, add } = openNotes(folder, tiny)
    for (let count = 0; count < 40; count += 1) add(NOTE)
    database.close()
    const { path, texts, remove } = openNotes(folder, tiny)
    const logBytes = () => statSync(`${path}-wal`).size
    for (let id = 1; id <= 5; id += 1) remove(id)
    expect(logBytes()).toBeGreaterThan(20 * PAGE.length)
    fill(folder)
    remove(6)
    expect(logBytes()).toBe(0)
    for (let id = 7; id <= 40; id += 1) remove(id)
    expect(texts()).toEqual([])
  })

  it('has room in the journal for deletes that other changes do not take', () => {
    const { folder } = mountSmallDisk('4m')
    const notes = openNotes(folder, { reserveBytes: RESERVE })
    fill(folder)
    expect(() => {
      for (let count = 0; count < 10_000; count += 1) notes.add('small')
    }).toThrow(expect.objectContaining({ code: 'storage-full' }))
    const journal = () => statSync(`${notes.path}.journal`).ino
    const before = journal()
    for (let id = 1; id <= 50; id += 1) notes.remove(id)
    expect(journal()).toBe(before)
  })

  it('begins the journal anew in its own place when that room is used up, too', () => {
    const { folder } = mountSmallDisk('4m')
    const notes = openNotes(folder, { reserveBytes: 1 })
    const { database, path, add, texts } = notes
    for (let count = 0; count < 40; count += 1) add(NOTE)
    fill(folder)
    const update = database.prepare<[string]>('UPDATE notes SET text = ? WHERE id = 1')
    const journal = () => statSync(`${path}.journal`).ino
    const before = journal()
    let last = ''
    for (let count = 10; journal() === before && count < 90; count += 1) {
      last = `${count}${NOTE.slice(2)}`
      database.write(() => update.run(last), { mayUseReserve: true })
    }
    expect(journal()).not.toBe(before)
    expect(texts()[0]).toBe(last)
    const kept = readJournal(`${path}.journal`)
    expect(kept?.tail).toBe('clean')
    expect(kept?.rows?.get('notes')?.get('[1]')?.row.text).toBe(last)
  })

  it('takes rows again where deletes made room', () => {
    const { add, remove, count } = fullStore()
    for (let id = 1; id <= count; id += 1) remove(id)
    add(NOTE)
  })

  it('gives the reserve up for a delete and puts it by again when there is room', async () => {
    const { folder } = mountSmallDisk('4m')
    const clock = new ManualClock()
    const { database, path, add, remove } = openNotes(folder, { clock, reserveBytes: RESERVE })
    for (let count = 0; count < 40; count += 1) add(NOTE)
    fill(folder)
    for (let id = 1; id <= 40; id += 1) remove(id)
    expect(existsSync(`${path}.reserve`)).toBe(false)
    await clock.advance(30_000)
    expect(database.report().fault).toBe('full')

    rmSync(join(folder, 'filler'))
    await clock.advance(10_000)
    expect(database.report().fault).toBeUndefined()
    expect(existsSync(`${path}.reserve`)).toBe(true)
    add(NOTE)
  })

  it('is over at the next look after somebody made room, without a wait', () => {
    const { database, folder, add } = fullStore()
    fill(folder)
    expect(() => add(NOTE)).toThrow(expect.objectContaining({ code: 'storage-full' }))
    expect(database.report().fault).toBe('full')
    rmSync(join(folder, 'filler'))
    expect(database.report().fault).toBeUndefined()
  })

  it('is over as soon as the disk takes changes again', async () => {
    const { folder } = mountSmallDisk('16m')
    const clock = new ManualClock()
    const { database, add } = openNotes(folder, { clock })
    fill(folder)
    const large = 'x'.repeat(200_000)
    expect(() => {
      for (let count = 0; count < 40; count += 1) add(large)
    }).toThrow(expect.objectContaining({ code: 'storage-full' }))
    await clock.advance(20_000)
    expect(database.report()).toMatchObject({ fault: 'full', risk: undefined })
    const filler = join(folder, 'filler')
    const free = (bytes: number) => truncateSync(filler, statSync(filler).size - bytes)
    // Room for the smallest write, and for no usual change.
    free(4 * PAGE.length)
    await clock.advance(20_000)
    expect(database.report().fault).toBe('full')
    free(700 * 1024)
    await clock.advance(20_000)
    expect(database.report()).toMatchObject({
      fault: undefined,
      risk: { short: 'the disk is almost full' },
    })
    add(NOTE)
    expect(database.report().fault).toBeUndefined()
  })

  it('is over on a small disk as well, where the reserve is half of it', async () => {
    const { folder } = mountSmallDisk('2m')
    const clock = new ManualClock()
    const { database, add } = openNotes(folder, { clock })
    fill(folder)
    expect(() => {
      for (let count = 0; count < 40; count += 1) add(NOTE)
    }).toThrow(expect.objectContaining({ code: 'storage-full' }))
    rmSync(join(folder, 'filler'))
    await clock.advance(20_000)
    expect(database.report().fault).toBeUndefined()
    add(NOTE)
  })

  it('starts on a full disk, serves what is there and deletes', () => {
    const { database, folder, count } = fullStore()
    database.close()
    fill(folder)
    const { texts, remove, add } = openNotes(folder, { reserveBytes: RESERVE })
    expect(texts()).toHaveLength(count)
    expect(() => add(NOTE)).toThrow(expect.objectContaining({ code: 'storage-full' }))
    remove(1)
    expect(texts()).toHaveLength(count - 1)
  })

  it('serves the old rows from memory when there is no room for an update of the schema', async () => {
    const { database, path, folder, count } = fullStore()
    database.close()
    rmSync(`${path}.reserve`, { force: true })
    fill(folder)
    const reasons: string[] = []
    const clock = new ManualClock()
    const notes = openNotes(folder, {
      clock,
      migrations: [
        ...NOTES_MIGRATIONS,
        { id: 'notes-2', sql: 'ALTER TABLE notes ADD COLUMN tag TEXT' },
      ],
      reserveBytes: RESERVE,
      onRestartNeeded: (reason) => reasons.push(reason),
    })
    expect(notes.texts()).toHaveLength(count)
    expect(() => notes.remove(1)).toThrow(expect.objectContaining({ code: 'storage-full' }))

    await clock.advance(20_000)
    expect(reasons).toEqual([])
    rmSync(join(folder, 'filler'))
    await clock.advance(10_000)
    expect(reasons).toHaveLength(1)
  })

  it('keeps the backups it has when there is no room for another', async () => {
    const { clock, folder, database } = fullStore()
    const { lastBackupAt } = database.report()
    fill(folder)
    await clock.advance(120_000)
    expect(database.report().lastBackupAt).toBe(lastBackupAt)
  })

  it('says so when there is no room for the reserve at the start', () => {
    const { folder } = mountSmallDisk('300k')
    writeFileSync(join(folder, 'other'), '')
    const { log, lines } = captureLog()
    const { database, add } = openNotes(folder, { log, reserveBytes: RESERVE })
    add('small enough')
    expect(database.report().fault).toBe('full')
    expect(lines).toContainEqual(expect.objectContaining({ level: 'error', fault: 'full' }))
  })
})
