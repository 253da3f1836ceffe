import {
  copyFileSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { filler, readJournal } from '../../src/store/journal/journal-text.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { type NoteStore, openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const ten = (prefix: string) => Array.from({ length: 10 }, (_, n) => `${prefix} ${n}`)
const OLD = ten('old')
const NEW = ten('new')

/** Ten notes of which there is a backup, ten newer ones in the log alone: as a power cut leaves them. */
function afterPowerCut() {
  const written = temporaryFolder()
  const first = openNotes(written)
  for (const text of OLD) first.add(text)
  first.database.close()
  const { path, add } = openNotes(written)
  for (const text of NEW) add(text)
  const folder = temporaryFolder()
  for (const name of readdirSync(written)) copyFileSync(join(written, name), join(folder, name))
  return { folder, path: path.replace(written, folder) }
}

function zero(path: string, from: number, to?: number): void {
  const bytes = readFileSync(path)
  writeFileSync(path, bytes.fill(0, from, to ?? bytes.length))
}

/** What a person reads, and whether anybody has to. */
function told({ database }: NoteStore) {
  const { healing, losses, lossProblem } = database.report()
  return { damage: healing?.damage, copy: healing?.copy, losses: losses.length, lossProblem }
}

describe('a log that was damaged', () => {
  it.each<[string, (path: string) => void]>([
    ['deleted', (path) => rmSync(`${path}-wal`)],
    ['cut', (path) => truncateSync(`${path}-wal`, 20_000)],
    ['zeroed in the middle', (path) => zero(`${path}-wal`, 20_000, 25_000)],
  ])('loses no row, and is told: %s', (_how, harm) => {
    const { folder, path } = afterPowerCut()
    harm(path)
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual([...OLD, ...NEW])
    expect(told(notes)).toEqual({ damage: 'behind', copy: 'journal', losses: 0 })
  })

  it('is put aside as it was found', () => {
    const { folder, path } = afterPowerCut()
    truncateSync(`${path}-wal`, 20_000)
    const harmed = readFileSync(`${path}-wal`)
    const [aside] = openNotes(folder).database.report().putAside
    expect(readFileSync(join(folder, `${aside}-wal`))).toEqual(harmed)
  })
})

describe('a row that was altered behind the back of its owner', () => {
  it('is as it was written again', () => {
    const folder = temporaryFolder()
    const { path, add, database } = openNotes(folder)
    add('allow bind:a.test')
    database.close()
    const file = new Sqlite(path)
    file.exec(`UPDATE notes SET text = 'allow bind:b.test'`)
    file.close()
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual(['allow bind:a.test'])
    expect(told(notes)).toEqual({ damage: 'altered', copy: 'journal', losses: 0 })
  })

  it('is found before a backup would take it over, and asks for a new start', () => {
    const folder = temporaryFolder()
    const restarts: string[] = []
    const { path, add, database } = openNotes(folder, {
      onRestartNeeded: (reason) => restarts.push(reason),
    })
    add('as written')
    const file = new Sqlite(path)
    file.exec(`UPDATE notes SET text = 'altered'`)
    file.close()
    database.close()
    expect(restarts).toHaveLength(1)
    expect(readdirSync(folder).filter((name) => /backup-\d$/.test(name))).toEqual([])
    expect(openNotes(folder).texts()).toEqual(['as written'])
  })
})

describe('a journal that was damaged', () => {
  it.each<[string, (journal: string) => void]>([
    ['deleted', (journal) => rmSync(journal)],
    ['cut', (journal) => truncateSync(journal, readFileSync(journal).length - 1)],
    ['zeroed where nothing was written', (journal) => zero(journal, 60_000, 60_010)],
    ['zeroed from a line on', (journal) => zero(journal, 2_000, 8_000)],
    ['another file', (journal) => writeFileSync(journal, 'noise\n')],
  ])('leaves all rows, and nobody can tell: %s', (_how, harm) => {
    const { folder, path } = afterPowerCut()
    harm(`${path}.journal`)
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual([...OLD, ...NEW])
    expect(told(notes)).toMatchObject({ damage: 'unproven', copy: 'database', losses: 1 })
    notes.database.confirmLosses()
    notes.add('after it')
    notes.database.close()
    const again = openNotes(folder)
    expect(again.texts()).toEqual([...OLD, ...NEW, 'after it'])
    expect(told(again)).toEqual({ losses: 0 })
  })
})

describe('a journal that is damaged while it is in use', () => {
  it('begins anew with the next backup', async () => {
    const clock = new ManualClock()
    const { path, add, database } = openNotes(temporaryFolder(), { clock })
    add('one')
    zero(`${path}.journal`, 0, 100)
    await clock.advance(5_000)
    expect(readJournal(`${path}.journal`)?.tail).toBe('clean')
    expect(database.report().fault).toBeUndefined()
  })
})

describe('changes that are in no copy', () => {
  it('are counted, with the time of the copy, until somebody confirms', () => {
    const { folder, path } = afterPowerCut()
    writeFileSync(path, 'noise')
    // The lines of the oldest of the newer changes, without which the rest is of no use.
    const journal = readFileSync(`${path}.journal`)
    const at = journal.indexOf('new 3')
    zero(`${path}.journal`, at, at + 5)
    const first = openNotes(folder)
    const { healing, lossProblem } = first.database.report()
    expect(first.texts()).toEqual([...OLD, ...NEW.filter((text) => text !== 'new 3')])
    expect(healing).toMatchObject({ damage: 'corrupt', copy: 'journal', missing: 1 })
    expect(lossProblem).toMatch(/1 change or more may be missing .* journal of 2030-/)
    first.database.close()

    const second = openNotes(folder)
    expect(told(second)).toEqual({ losses: 1, lossProblem })
    second.database.confirmLosses()
    expect(told(second)).toEqual({ losses: 0 })
    second.database.close()
    expect(told(openNotes(folder))).toEqual({ losses: 0 })
  })

  it('are told where only a backup is left', () => {
    const { folder, path } = afterPowerCut()
    writeFileSync(path, 'noise')
    rmSync(`${path}.journal`)
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual(OLD)
    expect(told(notes)).toMatchObject({ copy: 'backup', losses: 1 })
    expect(told(notes).lossProblem).toMatch(/the latest changes may be missing .* a backup of/)
  })

  it('are told although the record of it is damaged', () => {
    const { folder, path } = afterPowerCut()
    rmSync(`${path}.journal`)
    openNotes(folder).database.close()
    writeFileSync(`${path}.losses`, '[{"missing":')
    expect(told(openNotes(folder)).losses).toBe(1)
  })

  it('take no row along that refers to one of them', () => {
    const folder = temporaryFolder()
    const tags = {
      id: 'tags-1',
      sql: `CREATE TABLE tags (
        name TEXT PRIMARY KEY,
        note INTEGER NOT NULL REFERENCES notes (id)
      ) STRICT, WITHOUT ROWID`,
    }
    const migrations = [{ id: 'notes-1', sql: NOTES_SQL }, tags]
    const first = openNotes(folder, { migrations })
    const tag = first.database.prepare<[string, number]>('INSERT INTO tags VALUES (?, ?)')
    first.add('kept')
    first.database.write(() => tag.run('of the first', 1))
    first.add('lost')
    first.database.write(() => tag.run('of the second', 2))
    const copy = temporaryFolder()
    for (const name of readdirSync(folder)) copyFileSync(join(folder, name), join(copy, name))
    const path = join(copy, 'notes.db')
    writeFileSync(path, 'noise')
    const at = readFileSync(`${path}.journal`).indexOf('"lost"')
    zero(`${path}.journal`, at, at + 5)

    const second = openNotes(copy, { migrations })
    expect(second.texts()).toEqual(['kept'])
    const names = second.database.prepare('SELECT name FROM tags').pluck().all()
    expect(names).toEqual(['of the first'])
    expect(second.database.report().healing?.missing).toBe(2)
  })
})

const NOTES_SQL =
  'CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL) STRICT'

describe('a crash', () => {
  /** What lies on the disk when the process ends between the commit and the line of the journal. */
  function betweenCommitAndLine() {
    const { folder, path } = afterPowerCut()
    const journal = readFileSync(`${path}.journal`)
    const end = journal.indexOf('\n', journal.indexOf('new 9')) + 1
    const start = journal.lastIndexOf('\n', end - 2) + 1
    filler(start, end).copy(journal, start)
    writeFileSync(`${path}.journal`, journal)
    return { folder, path, start }
  }

  it('between a commit and its line loses nothing and alarms nobody', () => {
    const { folder } = betweenCommitAndLine()
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual([...OLD, ...NEW])
    expect(told(notes)).toEqual({ losses: 0 })
    notes.add('next')
    notes.database.close()
    expect(told(openNotes(folder))).toEqual({ losses: 0 })
  })

  it('before a new journal took the place of the old one loses nothing and alarms nobody', () => {
    const { folder, path } = afterPowerCut()
    renameSync(`${path}.journal`, `${path}.journal.tmp`)
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual([...OLD, ...NEW])
    expect(told(notes)).toEqual({ losses: 0 })
    expect(readdirSync(folder)).not.toContain('notes.db.journal.tmp')
    notes.database.close()
    expect(told(openNotes(folder))).toEqual({ losses: 0 })
  })

  it('at the very first start leaves a journal that is not believed before the database', () => {
    const folder = temporaryFolder()
    const { path, add, database } = openNotes(folder)
    add('of another try')
    database.close()
    const fresh = temporaryFolder()
    copyFileSync(`${path}.journal`, join(fresh, 'notes.db.journal.tmp'))
    const notes = openNotes(fresh)
    expect(notes.texts()).toEqual([])
    expect(told(notes)).toEqual({ losses: 0 })
  })

  it('in the middle of a healing is followed by the rest of it', () => {
    const { folder, path } = afterPowerCut()
    openNotes(folder).database.close()
    renameSync(path, `${path}.rebuilt`)
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual([...OLD, ...NEW])
    expect(told(notes)).toEqual({ losses: 0 })
  })

  it('in the middle of that line loses nothing and alarms nobody', () => {
    const { folder, path, start } = betweenCommitAndLine()
    const journal = readFileSync(`${path}.journal`)
    journal.write('0123456789abcdef {"n":2', start)
    writeFileSync(`${path}.journal`, journal)
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual([...OLD, ...NEW])
    expect(told(notes)).toEqual({ losses: 0 })
  })

  it('is told from a lost commit: a line that was begun has a commit before it', () => {
    const { folder, path, start } = betweenCommitAndLine()
    const journal = readFileSync(`${path}.journal`)
    journal.write('0123456789abcdef {"n":2', start)
    writeFileSync(`${path}.journal`, journal)
    rmSync(`${path}-wal`)
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual([...OLD, ...NEW.slice(0, 9)])
    expect(notes.database.report().healing).toMatchObject({ missing: 1, mayBeMore: false })
    expect(told(notes).losses).toBe(1)
  })
})

describe('a backup that was put back by hand', () => {
  it('is as old as the backup, not as the copy', () => {
    const folder = temporaryFolder()
    const { path, add, database } = openNotes(folder)
    add('old')
    database.close()
    const madeAt = new Date(Date.UTC(2025, 0, 2))
    utimesSync(`${path}.backup-1`, madeAt, madeAt)
    copyFileSync(`${path}.backup-1`, path)
    for (const end of ['.journal', '-wal', '-shm']) rmSync(path + end, { force: true })
    const notes = openNotes(folder)
    expect(notes.texts()).toEqual(['old'])
    const { copy, restoredFrom } = notes.database.report().healing ?? {}
    expect({ copy, restoredFrom }).toEqual({ copy: 'database', restoredFrom: madeAt.getTime() })
  })
})
