import { copyFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readJournal } from '../../src/store/journal/journal-text.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** Keeps the newest ten of its rows. */
const DIARY = {
  id: 'diary-1',
  trail: 'diary',
  sql: `CREATE TABLE diary (id INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL) STRICT;
    CREATE TRIGGER diary_stays BEFORE DELETE ON diary
      WHEN OLD.id > (SELECT max(id) FROM diary) - 10
      BEGIN SELECT RAISE(ABORT, 'append-only'); END;
    CREATE TRIGGER diary_is_bounded AFTER INSERT ON diary
      BEGIN DELETE FROM diary WHERE id <= NEW.id - 10; END`,
}

function openDiary(folder: string, clock = new ManualClock()) {
  const migrations = [...NOTES_MIGRATIONS, DIARY]
  const { database, path, add } = openNotes(folder, { migrations, clock })
  const insert = database.prepare<[string]>('INSERT INTO diary (entry) VALUES (?)')
  const list = database.prepare<[], { entry: string }>('SELECT entry FROM diary ORDER BY id')
  return {
    database,
    path,
    add,
    write: (entry: string) => database.write(() => insert.run(entry)),
    entries: () => list.all().map(({ entry }) => entry),
  }
}

const days = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, n) => `day ${from + n}`)

/** Six entries of which there is a backup, eight newer ones in the log: as a power cut leaves them. */
function afterPowerCut() {
  const written = temporaryFolder()
  const first = openDiary(written)
  for (const day of days(1, 6)) first.write(day)
  first.database.close()
  const second = openDiary(written)
  for (const day of days(7, 14)) second.write(day)
  const folder = temporaryFolder()
  for (const name of readdirSync(written)) copyFileSync(join(written, name), join(folder, name))
  return { folder, path: second.path.replace(written, folder) }
}

/** A journal that began anew after a backup, which is lost: six entries are in the database alone. */
async function afterNewBeginning() {
  const written = temporaryFolder()
  const clock = new ManualClock()
  const diary = openDiary(written, clock)
  for (const day of days(1, 6)) diary.write(day)
  await clock.advance(5_000)
  const { rowsEnd } = readJournal(`${diary.path}.journal`) ?? {}
  for (let note = 0; readJournal(`${diary.path}.journal`)?.rowsEnd === rowsEnd; note += 1) {
    diary.add('x'.repeat(2_000))
    if (note > 500) expect.fail('it never begins anew')
  }
  diary.write('day 7')
  const folder = temporaryFolder()
  for (const name of readdirSync(written)) {
    if (!name.includes('.backup-')) copyFileSync(join(written, name), join(folder, name))
  }
  return { folder, path: diary.path.replace(written, folder) }
}

/** All newest ten, although the backup has older ones. */
const ALL = days(5, 14)

/** Changes the file behind its owner's back. */
function alter(path: string, sql: string): void {
  const file = new Sqlite(path)
  file.exec(sql)
  file.close()
}

describe('a trail', () => {
  it.each<[string, (path: string) => void]>([
    ['the log is cut', (path) => truncateSync(`${path}-wal`, 20_000)],
    ['the database is damaged', (path) => writeFileSync(path, 'noise')],
    [
      'both are gone',
      (path) => {
        rmSync(path)
        rmSync(`${path}-wal`)
      },
    ],
    ['an old row is altered', (path) => alter(path, "UPDATE diary SET entry = '' WHERE id = 6")],
    ['a new row is altered', (path) => alter(path, "UPDATE diary SET entry = '' WHERE id = 13")],
  ])('is whole again, and nobody is alarmed: %s', (_how, harm) => {
    const { folder, path } = afterPowerCut()
    harm(path)
    const first = openDiary(folder)
    expect(first.entries()).toEqual(ALL)
    expect(first.database.report()).toMatchObject({ healing: { copy: 'journal' }, losses: [] })
    first.write('day 15')
    first.database.close()
    const second = openDiary(folder)
    expect(second.entries()).toEqual(days(6, 15))
    expect(second.database.report()).toMatchObject({ healing: undefined, losses: [] })
  })

  it('is told to lack rows when no copy has them', async () => {
    const { folder, path } = await afterNewBeginning()
    writeFileSync(path, 'noise')
    const { entries, database } = openDiary(folder)
    expect(entries()).toEqual(['day 7'])
    expect(database.report().losses).toMatchObject([{ copy: 'journal', mayBeMore: true }])
  })

  it('is told to be altered where no copy has the row as it was', async () => {
    const { folder, path } = await afterNewBeginning()
    alter(path, "UPDATE diary SET entry = 'never' WHERE id = 3")
    const { entries, database } = openDiary(folder)
    expect(entries()).toHaveLength(7)
    expect(database.report().losses).toMatchObject([{ damage: 'altered', mayBeMore: true }])
  })

  it('is held against its sum before a backup takes it over', () => {
    const folder = temporaryFolder()
    const { database, path, write } = openDiary(folder)
    write('as written')
    alter(path, "UPDATE diary SET entry = 'altered'")
    database.close()
    expect(readdirSync(folder).filter((name) => name.includes('.backup-'))).toEqual([])
    expect(openDiary(folder).entries()).toEqual(['as written'])
  })
})
