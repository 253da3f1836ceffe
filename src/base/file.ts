import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { StartError } from './app-error.ts'

/**
 * Replaces a file so that a power cut leaves the old or the new content, never half of it:
 * temporary file, fsync, rename, fsync of the folder.
 */
export function writeFileDurably(path: string, content: string | Buffer, mode = 0o600): void {
  const temporary = `${path}.${process.pid}.tmp`
  const bytes = typeof content === 'string' ? Buffer.from(content) : content
  try {
    const file = openSync(temporary, 'w', mode)
    try {
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    renameSync(temporary, path)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
  syncFolder(dirname(path))
}

/**
 * Takes a file with a secret from everybody, who may have got leave when it was copied; a group
 * that somebody gave leave keeps it. True when all could use it, also when it is not ours to close.
 */
export function closeSecretFile(path: string): boolean {
  try {
    if ((statSync(path).mode & 0o007) === 0) return false
  } catch {
    return false
  }
  try {
    chmodSync(path, 0o600)
  } catch {
    // What is told is the same: it was open.
  }
  return true
}

/** Makes renames and removals in a folder survive a power cut. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r')
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
  }
}

/**
 * Makes a folder, and those above it that are missing; one that is there stays as it is. Each survives
 * a power cut when this answers: files that are made in it later would go with it. Throws what the
 * system says. Node's own way, `recursive`, tries for ever where a system has no folder to give, as
 * below `/proc`.
 */
export function makeFolder(path: string, mode = 0o700): void {
  const missing: string[] = []
  for (let at = resolve(path); !existsSync(at); at = dirname(at)) missing.unshift(at)
  for (const folder of missing) {
    mkdirSync(folder, { mode })
    syncWhereReadable(dirname(folder))
  }
  // A file in its place: the system says it best.
  if (!statSync(path).isDirectory()) mkdirSync(path)
}

/**
 * Makes an empty file, unless it is there: then it is not opened, because a process that closes a file
 * loses all locks that it has on it (fcntl(2)), SQLite's among them. Throws what the system says, also
 * of a file that may not be read and written.
 */
export function makeFile(path: string, mode = 0o600): void {
  try {
    closeSync(openSync(path, 'wx', mode))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    accessSync(path, constants.R_OK | constants.W_OK)
  }
}

/** A folder in which we may write and not read cannot be opened for it; it is the system's then. */
function syncWhereReadable(path: string): void {
  try {
    syncFolder(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error
  }
}

/**
 * The folder of this package: the sources and the bundle lie at different depths below it. Throws a
 * StartError where somebody has copied a part of it.
 */
export function packageRoot(from: string = import.meta.dirname): string {
  for (let folder = from; ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder
    if (folder === dirname(folder)) {
      throw new StartError(
        'The installation is incomplete: package.json is missing. Install device-agent again.',
      )
    }
  }
}
