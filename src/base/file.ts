import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'

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

/** Makes renames and removals in a folder survive a power cut. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r')
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
  }
}
