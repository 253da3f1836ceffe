import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openFile, openMemory } from './connection.ts'
import { hasKnownHeader, VERSIONS_AT } from './damage.ts'
import { isWritable } from './data-folder.ts'
import type { Connection } from './sqlite.ts'
import { faultOf } from './storage-error.ts'

/** No log: memory has none. */
const NO_LOG = 1

/**
 * A database as it lies there, with its log, as a copy in memory: SQLite does not even read a
 * database with a log from a folder that it may not write. Undefined when it is no database at all.
 */
export function openImage(path: string): Connection | undefined {
  if (!existsSync(path) || !hasKnownHeader(path)) return undefined
  try {
    const bytes = foldLogIn(path) ?? readFileSync(path)
    for (const at of VERSIONS_AT) if (at < bytes.length) bytes[at] = NO_LOG
    return openMemory(bytes)
  } catch (error) {
    if (faultOf(error) === 'damaged') return undefined
    throw error
  }
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
