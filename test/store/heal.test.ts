import {
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Sqlite } from '../../src/store/sqlite.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { NOTES_ID, NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
import { type NoteStore, openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** A closed database with one note and a backup of it. */
function notesWithBackup(): { folder: string; path: string } {
  const folder = temporaryFolder()
  const { database, path, add } = openNotes(folder)
  add('precious')
  database.close()
  return { folder, path }
}

function overwrite(path: string, at: number, bytes: Buffer): void {
  const content = readFileSync(path)
  bytes.copy(content, at)
  writeFileSync(path, content)
}

/** Puts a database in place of the one at `path`. */
function replaceBy(path: string, sql: string): void {
  rmSync(path)
  new Sqlite(path).exec(sql).close()
}

/** Open descriptors of this process that lead to `path`. */
function descriptorsOf(path: string): string[] {
  const targets = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`)
    } catch {
      return ''
    }
  })
  return targets.filter((target) => target.startsWith(path))
}

describe('a damaged database', () => {
  const HARMS: readonly [string, string, (path: string) => void][] = [
    ['without a header', 'corrupt', (path) => overwrite(path, 0, Buffer.alloc(100, 0x55))],
    ['with a zeroed page', 'corrupt', (path) => overwrite(path, 4096, Buffer.alloc(4096))],
    [
      'cut off in the middle',
      'corrupt',
      (path) => writeFileSync(path, readFileSync(path).subarray(0, 5000)),
    ],
    [
      'with an unknown version in its header',
      'corrupt',
      (path) => overwrite(path, 18, Buffer.of(3)),
    ],
    ['full of noise', 'corrupt', (path) => writeFileSync(path, Buffer.alloc(20_000, 'noise '))],
    ['of zero length', 'empty', (path) => writeFileSync(path, '')],
    ['that is gone', 'missing', (path) => rmSync(path)],
    ['without any table', 'empty', (path) => replaceBy(path, 'VACUUM')],
    [
      'of another program',
      'foreign',
      (path) => replaceBy(path, 'CREATE TABLE photos (id INTEGER); PRAGMA application_id = 7'),
    ],
    [
      'of a program that leaves no mark',
      'foreign',
      (path) => replaceBy(path, 'CREATE TABLE photos (id INTEGER)'),
    ],
    [
      'of another program that has no table yet',
      'foreign',
      (path) => replaceBy(path, 'PRAGMA application_id = 7'),
    ],
  ]
  it.each(
    (['journal', 'backup'] as const).flatMap((copy) =>
      HARMS.map(([title, damage, harm]) => ({ title, damage, harm, copy })),
    ),
  )('$title gives way to the rows of its $copy', ({ damage, harm, copy }) => {
    const { folder, path } = notesWithBackup()
    harm(path)
    if (copy === 'backup') rmSync(`${path}.journal`)
    const { log, lines } = captureLog()
    const { database, texts } = openNotes(folder, { log })

    expect(texts()).toEqual(['precious'])
    const healing = { damage, copy, missing: 0, restoredFrom: expect.any(Number) }
    expect(database.report().healing).toEqual({ ...healing, mayBeMore: copy === 'backup' })
    expect(lines).toContainEqual(expect.objectContaining({ level: 'error', ...healing }))
  })

  it('is put aside with its log and its index, under the time', () => {
    const { folder, path } = notesWithBackup()
    writeFileSync(path, '')
    writeFileSync(`${path}-wal`, 'its log')
    writeFileSync(`${path}-shm`, 'its index')
    const clock = new ManualClock(Date.UTC(2030, 4, 6, 7, 8, 9))
    const { database } = openNotes(folder, { clock })

    expect(database.report().putAside).toEqual(['notes.db.corrupt-20300506T070809Z'])
    const aside = join(folder, 'notes.db.corrupt-20300506T070809Z')
    expect(readFileSync(aside, 'utf8')).toBe('')
    expect(readFileSync(`${aside}-wal`, 'utf8')).toBe('its log')
    expect(readFileSync(`${aside}-shm`, 'utf8')).toBe('its index')
  })

  it.each<[string, (backup: string) => void]>([
    ['damaged', (backup) => overwrite(backup, 4096, Buffer.alloc(4096))],
    ['empty', (backup) => writeFileSync(backup, '')],
    ['without any table', (backup) => replaceBy(backup, 'VACUUM')],
  ])('gives way to an older backup when the newest is %s', (_how, harm) => {
    const { folder, path } = notesWithBackup()
    copyFileSync(`${path}.backup-1`, `${path}.backup-2`)
    harm(`${path}.backup-2`)
    writeFileSync(path, '')
    rmSync(`${path}.journal`)
    expect(openNotes(folder).texts()).toEqual(['precious'])
  })

  it('starts empty, loudly, when there is no sound backup', () => {
    const { folder, path } = notesWithBackup()
    writeFileSync(`${path}.backup-1`, 'noise')
    writeFileSync(path, '')
    rmSync(`${path}.journal`)
    const { log, lines } = captureLog()
    const { database, texts } = openNotes(folder, { log })

    expect(texts()).toEqual([])
    expect(database.report().healing).toMatchObject({ damage: 'empty', copy: 'none' })
    expect(database.report().lossProblem).toContain('no backup was found')
    expect(lines).toContainEqual(
      expect.objectContaining({ level: 'error', msg: expect.stringContaining('may be missing') }),
    )
  })

  it('is noticed by the marker even when the backups are gone too', () => {
    const { folder, path } = notesWithBackup()
    rmSync(`${path}.backup-1`)
    rmSync(`${path}.journal`)
    rmSync(path)
    expect(openNotes(folder).database.report().healing?.damage).toBe('missing')
  })

  it('is noticed by its backups even when the marker is gone too', () => {
    const { folder, path } = notesWithBackup()
    rmSync(`${path}.initialised`)
    rmSync(`${path}.journal`)
    rmSync(path)
    expect(openNotes(folder).texts()).toEqual(['precious'])
  })

  it('is kept at most three times, the newest of them', () => {
    const { folder, path } = notesWithBackup()
    const clock = new ManualClock(Date.UTC(2030, 0, 1))
    for (let time = 0; time < 5; time += 1) {
      writeFileSync(path, '')
      writeFileSync(`${path}-wal`, '')
      openNotes(folder, { clock }).database.close()
      clock.stepWall(60_000)
    }
    const kept = ['000200Z', '000300Z', '000400Z'].map((at) => `notes.db.corrupt-20300101T${at}`)
    const aside = readdirSync(folder).filter((name) => name.includes('corrupt'))
    expect(aside.sort()).toEqual(kept.flatMap((name) => [name, `${name}-wal`]))
  })

  it('loses nothing to others in the same second', () => {
    const { folder, path } = notesWithBackup()
    const clock = new ManualClock(Date.UTC(2030, 0, 1))
    let putAside: readonly string[] = []
    for (const _time of [1, 2, 3]) {
      writeFileSync(path, '')
      const { database } = openNotes(folder, { clock })
      putAside = database.report().putAside
      database.close()
    }
    const first = 'notes.db.corrupt-20300101T000000Z'
    expect(putAside).toEqual([first, `${first}-2`, `${first}-3`])
  })
})

describe('a sound database', () => {
  it('is not touched by a first start, a clean stop or the log of a killed process', () => {
    const folder = temporaryFolder()
    const { add, path } = openNotes(folder)
    add('only in the log')
    const killed = temporaryFolder()
    for (const file of readdirSync(folder)) copyFileSync(join(folder, file), join(killed, file))

    expect(existsSync(`${path}-wal`)).toBe(true)
    const { database, texts } = openNotes(killed)
    expect(texts()).toEqual(['only in the log'])
    expect(database.report()).toMatchObject({ healing: undefined, putAside: [] })
  })

  it('is new when the first start ended before the schema was there', () => {
    const folder = temporaryFolder()
    const path = join(folder, 'notes.db')
    writeFileSync(path, '')
    const { database } = openNotes(folder)
    expect(database.report().healing).toBeUndefined()
  })

  it('is not put aside because its rows are those of a newer version', () => {
    const { folder } = notesWithBackup()
    const migrations = [...NOTES_MIGRATIONS, { id: 'notes-9', sql: '' }]
    openNotes(folder, { migrations }).database.close()
    expect(() => openNotes(folder)).toThrow('notes-9')
    expect(readdirSync(folder).filter((name) => name.includes('corrupt'))).toEqual([])
  })

  it('is not put aside because another program holds it', () => {
    const { folder, path } = notesWithBackup()
    const other = new Sqlite(path)
    onTestFinished(() => {
      other.close()
    })
    other.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; DELETE FROM notes')
    expect(() => openNotes(folder)).toThrow('is using the database')
    expect(readdirSync(folder).filter((name) => name.includes('corrupt'))).toEqual([])
    other.close()
    expect(descriptorsOf(path)).toEqual([])
  })

  it('has a marker that is written once and says what it is for', () => {
    const { folder, path } = notesWithBackup()
    const marker = `${path}.initialised`
    expect(readFileSync(marker, 'utf8')).toContain('notes.db')
    writeFileSync(marker, 'as it was')
    openNotes(folder)
    expect(readFileSync(marker, 'utf8')).toBe('as it was')
  })

  it('carries the mark of its program', () => {
    const { path } = notesWithBackup()
    expect(readFileSync(path).readUInt32BE(68)).toBe(NOTES_ID)
  })
})

describe('damage that shows while running', () => {
  it.each<[string, (notes: NoteStore) => void]>([
    ['a reader', ({ texts }) => texts()],
    ['a writer', ({ add }) => add('more')],
  ])('is noticed by %s: asks for a new start, once, and that one heals', (_who, use) => {
    const { folder, path } = notesWithBackup()
    const reasons: string[] = []
    const notes = openNotes(folder, { onRestartNeeded: (reason) => reasons.push(reason) })
    const { database } = notes
    const table = database
      .prepare<[], { page: number }>(
        `SELECT rootpage AS page FROM sqlite_schema WHERE name = 'notes'`,
      )
      .get()
    overwrite(path, ((table?.page ?? 0) - 1) * 4096, Buffer.alloc(4096, 0x55))

    // As after hours: nothing of the file is in the cache any more.
    database.prepare('PRAGMA shrink_memory').run()
    expect(() => use(notes)).toThrow()
    expect(() => use(notes)).toThrow()
    expect(reasons).toHaveLength(1)
    expect(database.report().fault).toBe('damaged')
    database.close()
    expect(openNotes(folder).texts()).toEqual(['precious'])
  })
})

describe('a database whose file is taken away while it is open', () => {
  it.each<[string, (path: string) => void]>([
    ['deleted', (path) => rmSync(path)],
    ['with its folder', (path) => rmSync(dirname(path), { recursive: true })],
    [
      'replaced',
      (path) => {
        copyFileSync(path, `${path}.new`)
        renameSync(`${path}.new`, path)
      },
    ],
  ])('takes no change that would be lost, and asks for a restart: %s', (_how, take) => {
    const restarts: string[] = []
    const folder = join(temporaryFolder(), 'data')
    const { database, path, add, texts } = openNotes(folder, {
      onRestartNeeded: (reason) => restarts.push(reason),
    })
    add('kept')
    take(path)
    expect(() => add('lost')).toThrow(expect.objectContaining({ code: 'storage-unavailable' }))
    expect(() => database.ping()).toThrow(expect.objectContaining({ code: 'storage-unavailable' }))
    expect(database.report()).toMatchObject({ fault: 'damaged', putAside: [] })
    expect(texts()).toEqual(['kept'])
    expect(restarts).not.toEqual([])
    database.close()
    const again = openNotes(folder)
    expect(again.texts()).toEqual(['kept'])
    expect(again.database.report().losses).toEqual([])
  })
})

describe('a database made anew from rows', () => {
  it('does not run the triggers of its owners again, and still has them', () => {
    const triggers = {
      id: 'trail-1',
      sql: `CREATE TABLE trail (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
        CREATE TRIGGER trail_is_kept BEFORE DELETE ON trail
          BEGIN SELECT RAISE(ABORT, 'the trail stays'); END;
        CREATE TRIGGER notes_leave_a_trail AFTER INSERT ON notes
          BEGIN INSERT INTO trail (text) VALUES (NEW.text); END`,
    }
    const folder = temporaryFolder()
    const migrations = [...NOTES_MIGRATIONS, triggers]
    const first = openNotes(folder, { migrations })
    first.add('one')
    first.database.close()
    rmSync(first.path)

    const second = openNotes(folder, { migrations })
    const trail = second.database.prepare('SELECT text FROM trail').pluck()
    expect(trail.all()).toEqual(['one'])
    second.add('two')
    expect(trail.all()).toEqual(['one', 'two'])
    expect(() => second.database.prepare('DELETE FROM trail').run()).toThrow('the trail stays')
  })

  it('has rows that would not be let in any more', () => {
    const limit = {
      id: 'limit-1',
      sql: `CREATE TRIGGER notes_are_two BEFORE INSERT ON notes
        WHEN (SELECT count(*) FROM notes) >= 2 BEGIN SELECT RAISE(ABORT, 'full'); END`,
    }
    const folder = temporaryFolder()
    const first = openNotes(folder)
    for (const text of ['one', 'two', 'three']) first.add(text)
    first.database.close()
    const migrations = [...NOTES_MIGRATIONS, limit]
    openNotes(folder, { migrations }).database.close()
    rmSync(first.path)
    expect(openNotes(folder, { migrations }).texts()).toEqual(['one', 'two', 'three'])
  })

  it('has the rows that its steps made only once', () => {
    const settings = {
      id: 'settings-1',
      sql: `CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
        INSERT INTO settings VALUES ('colour', 'red'), ('size', 'small')`,
    }
    const folder = temporaryFolder()
    const migrations = [...NOTES_MIGRATIONS, settings]
    const first = openNotes(folder, { migrations })
    const { database } = first
    const paint = database.prepare(`UPDATE settings SET value = 'blue' WHERE name = 'colour'`)
    const shrink = database.prepare(`DELETE FROM settings WHERE name = 'size'`)
    database.write(() => [paint.run(), shrink.run()])
    database.close()
    rmSync(first.path)
    const second = openNotes(folder, { migrations })
    expect(second.database.prepare('SELECT * FROM settings').all()).toEqual([
      { name: 'colour', value: 'blue' },
    ])
  })
})
