import { copyFileSync, existsSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import {
  type Damage,
  type DamageCheck,
  damageOf,
  hasKnownHeader,
  type Inspection,
  inspect,
} from './damage.ts'
import { checkOf, gather, journalOf, markerOf, openImage, type SoundOptions } from './evidence.ts'
import { adoptJournal, type RowJournal } from './journal/row-journal.ts'
import { insertRow, listTables, quote, type Rows, takeTriggersAway } from './journal/rows.ts'
import { LossRecord } from './loss-record.ts'
import { MIGRATIONS_TABLE, type Migration, openSchema, requireKnown } from './migrations.ts'
import { decide, type Healing, isLossy } from './recovery.ts'
import { type Connection, makeDurable, openFile } from './sqlite.ts'

interface RebuildOptions {
  readonly rows: Rows
  /** Number of the change after which the rows had this state. */
  readonly n: number
  readonly migrations: readonly Migration[]
  readonly applicationId: number
}

interface Rebuilt {
  /** In memory. */
  readonly connection: Connection
  /** Number of rows that could not be added: they refer to missing rows, or their table does not exist. */
  readonly lost: number
}

/** Creates a database from rows, with the schema recorded among them. */
function rebuild({ rows, n, migrations, applicationId }: RebuildOptions): Rebuilt {
  const noted = [...(rows.get(MIGRATIONS_TABLE)?.values() ?? [])].map(({ row }) => String(row.id))
  requireKnown(noted, migrations)
  const steps = noted.length === 0 ? migrations : migrations.filter(({ id }) => noted.includes(id))
  const connection = openSchema(steps, applicationId)
  connection.pragma('foreign_keys = OFF')
  const putBack = takeTriggersAway(connection)
  let lost = 0
  for (const { name } of listTables(connection)) {
    if (name !== MIGRATIONS_TABLE) connection.exec(`DELETE FROM ${quote(name)}`)
  }
  for (const [table, kept] of rows) {
    if (table === MIGRATIONS_TABLE) continue
    for (const { row } of kept.values()) {
      try {
        insertRow(connection, table, row)
      } catch {
        lost += 1
      }
    }
  }
  lost += dropOrphans(connection)
  putBack()
  connection.pragma('foreign_keys = ON')
  connection.pragma(`user_version = ${n}`)
  return { connection, lost }
}

interface Reference {
  readonly id: number
  readonly table: string
  readonly from: string
  readonly to: string | null
}

/** Deletes rows that refer to missing rows. Repeats until no such row is left. */
function dropOrphans(connection: Connection): number {
  const deletes = listTables(connection).flatMap(({ name }) => orphansOf(connection, name))
  let dropped = 0
  for (let round = -1; round !== dropped; ) {
    round = dropped
    for (const sql of deletes) dropped += connection.prepare(sql).run().changes
  }
  return dropped
}

/** Returns one statement per foreign key that deletes the table's rows with a missing parent. */
function orphansOf(connection: Connection, child: string): string[] {
  const references = connection.pragma(`foreign_key_list(${quote(child)})`) as Reference[]
  return [...new Set(references.map(({ id }) => id))].map((id) => {
    const columns = references.filter((reference) => reference.id === id)
    const isSet = columns.map(({ from }) => `${quote(from)} IS NOT NULL`)
    const isParent = columns.map(({ from, to }) => {
      return `parent.${quote(to ?? from)} = ${quote(child)}.${quote(from)}`
    })
    const parent = quote(columns[0]?.table ?? '')
    return (
      `DELETE FROM ${quote(child)} WHERE ${isSet.join(' AND ')} AND NOT EXISTS ` +
      `(SELECT 1 FROM ${parent} AS parent WHERE ${isParent.join(' AND ')})`
    )
  })
}

const PUT_ASIDE_KEPT = 3
const PARTS = ['', '-wal', '-shm']

export interface SoundConnection {
  readonly connection: Connection
  readonly healing: Healing | undefined
}

interface HealOptions extends SoundOptions {
  /** Continued if intact. Otherwise the caller starts a new one. */
  readonly journal: RowJournal
  readonly log: Logger
  readonly clock: Clock
}

interface Opened {
  readonly connection: Connection | undefined
  readonly found: Inspection | Damage
}

/**
 * Opens the database file. A damaged file is set aside as `*.corrupt-<time>` and replaced by the newest sound
 * copy of its rows. Without a copy, an empty database replaces it. Possible losses are recorded first, and
 * logged.
 */
export function openSound(options: HealOptions): SoundConnection {
  const { path, journal } = options
  finishRebuild(path)
  const { connection, found } = open(path, checkOf(options))
  try {
    const evidence = gather(options, found)
    const recovery = decide(evidence)
    if (recovery.hasJournal) adoptJournal(journalOf(path))
    if (recovery.kind === 'use' && connection) {
      rmSync(rebuiltOf(path), { force: true })
      if (recovery.healing) note(options, recovery.healing)
      if (recovery.hasJournal && evidence.journal) journal.resume(evidence.journal)
      return { connection, healing: recovery.healing }
    }
    if (recovery.kind === 'use') throw new Error('the database is not open')
    const rebuilt = rebuild({ ...options, ...recovery })
    const healing = withLost(recovery.healing, rebuilt)
    note(options, healing)
    replace(options, rebuilt.connection, connection, recovery.hasJournal)
    const sound = openDurable(path)
    if (recovery.hasJournal && rebuilt.lost === 0 && evidence.journal) {
      journal.resume(evidence.journal)
    }
    return { connection: sound, healing }
  } catch (error) {
    connection?.close()
    throw error
  }
}

/** Creates a marker file that shows that there is a database, so that its loss is noticed. */
export function markInitialised(path: string): void {
  const marker = markerOf(path)
  if (existsSync(marker)) return
  writeFileDurably(
    marker,
    `${basename(path)} was set up: if it is missing or empty, it was lost.\n`,
  )
}

/** Returns the names of the databases that were set aside, oldest first. */
export function listPutAside(path: string): string[] {
  const prefix = `${basename(path)}.corrupt-`
  return readdirSync(dirname(path))
    .filter((name) => name.startsWith(prefix) && !/(-wal|-shm|\.journal)$/.test(name))
    .sort()
}

/** Adds the rows lost in the rebuild to those that the copy lacked. */
function withLost(healing: Healing, { lost }: Pick<Rebuilt, 'lost'>): Healing {
  return { ...healing, missing: healing.missing + lost }
}

function open(path: string, check: DamageCheck): Opened {
  let connection: Connection | undefined
  try {
    if (check.wasInitialised && !existsSync(path)) return lacking('missing')
    if (check.wasInitialised && statSync(path).size === 0) return lacking('empty')
    if (existsSync(path) && !hasKnownHeader(path)) return lacking('corrupt')
    connection = openFile(path)
    const found = inspect(connection, check)
    if (typeof found !== 'string') makeDurable(connection)
    return { connection, found }
  } catch (error) {
    connection?.close()
    return lacking(damageOf(error))
  }
}

const lacking = (found: Damage): Opened => ({ connection: undefined, found })

function openDurable(path: string): Connection {
  const connection = openFile(path)
  makeDurable(connection)
  return connection
}

function note({ path, log, clock }: HealOptions, healing: Healing): void {
  new LossRecord(path).add(healing, clock.now())
  const text = isLossy(healing)
    ? 'the database was damaged, acknowledged changes may be missing'
    : 'the database was damaged, nothing is missing'
  log.error({ ...healing, database: basename(path) }, text)
}

/**
 * Replaces a damaged database. Its files are renamed while it is open, so that SQLite does not change them
 * when it closes the database.
 */
function replace(
  { path, clock, log }: HealOptions,
  rebuilt: Connection,
  damaged: Connection | undefined,
  hasJournal: boolean,
): void {
  writeFileDurably(rebuiltOf(path), rebuilt.serialize())
  rebuilt.close()
  const putAside = putDatabaseAside(path, clock, !hasJournal)
  damaged?.close()
  finishRebuild(path)
  log.error({ putAside }, 'the damaged database was moved aside')
}

/** Moves a rebuilt database into place, also after a power cut before that step. */
function finishRebuild(path: string): void {
  if (existsSync(path) || !existsSync(rebuiltOf(path))) return
  renameSync(rebuiltOf(path), path)
  syncFolder(dirname(path))
}

/**
 * Sets aside the database with its WAL, and a copy of a damaged journal, because a repair tool needs them.
 */
function putDatabaseAside(path: string, clock: Clock, withJournal: boolean): string[] {
  const time = new Date(clock.now()).toISOString().replace(/[-:]|\.\d+/g, '')
  let name = `${path}.corrupt-${time}`
  for (let n = 2; existsSync(name); n += 1) name = `${path}.corrupt-${time}-${n}`
  if (withJournal && existsSync(journalOf(path))) copyFileSync(journalOf(path), journalOf(name))
  for (const part of [...PARTS].reverse()) {
    if (existsSync(`${path}${part}`)) renameSync(`${path}${part}`, `${name}${part}`)
  }
  for (const old of listPutAside(path).slice(0, -PUT_ASIDE_KEPT)) {
    for (const part of [...PARTS, '.journal']) {
      rmSync(join(dirname(path), `${old}${part}`), { force: true, recursive: true })
    }
  }
  syncFolder(dirname(path))
  return listPutAside(path)
}

const rebuiltOf = (path: string) => `${path}.rebuilt`

/**
 * Returns an in-memory copy of the last state, for a database that cannot be opened on disk. Undefined if no
 * copy of it is sound.
 */
export function openMemoryCopy(options: SoundOptions): SoundConnection | undefined {
  const { path } = options
  const check = { ...checkOf(options), wasInitialised: true }
  const image = openImage(path)
  const found = image ? inspect(image, check) : damageAt(path)
  const recovery = decide(gather(options, found))
  if (recovery.kind === 'use' && image) return { connection: image, healing: recovery.healing }
  image?.close()
  if (recovery.kind === 'use' || recovery.healing.copy === 'none') return undefined
  const { connection, lost } = rebuild({ ...options, ...recovery })
  const { healing } = recovery
  return { connection, healing: { ...healing, missing: healing.missing + lost } }
}

function damageAt(path: string) {
  const stat = statSync(path, { throwIfNoEntry: false })
  if (!stat) return 'missing'
  return stat.size === 0 ? 'empty' : 'corrupt'
}
