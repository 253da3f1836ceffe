import { statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { makeDurable, openFile, Sqlite, SqliteError } from '../../src/store/sqlite.ts'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const modeOf = (path: string) => statSync(path).mode & 0o777

describe('openDatabase', () => {
  it('keeps rows over a close', () => {
    const folder = temporaryFolder()
    const first = openNotes(folder)
    first.add('kept')
    first.database.close()
    expect(openNotes(folder).texts()).toEqual(['kept'])
  })

  it('makes its files for this user alone', () => {
    const folder = join(temporaryFolder(), 'made')
    const { path, add } = openNotes(folder)
    add('private')
    expect(modeOf(folder)).toBe(0o700)
    for (const file of [path, `${path}-wal`, `${path}-shm`, `${path}.reserve`, `${path}.journal`]) {
      expect(modeOf(file), file).toBe(0o600)
    }
  })

  it('waits for stable storage on each open, not only on the first', () => {
    const path = join(temporaryFolder(), 'a.db')
    for (const time of ['first', 'second']) {
      const connection = openFile(path)
      makeDurable(connection)
      expect(connection.pragma('synchronous', { simple: true }), time).toBe(2)
      expect(connection.pragma('journal_mode', { simple: true }), time).toBe('wal')
      expect(connection.pragma('foreign_keys', { simple: true }), time).toBe(1)
      connection.close()
    }
  })

  it('gives the room of the log back after a long read by another process', () => {
    const { path, add } = openNotes(temporaryFolder())
    add('first')
    const reader = new Sqlite(path, { readonly: true })
    reader.exec('BEGIN')
    reader.prepare('SELECT count(*) FROM sqlite_schema').get()
    const logBytes = () => statSync(`${path}-wal`).size
    for (let count = 0; count < 40; count += 1) add('x'.repeat(50_000))
    expect(logBytes()).toBeGreaterThan(2_000_000)
    reader.close()
    // The first write folds the log in; the next one starts it anew.
    for (let count = 0; count < 3; count += 1) add('x'.repeat(50_000))
    expect(logBytes()).toBeLessThan(600_000)
  })

  it('opens in memory for those who keep nothing', () => {
    const notes = openNotes('', { path: ':memory:' })
    notes.add('gone soon')
    expect(notes.texts()).toEqual(['gone soon'])
    expect(notes.database.report().fault).toBeUndefined()
  })
})

describe('Database.write', () => {
  it('keeps nothing of a change that throws', () => {
    const { database, add, texts } = openNotes(temporaryFolder())
    const change = () => {
      add('half')
      throw new Error('stop')
    }
    expect(() => database.write(change)).toThrow('stop')
    expect(texts()).toEqual([])
  })

  it('leaves the errors of its owner as they are', () => {
    const { database } = openNotes(temporaryFolder())
    const broken = database.prepare('INSERT INTO notes (text) VALUES (NULL)')
    expect(() => database.write(() => broken.run())).toThrow(SqliteError)
    expect(database.report().fault).toBeUndefined()
  })

  it('refuses with storage-unavailable while another program holds the lock', () => {
    const { path, add } = openNotes(temporaryFolder())
    const other = new Sqlite(path)
    other.exec('BEGIN IMMEDIATE')
    try {
      expect(() => add('late')).toThrow(
        expect.objectContaining({ code: 'storage-unavailable', retryAfterS: 5 }),
      )
    } finally {
      other.close()
    }
  })

  it('closes twice without harm', () => {
    const { database } = openNotes(temporaryFolder())
    database.close()
    database.close()
  })
})
