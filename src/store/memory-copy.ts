import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { listBackups } from './backup.ts'
import { openFile, openMemory } from './connection.ts'
import { type Damage, type DamageCheck, findDamage } from './damage.ts'
import { isWritable } from './data-folder.ts'
import type { SoundConnection } from './heal.ts'
import { faultOf } from './storage-error.ts'

/** Where the header of a database says whether it has a log (2) or none (1); file format 1.3. */
const LOG_VERSIONS_AT = [18, 19]

/**
 * The last state of a database that cannot be opened where it lies, as a copy in memory: SQLite
 * does not even read a database with a log from a folder that it may not write.
 * Undefined when neither the file nor a backup of it is sound.
 */
export function openMemoryCopy(path: string, applicationId: number): SoundConnection | undefined {
  const check = { applicationId, wasInitialised: true }
  const found = copyToMemory(path, check)
  if (typeof found !== 'string') return { connection: found, healing: undefined }
  for (const backup of listBackups(path)) {
    const connection = copyToMemory(backup.path, check)
    if (typeof connection !== 'string') {
      return { connection, healing: { damage: found, restoredFrom: backup.madeAt } }
    }
  }
  return undefined
}

function copyToMemory(path: string, check: DamageCheck): SoundConnection['connection'] | Damage {
  if (!existsSync(path)) return 'missing'
  try {
    const connection = openMemory(readWithLog(path))
    const damage = findDamage(connection, check)
    if (damage === undefined) return connection
    connection.close()
    return damage
  } catch (error) {
    if (faultOf(error) === 'damaged') return 'corrupt'
    throw error
  }
}

function readWithLog(path: string): Buffer {
  const bytes = foldLogIn(path) ?? readFileSync(path)
  for (const at of LOG_VERSIONS_AT) if (at < bytes.length) bytes[at] = 1
  return bytes
}

/** After a power cut the newest rows are in the log alone: SQLite joins them in a scratch folder. */
function foldLogIn(path: string): Buffer | undefined {
  if (!existsSync(`${path}-wal`)) return undefined
  const parent = ['/dev/shm', tmpdir()].find(isWritable)
  if (parent === undefined) return undefined
  const scratch = mkdtempSync(join(parent, 'device-agent-'))
  try {
    const copy = join(scratch, 'copy.db')
    copyFileSync(path, copy)
    copyFileSync(`${path}-wal`, `${copy}-wal`)
    return serialize(copy)
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

function serialize(path: string): Buffer {
  const connection = openFile(path)
  try {
    return connection.serialize()
  } finally {
    connection.close()
  }
}
