/** `note-writer.ts FILE`: inserts note after note, and prints each number once it is stored. */
import { systemClock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { openDatabase } from '../../src/store/database.ts'
import { NOTES_ID, NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'

const [, , path = ''] = process.argv
const database = openDatabase({
  path,
  migrations: NOTES_MIGRATIONS,
  applicationId: NOTES_ID,
  log: createLogger('silent'),
  clock: systemClock,
})
const insert = database.prepare<[string]>('INSERT INTO notes (text) VALUES (?)')
const forget = database.prepare<[number]>('DELETE FROM notes WHERE id = ?')

/** Every third one replaces the one before it: both changes are there, or neither is. */
function addNote(): number {
  const id = Number(insert.run('x'.repeat(500)).lastInsertRowid)
  if (id % 3 === 0) forget.run(id - 1)
  return id
}

function writeOne(): void {
  process.stdout.write(`${database.write(addNote)}\n`)
  setImmediate(writeOne)
}

writeOne()
