import { closeSync, openSync, readSync } from 'node:fs'
import { StartError } from '../base/app-error.ts'
import { type Rows, readRows } from './journal/rows.ts'
import { type DatabaseState, readState } from './journal/trail.ts'
import {
  appliedIds,
  compareSchema,
  JOURNAL_MIGRATION,
  type Migration,
  openSchema,
  requireKnown,
  trailsOf,
} from './migrations.ts'
import type { Connection } from './sqlite.ts'
import { faultOf, isHeld } from './storage-state.ts'

/**
 * What is wrong with a database. `behind`: changes are missing that its journal has; `altered`: a row
 * is not as it was written; `unproven`: its journal cannot say whether it is whole.
 */
export type Damage = 'missing' | 'empty' | 'foreign' | 'corrupt' | 'behind' | 'altered' | 'unproven'

export interface DamageCheck {
  /** The mark that the file must carry. */
  readonly applicationId: number
  /** True when there was a database before: then an empty one is a loss, not a first start. */
  readonly wasInitialised: boolean
  readonly migrations: readonly Migration[]
}

/** What stands in a database that is sound as far as it can tell itself. */
export interface Inspection extends DatabaseState {
  /** The rows of trails, as long as it is open. */
  readonly trails: () => Rows
  /** False when the text of the schema is not the one that its steps make: only the rows are good. */
  readonly isUsable: boolean
  /** False before the schema was ever made, and for files of versions without a journal. */
  readonly hasJournal: boolean
}

/** The header of a database says how it is read and written: rollback journal, or log; format 1.3. */
export const VERSIONS_AT = [18, 19]
const KNOWN_VERSIONS = [1, 2]
/** The page size and the versions are in the first bytes. */
const HEADER_BYTES = 100

/** Looks at the header before SQLite does, which takes an unknown version for a write protection. */
export function hasKnownHeader(path: string): boolean {
  const header = Buffer.alloc(HEADER_BYTES)
  const file = openSync(path, 'r')
  try {
    const bytes = readSync(file, header, 0, HEADER_BYTES, 0)
    return bytes === 0 || VERSIONS_AT.every((at) => KNOWN_VERSIONS.includes(header[at] ?? 0))
  } finally {
    closeSync(file)
  }
}

/**
 * Looks through an open database: pages, indexes, constraints, schema and all rows. Whatever fails on
 * the way is damage, unless the file is held, or the disk full or not to be written: that is thrown,
 * and so is a StartError where a newer version has written it.
 */
export function inspect(connection: Connection, check: DamageCheck): Inspection | Damage {
  try {
    return look(connection, check)
  } catch (error) {
    return damageOf(error)
  }
}

/** What an error on the way says; throws it where it is about something else. */
export function damageOf(error: unknown): Damage {
  if (isHeld(error) || error instanceof StartError) throw error
  const fault = faultOf(error)
  if (fault === undefined || fault === 'damaged') return 'corrupt'
  throw error
}

function look(
  connection: Connection,
  { applicationId, wasInitialised, migrations }: DamageCheck,
): Inspection | Damage {
  const mark = connection.pragma('application_id', { simple: true })
  const tables = connection.prepare('SELECT count(*) FROM sqlite_schema').pluck().get()
  const n = connection.pragma('user_version', { simple: true }) as number
  if (mark === 0 && tables === 0) {
    return wasInitialised ? 'empty' : nothingYet(n)
  }
  if (mark !== applicationId) return 'foreign'
  if (connection.pragma('integrity_check(1)', { simple: true }) !== 'ok') return 'corrupt'
  const applied = appliedIds(connection)
  requireKnown(applied, migrations)
  const noted = migrations.filter(({ id }) => applied.includes(id))
  const expected = openSchema(noted, applicationId)
  try {
    const schema = compareSchema(connection, expected)
    if (schema === 'foreign') return 'corrupt'
    const hasJournal = applied.includes(JOURNAL_MIGRATION.id)
    const trails = trailsOf(migrations)
    return {
      ...readState(connection, trails),
      trails: () => readRows(connection, (table) => trails.has(table)),
      isUsable: schema === 'same',
      hasJournal,
    }
  } finally {
    expected.close()
  }
}

const nothingYet = (n: number): Inspection => ({
  n,
  rows: new Map(),
  sum: 0n,
  trails: () => new Map(),
  isUsable: true,
  hasJournal: false,
})
