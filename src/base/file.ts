import { X509Certificate } from 'node:crypto'
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { StartError } from './app-error.ts'

/**
 * Replaces a file. After a power cut it has the complete old or the complete new content. Steps: temporary
 * file, fsync, rename, fsync of the folder.
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
 * Removes the access of other users from a secret file, which may be left over from copying it. A group keeps
 * its access if others had no access. Returns true if others had access, even if the mode could not be
 * changed.
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
    // The result is the same: the file was accessible.
  }
  return true
}

/** Whether the text begins with a certificate in PEM form. */
export function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).subject !== undefined
  } catch {
    return false
  }
}

const FLAWS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
  ENOENT: 'the file is missing',
  EPERM: 'permission denied',
}

/** Says why a file cannot be read, in words where the cause is common. */
export function fileFlaw(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : String(error)
  return FLAWS[code] ?? code
}

/** Makes renames and removals in a folder durable after a power cut. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r')
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
  }
}

/**
 * Creates a folder and its missing parents. Existing folders stay unchanged. Each new folder is durable when
 * this returns, because a power cut would also lose the files in it.
 *
 * Throws the system's error, or a StartError for a link to a missing folder. Node's `recursive` option is not
 * used: it retries forever if the system cannot create the folder, for example below `/proc`.
 */
export function makeFolder(path: string, mode = 0o700): void {
  const missing: string[] = []
  for (let at = resolve(path); !existsSync(at); at = dirname(at)) missing.unshift(at)
  for (const folder of missing) {
    refuseDeadLink(folder)
    mkdirSync(folder, { mode })
    syncWhereReadable(dirname(folder))
  }
  // A file has that path: lets mkdir throw the system's error.
  if (!statSync(path).isDirectory()) mkdirSync(path)
}

/** Another user may have set the link, so its target is not created. `mkdir` says that the folder exists. */
function refuseDeadLink(path: string): void {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) return
  const target = readlinkSync(path)
  throw new StartError(
    `${path} is a symbolic link to ${target}, which does not exist. Create that folder, or remove the link.`,
  )
}

/**
 * Creates an empty file if it is missing. An existing file is not opened: a process that closes a file loses
 * all its locks on it (fcntl(2)), including those of SQLite. Throws the system's error, also if the file
 * cannot be read and written.
 */
export function makeFile(path: string, mode = 0o600): void {
  try {
    closeSync(openSync(path, 'wx', mode))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    accessSync(path, constants.R_OK | constants.W_OK)
  }
}

/**
 * Syncs a folder if it is readable. A folder that is only writable cannot be opened for fsync, so the system
 * decides when it is durable.
 */
function syncWhereReadable(path: string): void {
  try {
    syncFolder(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error
  }
}

/**
 * Returns the folder of this package. Sources and bundle are at different depths below it. Throws a
 * StartError if only part of the package was copied.
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
