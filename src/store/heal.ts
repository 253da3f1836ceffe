import { existsSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { type Backup, listBackups, restoreBackup } from './backup.ts'
import { makeDurable, openFile } from './connection.ts'
import { type Damage, type DamageCheck, findDamage } from './damage.ts'
import type { Connection } from './sqlite.ts'

const PUT_ASIDE_KEPT = 3
const PARTS = ['', '-wal', '-shm']

/** What was found and done when the database was opened. */
export interface Healing {
  readonly damage: Damage
  /** When the backup was made that stands in now; undefined when there was none to use. */
  readonly restoredFrom: number | undefined
}

export interface SoundConnection {
  readonly connection: Connection
  readonly healing: Healing | undefined
}

export interface SoundOptions {
  readonly path: string
  readonly applicationId: number
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Opens the database file. A damaged one is put aside as `*.corrupt-<time>` and the newest backup
 * that is sound takes its place; without any, an empty database does, and the log says so.
 */
export function openSound({ path, applicationId, log, clock }: SoundOptions): SoundConnection {
  const backups = listBackups(path)
  const wasInitialised = backups.length > 0 || existsSync(markerOf(path))
  const found = open(path, { applicationId, wasInitialised })
  if (typeof found !== 'string') return { connection: found, healing: undefined }

  const putAside = putDatabaseAside(path, clock)
  const restored = restoreNewest(backups, path, applicationId)
  const healing = { damage: found, restoredFrom: restored?.backup.madeAt }
  log.error(
    { ...healing, putAside, backup: restored && basename(restored.backup.path) },
    restored
      ? 'the database was damaged, a backup took its place: changes made after it are lost'
      : 'the database was damaged and there is no backup: it starts empty',
  )
  const connection = restored?.connection ?? openEmpty(path)
  return { connection, healing }
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
    .filter((name) => name.startsWith(prefix) && !/-(wal|shm)$/.test(name))
    .sort()
}

function open(path: string, check: DamageCheck): Connection | Damage {
  if (check.wasInitialised && !existsSync(path)) return 'missing'
  if (check.wasInitialised && statSync(path).size === 0) return 'empty'
  const connection = openFile(path)
  try {
    const damage = findDamage(connection, check)
    if (damage === undefined) {
      makeDurable(connection)
      return connection
    }
    connection.close()
    return damage
  } catch (error) {
    connection.close()
    throw error
  }
}

function restoreNewest(backups: readonly Backup[], path: string, applicationId: number) {
  for (const backup of backups) {
    restoreBackup(backup, path)
    const connection = open(path, { applicationId, wasInitialised: true })
    if (typeof connection !== 'string') return { backup, connection }
    for (const part of PARTS) rmSync(`${path}${part}`, { force: true })
  }
  return undefined
}

function openEmpty(path: string): Connection {
  const connection = openFile(path)
  makeDurable(connection)
  return connection
}

/** The log goes along: together they are what a repair tool needs. */
function putDatabaseAside(path: string, clock: Clock): string[] {
  const time = new Date(clock.now()).toISOString().replace(/[-:]|\.\d+/g, '')
  let name = `${path}.corrupt-${time}`
  for (let n = 2; existsSync(name); n += 1) name = `${path}.corrupt-${time}-${n}`
  for (const part of PARTS) {
    if (existsSync(`${path}${part}`)) renameSync(`${path}${part}`, `${name}${part}`)
  }
  for (const old of listPutAside(path).slice(0, -PUT_ASIDE_KEPT)) {
    for (const part of PARTS) rmSync(join(dirname(path), `${old}${part}`), { force: true })
  }
  syncFolder(dirname(path))
  return listPutAside(path)
}

const markerOf = (path: string) => `${path}.initialised`
