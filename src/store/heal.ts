import { copyFileSync, existsSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { makeDurable, openFile } from './connection.ts'
import {
  type Damage,
  type DamageCheck,
  damageOf,
  hasKnownHeader,
  type Inspection,
  inspect,
} from './damage.ts'
import { checkOf, gather, journalOf, markerOf, type SoundOptions } from './evidence.ts'
import { adoptJournal, type RowJournal } from './journal/row-journal.ts'
import { LossRecord } from './loss-record.ts'
import { type Rebuilt, rebuild } from './rebuild.ts'
import { decide, type Healing, isLossy } from './recovery.ts'
import type { Connection } from './sqlite.ts'

const PUT_ASIDE_KEPT = 3
const PARTS = ['', '-wal', '-shm']

export interface SoundConnection {
  readonly connection: Connection
  readonly healing: Healing | undefined
}

export interface HealOptions extends SoundOptions {
  /** Goes on where it is whole; else it is left for the caller to begin. */
  readonly journal: RowJournal
  readonly log: Logger
  readonly clock: Clock
}

interface Opened {
  readonly connection: Connection | undefined
  readonly found: Inspection | Damage
}

/**
 * Opens the database file. A damaged one is put aside as `*.corrupt-<time>`, and the newest sound copy
 * of its rows takes its place; without any, an empty database does. What may be missing is recorded
 * first, and logged.
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

/** Remembers in a file of its own that there is a database, so that its loss is noticed. */
export function markInitialised(path: string): void {
  const marker = markerOf(path)
  if (existsSync(marker)) return
  writeFileDurably(
    marker,
    `${basename(path)} was set up: if it is missing or empty, it was lost.\n`,
  )
}

/** Names of the databases that were put aside, oldest first. */
export function listPutAside(path: string): string[] {
  const prefix = `${basename(path)}.corrupt-`
  return readdirSync(dirname(path))
    .filter((name) => name.startsWith(prefix) && !/(-wal|-shm|\.journal)$/.test(name))
    .sort()
}

/** What a rebuild lost beyond what its copy lacked. */
export function withLost(healing: Healing, { lost }: Pick<Rebuilt, 'lost'>): Healing {
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
 * Puts a database in the place of a damaged one, which is still open: so SQLite does not change what
 * is put aside when it closes it.
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

/** Also after a power cut between the two steps. */
function finishRebuild(path: string): void {
  if (existsSync(path) || !existsSync(rebuiltOf(path))) return
  renameSync(rebuiltOf(path), path)
  syncFolder(dirname(path))
}

/** The log goes along, and a copy of a damaged journal: together they are what a repair tool needs. */
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
