import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { NOTES_ID, NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const ADD_COLOUR = { id: 'notes-2', sql: `ALTER TABLE notes ADD COLUMN colour TEXT DEFAULT 'red'` }
const backupsIn = (folder: string) => readdirSync(folder).filter((name) => /backup-\d+$/.test(name))

function closedNotes(...texts: string[]): string {
  const folder = temporaryFolder()
  const notes = openNotes(folder)
  for (const text of texts) notes.add(text)
  notes.database.close()
  return folder
}

describe('migrate', () => {
  it('applies what is new and keeps the rows', () => {
    const folder = closedNotes('old')
    const notes = openNotes(folder, { migrations: [...NOTES_MIGRATIONS, ADD_COLOUR] })
    expect(notes.database.prepare('SELECT text, colour FROM notes').all()).toEqual([
      { text: 'old', colour: 'red' },
    ])
  })

  it('makes a backup of the old schema first', () => {
    const folder = closedNotes('old')
    const before = backupsIn(folder)
    openNotes(folder, { migrations: [...NOTES_MIGRATIONS, ADD_COLOUR] })
    const [made] = backupsIn(folder).filter((name) => !before.includes(name))
    const backup = new Sqlite(join(folder, made ?? ''), { readonly: true })
    expect(backup.prepare('SELECT * FROM notes').all()).toEqual([{ id: 1, text: 'old' }])
    backup.close()
  })

  it('applies all pending steps or none', () => {
    const folder = closedNotes('old')
    const broken = [...NOTES_MIGRATIONS, ADD_COLOUR, { id: 'notes-3', sql: 'NOT SQL' }]
    expect(() => openNotes(folder, { migrations: broken })).toThrow('syntax error')
    const notes = openNotes(folder)
    expect(notes.database.prepare('SELECT * FROM notes').all()).toEqual([{ id: 1, text: 'old' }])
  })

  it('accepts the steps of a new owner before those of an old one', () => {
    const folder = closedNotes('old')
    const owners = [
      { id: 'tags-1', sql: 'CREATE TABLE tags (id TEXT PRIMARY KEY) STRICT' },
      ...NOTES_MIGRATIONS,
    ]
    const notes = openNotes(folder, { migrations: owners })
    expect(notes.texts()).toEqual(['old'])
    expect(notes.database.prepare('SELECT * FROM tags').all()).toEqual([])
  })

  it('takes over a database of a version without a journal, which then refuses it', () => {
    const folder = temporaryFolder()
    const path = join(folder, 'notes.db')
    const old = new Sqlite(path)
    const text = NOTES_MIGRATIONS[0]?.sql.replaceAll(/\s+/g, ' ')
    old.exec(`PRAGMA journal_mode = WAL; PRAGMA application_id = ${NOTES_ID}; ${text};
      CREATE TABLE schema_migrations (id TEXT PRIMARY KEY) STRICT;
      INSERT INTO schema_migrations VALUES ('notes-1'); INSERT INTO notes VALUES (1, 'old')`)
    old.close()
    const first = openNotes(folder)
    expect(first.texts()).toEqual(['old'])
    expect(first.database.report()).toMatchObject({ healing: undefined, losses: [] })
    const ids = first.database.prepare('SELECT id FROM schema_migrations').pluck().all()
    expect(ids).toEqual(['notes-1', 'journal-1'])
    first.database.close()
    writeFileSync(path, 'noise')
    expect(openNotes(folder).texts()).toEqual(['old'])
  })

  it('refuses a newer schema in one sentence and leaves it alone', () => {
    const folder = temporaryFolder()
    const newer = openNotes(folder, { migrations: [...NOTES_MIGRATIONS, ADD_COLOUR] })
    newer.add('from tomorrow')
    newer.database.close()

    expect(() => openNotes(folder)).toThrow(StartError)
    expect(() => openNotes(folder)).toThrow(/newer version .*notes-2/)
    const again = openNotes(folder, { migrations: [...NOTES_MIGRATIONS, ADD_COLOUR] })
    expect(again.texts()).toEqual(['from tomorrow'])
  })
})
