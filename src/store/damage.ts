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
 * Kinds of damage. `behind`: the journal has changes that are missing here. `altered`: a row differs from
 * what was written. `unproven`: the journal cannot show whether the database is complete.
 */
export type Damage = 'missing' | 'empty' | 'foreign' | 'corrupt' | 'behind' | 'altered' | 'unproven'

export interface DamageCheck {
  /** Application id that the file must have. */
  readonly applicationId: number
  /** Whether there was a database before. If so, an empty one is a loss and not a first start. */
  readonly wasInitialised: boolean
  readonly migrations: readonly Migration[]
}

/** Content of a database that is sound according to its own checks. */
export interface Inspection extends DatabaseState {
  /** Rows of trails. Call it while the database is open. */
  readonly trails: () => Rows
  /** False if the schema text differs from that of its migrations. Only the rows can be used then. */
  readonly isUsable: boolean
  /** False before the schema is created, and for files of versions without a journal. */
  readonly hasJournal: boolean
}

/** Header fields that select the format for writing and reading: rollback journal or WAL (format 1.3). */
export const VERSIONS_AT = [18, 19]
const KNOWN_VERSIONS = [1, 2]
/** The first bytes contain the page size and the versions. */
const HEADER_BYTES = 100

/** Checks the header before SQLite does. SQLite treats an unknown version as write protection. */
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
 * Checks an open database: pages, indexes, constraints, schema and all rows. Errors count as damage, with
 * these exceptions, which are thrown: the file is locked, the disk is full or not writable, or a newer
 * version wrote the file (StartError).
 */
export function inspect(connection: Connection, check: DamageCheck): Inspection | Damage {
  try {
    return look(connection, check)
  } catch (error) {
    return damageOf(error)
  }
}

/** Returns the damage that an error indicates. Throws errors with another cause. */
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
