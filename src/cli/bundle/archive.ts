import { createWriteStream, rmSync } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { pack } from 'tar-stream'
import { StartError } from '../../base/app-error.ts'
import type { BundlePart } from './bundle-parts.ts'

/** Writes an archive with one top-level folder, which only its owner can read. */
export async function writeArchive(
  path: string,
  folder: string,
  parts: readonly BundlePart[],
): Promise<void> {
  const archive = pack()
  for (const { name, text } of parts) {
    archive.entry({ name: `${folder}/${name}`, mode: 0o600 }, text)
  }
  archive.finalize()
  let isOurs = false
  const file = createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true })
  file.once('open', () => {
    isOurs = true
  })
  try {
    await pipeline(archive, createGzip(), file)
  } catch (error) {
    // Half an archive would look like one.
    if (isOurs) rmSync(path, { force: true })
    const { code, message } = error as NodeJS.ErrnoException
    const reason = code === 'EEXIST' ? 'the file already exists' : (code ?? message)
    throw new StartError(`Cannot write ${path}: ${reason}.`, { cause: error })
  }
}
