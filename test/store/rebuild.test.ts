import { rmSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

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
