import { copyFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { lockFolder } from '../../src/store/data-folder.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
import { openNotes } from '../helpers/open-store.ts'
import { canMount, mountSmallDisk } from '../helpers/small-disk.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe.runIf(canMount())('a read-only data folder (a tmpfs: needs the right to mount)', () => {
  /** A disk with a closed database of two notes. */
  function diskWithNotes() {
    const disk = mountSmallDisk('16m')
    const { database, add, path } = openNotes(disk.folder)
    add('one')
    add('two')
    database.close()
    return { ...disk, path }
  }

  it('serves the last state from memory', () => {
    const { folder, remount } = diskWithNotes()
    remount('ro')
    const { database, texts } = openNotes(folder)
    expect(texts()).toEqual(['one', 'two'])
    expect(database.report().fault).toBe('unwritable')
    database.ping()
  })

  it('refuses changes with storage-unavailable, inside and outside of write()', () => {
    const { folder, remount } = diskWithNotes()
    remount('ro')
    const { database, add, remove, texts } = openNotes(folder)
    const refused = expect.objectContaining({ code: 'storage-unavailable', status: 503 })
    expect(() => add('three')).toThrow(refused)
    expect(() => remove(1)).toThrow(refused)
    expect(() => database.prepare('DELETE FROM notes').run()).toThrow('readonly')
    expect(texts()).toEqual(['one', 'two'])
  })

  it('serves what is only in the log, as after a power cut', () => {
    const source = temporaryFolder()
    const { add } = openNotes(source)
    add('logged')
    const { folder, remount } = mountSmallDisk('16m')
    for (const file of readdirSync(source)) copyFileSync(join(source, file), join(folder, file))
    remount('ro')
    expect(openNotes(folder).texts()).toEqual(['logged'])
  })

  it.each(['journal', 'backup'] as const)('serves the %s of a damaged database', (copy) => {
    const { folder, remount, path } = diskWithNotes()
    writeFileSync(path, 'noise')
    if (copy === 'backup') rmSync(`${path}.journal`)
    remount('ro')
    const { database, texts } = openNotes(folder)
    expect(texts()).toEqual(['one', 'two'])
    const { healing, losses } = database.report()
    expect(healing).toMatchObject({ damage: 'corrupt', copy, missing: 0 })
    expect(losses).toHaveLength(copy === 'backup' ? 1 : 0)
    const refused = expect.objectContaining({ code: 'storage-unavailable' })
    expect(() => database.confirmLosses()).toThrow(refused)
  })

  it('brings an old schema up to date in memory', () => {
    const { folder, remount } = diskWithNotes()
    remount('ro')
    const migrations = [
      ...NOTES_MIGRATIONS,
      { id: 'notes-2', sql: `ALTER TABLE notes ADD COLUMN tag TEXT DEFAULT 'new'` },
    ]
    const { database } = openNotes(folder, { migrations })
    expect(database.prepare('SELECT tag FROM notes WHERE id = 1').get()).toEqual({ tag: 'new' })
  })

  it('asks for a new start when it can be written again', async () => {
    const { folder, remount } = diskWithNotes()
    remount('ro')
    const clock = new ManualClock()
    const reasons: string[] = []
    openNotes(folder, { clock, onRestartNeeded: (reason) => reasons.push(reason) })
    await clock.advance(30_000)
    expect(reasons).toEqual([])
    remount('rw')
    await clock.advance(30_000)
    expect(reasons).toHaveLength(1)
  })

  it('does not start without a database to read', () => {
    const { folder, remount } = mountSmallDisk('1m')
    remount('ro')
    expect(() => openNotes(folder)).toThrow(StartError)
    expect(() => openNotes(folder)).toThrow(folder)
  })

  it('needs no lock', () => {
    const { folder, remount } = diskWithNotes()
    remount('ro')
    lockFolder({ folder, owner: 'agent', log: captureLog().log }).release()
    expect(readdirSync(folder)).not.toContain('agent.lock')
  })
})
