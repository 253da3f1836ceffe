import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { openMemory } from '../../src/store/connection.ts'
import { Committer } from '../../src/store/journal/committer.ts'
import { RowJournal } from '../../src/store/journal/row-journal.ts'
import { RowRecorder } from '../../src/store/journal/row-recorder.ts'
import { readRows } from '../../src/store/journal/rows.ts'
import { captureLog } from './captured-log.ts'
import { ManualClock } from './manual-clock.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** Parents and children in memory, with a journal on disk. */
export function openFamily() {
  const path = join(temporaryFolder(), 'family.journal')
  const connection = openMemory()
  connection.exec(`
    CREATE TABLE parents (id TEXT PRIMARY KEY, name TEXT UNIQUE) STRICT, WITHOUT ROWID;
    CREATE TABLE children (
      id INTEGER PRIMARY KEY,
      parent TEXT NOT NULL REFERENCES parents (id) ON DELETE CASCADE,
      photo BLOB,
      weight REAL
    ) STRICT`)
  const journal = new RowJournal({ path, clock: new ManualClock() })
  journal.prepareNew(0, readRows(connection)).finish()
  const recorder = new RowRecorder(connection)
  recorder.start()
  const torn: unknown[] = []
  const onTorn = (error: unknown) => torn.push(error)
  const { log } = captureLog()
  const committer = new Committer({ connection, journal, recorder, onTorn, log })
  onTestFinished(() => {
    journal.close()
    connection.close()
  })
  const run = (sql: string) => committer.commit(() => connection.exec(sql))
  return { path, connection, journal, committer, recorder, torn, run, log }
}
