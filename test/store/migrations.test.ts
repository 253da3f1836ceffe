import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
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
      { id: 'tags-1', sql: 'CREATE TABLE tags (id TEXT) STRICT' },
      ...NOTES_MIGRATIONS,
    ]
    const notes = openNotes(folder, { migrations: owners })
    expect(notes.texts()).toEqual(['old'])
    expect(notes.database.prepare('SELECT * FROM tags').all()).toEqual([])
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
