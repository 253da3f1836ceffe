import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, lstatSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Transform } from 'node:stream'
import { text } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { createGunzip } from 'node:zlib'
import { StartError } from '../../base/app-error.ts'
import { makeFolder, syncFolder } from '../../base/file.ts'
import { plainLine } from '../local/terminal-text.ts'
import type { UpdateHome } from './update-home.ts'

const MAX_REASON = 200
const ANSWER_WITHIN_MS = 20_000
/** Five times the size of a version today. */
const MAX_UNPACKED_BYTES = 700_000_000
/** Mode bits setuid, setgid, and write access for others than root. */
const UNSAFE_MODE = 0o6022
const TAR_READS_NO_MORE: ReadonlySet<unknown> = new Set(['EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'])
const run = promisify(execFile)

/** How a program of a version is started. */
export function startOf(folder: string): { readonly node: string; readonly main: string } {
  return { node: join(folder, 'lib/bin/node'), main: join(folder, 'lib/dist/main.js') }
}

/**
 * Unpacks a checked archive beside the installed versions, runs it to check its version, and puts it in its
 * place. Returns its folder, relative to the home. A failure leaves nothing behind. Throws a StartError.
 */
export async function unpackVersion(
  home: UpdateHome,
  archive: string,
  version: string,
  maxBytes: number = MAX_UNPACKED_BYTES,
): Promise<string> {
  makeFolder(home.versions, 0o755)
  const folder = join(home.versions, version)
  const unpacked = join(home.versions, `.${version}.${process.pid}`)
  try {
    mkdirSync(unpacked, { mode: 0o755 })
    await unpackInto(unpacked, archive, maxBytes)
    await requirePlainTree(unpacked)
    await requireAnswer(unpacked, version)
    // The new version has to survive a power cut after the switch.
    await run('sync', ['--file-system', unpacked])
    rmSync(folder, { recursive: true, force: true })
    renameSync(unpacked, folder)
    syncFolder(home.versions)
  } catch (error) {
    rmSync(unpacked, { recursive: true, force: true })
    if (error instanceof StartError) throw error
    const text = error instanceof Error ? error.message : String(error)
    const reason = /No space left|ENOSPC/.test(text) ? 'no space left on the disk' : firstLine(text)
    throw new StartError(
      `Cannot install version ${version} in ${home.versions}: ${reason}. Nothing was changed.`,
      { cause: error },
    )
  }
  return `versions/${version}`
}

/** tar refuses paths that lead out of the folder. */
async function unpackInto(folder: string, archive: string, maxBytes: number): Promise<void> {
  const flags = ['--strip-components=1', '--no-same-owner', '--no-same-permissions']
  const tar = spawn('tar', ['-xf', '-', '-C', folder, ...flags], {
    stdio: ['pipe', 'ignore', 'pipe'],
  })
  const ended = once(tar, 'close')
  const said = text(tar.stderr)
  const [packed] = await Promise.allSettled([
    pipeline(createReadStream(archive), createGunzip(), atMost(maxBytes), tar.stdin),
    ended,
  ])
  const [code] = await ended
  // tar reads no further at the end of the archive, and when something is wrong: then it knows best.
  if (packed.status === 'rejected' && !TAR_READS_NO_MORE.has(packed.reason.code))
    throw packed.reason
  if (code !== 0) throw new Error(firstLine(await said))
}

function atMost(bytes: number): Transform {
  let left = bytes
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      left -= chunk.length
      if (left < 0) done(new Error(`the archive unpacks to more than ${bytes} bytes`))
      else done(null, chunk)
    },
  })
}

/** Files and folders alone, that only root may change: nothing that leads elsewhere. */
async function requirePlainTree(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    const isPlain = entry.isFile() || entry.isDirectory()
    if (isPlain && (lstatSync(path).mode & UNSAFE_MODE) === 0) continue
    throw new Error(
      `${path.slice(folder.length + 1)} must be a plain file or directory that only root can change`,
    )
  }
}

/** That it runs on this machine, before anything depends on it. */
async function requireAnswer(folder: string, version: string): Promise<void> {
  const { node, main } = startOf(folder)
  const unfit = (reason: string, cause?: unknown) =>
    new StartError(
      `Version ${version} does not start on this machine (${reason}). Nothing was changed.`,
      { cause },
    )
  const said = await run(node, ['--disable-proto=delete', main, 'version', '--json'], {
    timeout: ANSWER_WITHIN_MS,
    killSignal: 'SIGKILL',
    env: { PATH: process.env.PATH ?? '' },
  }).catch((error) => {
    throw unfit(error.killed ? 'no response' : errorLine(error.stderr || error.message), error)
  })
  const stated = JSON.parse(readFileSync(join(folder, 'lib/package.json'), 'utf8')).version
  if (stated !== version || !said.stdout.includes(JSON.stringify(version))) {
    throw unfit(`it reports version ${stated}`)
  }
}

/** Node prints the position first, then the error. */
function errorLine(text: string): string {
  return /^\w*Error\b.*$/m.exec(text)?.[0] ?? firstLine(text)
}

function firstLine(text: string): string {
  const line = text.split('\n').find((it) => it.trim() !== '')
  return plainLine(line?.trim().slice(0, MAX_REASON) ?? 'no reason')
}
