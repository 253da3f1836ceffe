import { accessSync, chmodSync, constants, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { StartError } from '../base/app-error.ts'
import { makeFolder } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'

/**
 * Makes sure that the data folder is there and closed to other users.
 * Answers whether it can be written; throws a StartError when it cannot even be made.
 */
export function prepareDataFolder(folder: string, log: Logger): boolean {
  try {
    makeFolder(folder)
    closeToOthers(folder, log)
    return isWritable(folder)
  } catch (error) {
    throw new StartError(
      `Cannot create or open the data directory ${folder}: ${error instanceof Error ? error.message : error}`,
      { cause: error },
    )
  }
}

/** True when files in `path`, or the file itself, can be written by this process. */
export function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK)
    return true
  } catch {
    return false
  }
}

/** A folder with things for others in it may be one that they need: there only a warning. */
function closeToOthers(folder: string, log: Logger): void {
  if (!isOpenToOthers(folder) || !isWritable(folder)) return
  const isShared = readdirSync(folder).some(
    (name) => !name.startsWith('.') && isOpenToOthers(join(folder, name)),
  )
  if (!isShared && statSync(folder).uid === process.getuid?.()) chmodSync(folder, 0o700)
  else log.warn({ folder }, 'other users can read the data directory')
}

function isOpenToOthers(path: string): boolean {
  return (statSync(path).mode & 0o077) !== 0
}
