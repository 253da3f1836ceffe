import { constants, createWriteStream, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { StartError } from '../../base/app-error.ts'
import { makeFolder } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import { tryLockFolder } from '../../store/data-folder.ts'
import { MAX_ARCHIVE_BYTES } from './signed-archive.ts'
import type { UpdateHome } from './update-home.ts'

/** Where an archive lies while it is checked: for root alone, and for one update at a time. */
export interface Incoming {
  /** Answers the path of a copy that nobody else can change. Throws a StartError. */
  take(archive: string): Promise<string>
  /** Removes what was taken, and lets the next update in. */
  close(): void
}

/** Removes what an update has left that was killed. Throws a StartError while there is another one. */
export function openIncoming(
  home: UpdateHome,
  log: Logger,
  maxBytes: number = MAX_ARCHIVE_BYTES,
): Incoming {
  makeFolder(home.path, 0o755)
  const folder = home.incoming
  const lock = tryLockFolder({ folder, owner: 'update', log })
  if (!lock) throw new StartError('Another update is in progress. Wait until it ends.')
  const path = join(folder, 'archive.tar.gz')
  rmSync(path, { force: true })
  home.removeUnfinished()
  return {
    take: async (archive) => {
      try {
        await copyStart(archive, path, maxBytes)
      } catch (error) {
        const { code, message } = error as NodeJS.ErrnoException
        const reason = code === 'ENOSPC' ? 'no space left on the disk' : message
        throw new StartError(`Cannot copy ${archive}: ${reason}. Nothing was changed.`, {
          cause: error,
        })
      }
      return path
    },
    close: () => {
      rmSync(path, { force: true })
      lock.release()
    },
  }
}

/** What is longer than an archive may be is not what was signed. The file may have changed since it was looked at. */
async function copyStart(from: string, to: string, bytes: number): Promise<void> {
  // A pipe that nobody writes to is not waited for.
  const source = await open(from, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const start = source.createReadStream({ end: bytes, autoClose: false })
    await pipeline(start, createWriteStream(to, { mode: 0o600 }))
  } finally {
    await source.close()
  }
}
