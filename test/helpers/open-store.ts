import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { type Database, type DatabaseOptions, openDatabase } from '../../src/store/database.ts'
import { captureLog } from './captured-log.ts'
import { ManualClock } from './manual-clock.ts'
import { NOTES_ID, NOTES_MIGRATIONS } from './notes-schema.ts'

/** A database of notes: the smallest owner of a table. */
export interface NoteStore {
  readonly database: Database
  readonly path: string
  add(text: string): void
  remove(id: number): void
  texts(): string[]
}

/** Opens `notes.db` in `folder`; closes it with the running test. */
export function openNotes(folder: string, options: Partial<DatabaseOptions> = {}): NoteStore {
  const path = join(folder, 'notes.db')
  const database = openDatabase({
    path,
    migrations: NOTES_MIGRATIONS,
    applicationId: NOTES_ID,
    log: captureLog().log,
    clock: new ManualClock(),
    ...options,
  })
  onTestFinished(() => database.close())
  const insert = database.prepare<[string]>('INSERT INTO notes (text) VALUES (?)')
  const erase = database.prepare<[number]>('DELETE FROM notes WHERE id = ?')
  const list = database.prepare<[], { text: string }>('SELECT text FROM notes ORDER BY id')
  return {
    database,
    path,
    add: (text) => database.write(() => insert.run(text)),
    remove: (id) => database.write(() => erase.run(id), { mayUseReserve: true }),
    texts: () => list.all().map((row) => row.text),
  }
}
