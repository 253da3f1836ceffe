import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { AGENT_MIGRATIONS } from '../../../src/api/agent-database.ts'
import { GATEWAY_MIGRATIONS } from '../../../src/gateway/gateway-database.ts'
import { Committer } from '../../../src/store/journal/committer.ts'
import { readJournal } from '../../../src/store/journal/journal-text.ts'
import { RowJournal } from '../../../src/store/journal/row-journal.ts'
import { RowRecorder } from '../../../src/store/journal/row-recorder.ts'
import { quote, takeTriggersAway } from '../../../src/store/journal/rows.ts'
import { readState } from '../../../src/store/journal/trail.ts'
import { type Migration, openSchema, trailsOf } from '../../../src/store/migrations.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** The schema of an owner with a journal, and no rule that keeps made-up rows out. */
function openOwner(migrations: readonly Migration[]) {
  const connection = openSchema(migrations, 1)
  takeTriggersAway(connection)
  connection.pragma('foreign_keys = OFF')
  connection.pragma('ignore_check_constraints = ON')
  const path = join(temporaryFolder(), 'owner.journal')
  const trails = trailsOf(migrations)
  const journal = new RowJournal({ path, trails, clock: new ManualClock() })
  journal.prepareNew(readState(connection, trails)).finish()
  const recorder = new RowRecorder(connection)
  recorder.start()
  const onTorn = () => expect.fail('nothing fails here')
  const committer = new Committer({ connection, journal, recorder, onTorn, log: captureLog().log })
  onTestFinished(() => {
    journal.close()
    connection.close()
  })
  const run = (sql: string) => committer.commit(() => connection.exec(sql))
  /** What a new start would know of a table from the journal alone. */
  const isInJournal = (table: string) => {
    const content = readJournal(path)
    const trail = content?.trails.recent.flatMap((change) => change.trail).at(-1)
    return content?.rows?.get(table)?.size === 1 || (trail?.[0] === 'add' && trail[1] === table)
  }
  return { connection, run, isInJournal }
}

/** Every table that the schema has, whoever made it. */
const tablesOf = (migrations: readonly Migration[]) => {
  const connection = openSchema(migrations, 1)
  try {
    return connection
      .prepare<[], string>(
        `SELECT name FROM sqlite_schema
         WHERE type = 'table' AND name NOT IN ('sqlite_sequence', 'schema_migrations')`,
      )
      .pluck()
      .all()
  } finally {
    connection.close()
  }
}

const VALUES: Readonly<Record<string, string>> = {
  TEXT: "'[]'",
  INTEGER: '1',
  REAL: '1',
  BLOB: "x'00'",
}

describe.each([
  ['agent', AGENT_MIGRATIONS],
  ['gateway', GATEWAY_MIGRATIONS],
])('the journal of the %s', (_owner, migrations) => {
  it.each(tablesOf(migrations))('has what is added to and deleted from the table %s', (table) => {
    const { connection, run, isInJournal } = openOwner(migrations)
    connection.exec(`DELETE FROM ${quote(table)}`)
    const columns = connection
      .prepare<[string], { name: string; type: string }>(
        'SELECT name, type FROM pragma_table_info(?)',
      )
      .all(table)
    const names = columns.map(({ name }) => quote(name)).join(', ')
    const values = columns.map(({ type }) => VALUES[type]).join(', ')
    run(`INSERT INTO ${quote(table)} (${names}) VALUES (${values})`)
    expect(isInJournal(table)).toBe(true)
    run(`DELETE FROM ${quote(table)}`)
    expect(isInJournal(table)).toBe(false)
  })

  it('keeps what was changed and what happened as trails, in tables that there are', () => {
    const trails = [...trailsOf(migrations)]
    expect(trails.sort()).toEqual(['audit', 'events'])
    expect(tablesOf(migrations)).toEqual(expect.arrayContaining(trails))
  })
})
