import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { Committer } from '../../src/store/journal/committer.ts'
import { RowJournal } from '../../src/store/journal/row-journal.ts'
import { RowRecorder } from '../../src/store/journal/row-recorder.ts'
import { readState } from '../../src/store/journal/trail.ts'
import { openMemory } from '../../src/store/sqlite.ts'
import { captureLog } from './captured-log.ts'
import { ManualClock } from './manual-clock.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** The tables of the family whose rows stay as they are. */
export const TRAILS: ReadonlySet<string> = new Set(['diary'])

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
    ) STRICT;
    CREATE TABLE diary (id INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL) STRICT;
    CREATE TRIGGER diary_stays BEFORE DELETE ON diary
      WHEN OLD.id > (SELECT max(id) FROM diary) - 3
      BEGIN SELECT RAISE(ABORT, 'append-only'); END;
    CREATE TRIGGER diary_is_bounded AFTER INSERT ON diary
      BEGIN DELETE FROM diary WHERE id <= NEW.id - 3; END`)
  const journal = new RowJournal({ path, trails: TRAILS, clock: new ManualClock() })
  journal.prepareNew(readState(connection, TRAILS)).finish()
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
