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

function writeOne(): void {
  const id = Number(database.write(() => insert.run('x'.repeat(500))).lastInsertRowid)
  // Every third one goes again: what was acknowledged as deleted must not come back either.
  if (id % 3 === 0) database.write(() => forget.run(id))
  process.stdout.write(`${id}\n`)
  setImmediate(writeOne)
}

writeOne()
