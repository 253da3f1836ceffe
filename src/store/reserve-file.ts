import { randomBytes } from 'node:crypto'
import { closeSync, existsSync, fsyncSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'

/** Room for the write-ahead log at its cap and for one checkpoint of it (connection.ts). */
const SIZE_BYTES = 1024 * 1024

/** Disk space put by, so that rows can be deleted on a full disk: SQLite needs room for that too. */
export class ReserveFile {
  readonly #path: string
  readonly #sizeBytes: number

  constructor(path: string, sizeBytes: number = SIZE_BYTES) {
    this.#path = path
    this.#sizeBytes = sizeBytes
  }

  /** Takes the space unless it is taken; false when the disk has none. */
  make(): boolean {
    if (existsSync(this.#path)) return true
    try {
      const file = openSync(this.#path, 'wx', 0o600)
      try {
        // Random bytes, because some file systems store zeros in no space at all.
        const bytes = randomBytes(this.#sizeBytes)
        for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
        fsyncSync(file)
      } finally {
        closeSync(file)
      }
      return true
    } catch {
      this.drop()
      return false
    }
  }

  /** Gives the space back; false when there was none. */
  drop(): boolean {
    if (!existsSync(this.#path)) return false
    rmSync(this.#path, { force: true })
    return true
  }

  /**
   * True when the disk has as much free space again as the reserve holds; on a small disk an eighth
   * of it is enough, because there may never be more.
   */
  hasRoomBeside(): boolean {
    try {
      const { bavail, blocks, bsize } = statfsSync(dirname(this.#path))
      return bavail * bsize >= Math.min(this.#sizeBytes, (blocks * bsize) / 8)
    } catch {
      return false
    }
  }
}
