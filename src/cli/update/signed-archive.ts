import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto'
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'

const FORM = /^(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?$/

/** Positive when `a` is newer. Throws when one is no version, such as `1.2.0` or `1.2.0-rc.1`. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [partsOf(a), partsOf(b)]
  for (const [index, number] of left.numbers.entries()) {
    const difference = number - (right.numbers[index] ?? 0)
    if (difference !== 0) return difference
  }
  // What leads up to a version is older than it.
  if (left.before === right.before) return 0
  if (left.before === '') return 1
  if (right.before === '') return -1
  return left.before.localeCompare(right.before, 'en', { numeric: true })
}

function isVersion(text: string): boolean {
  return FORM.test(text)
}

function partsOf(version: string): { numbers: number[]; before: string } {
  const [, major, minor, patch, before = ''] = FORM.exec(version) ?? []
  if (major === undefined) throw new Error(`${version} is not a version`)
  return { numbers: [major, minor, patch].map(Number), before }
}

const NAME = /^device-agent-(.+)-linux-(x64|arm64)\.tar\.gz$/
const MAX_SIGNATURE_BYTES = 4_096
/** Six times what a version takes today. Nobody has signed a file before it was read. */
export const MAX_ARCHIVE_BYTES = 300_000_000

/** What was signed: which bytes are which version for which machines. */
export const Statement = z.strictObject({
  name: z.literal('device-agent'),
  version: z.string().refine(isVersion),
  arch: z.string(),
  /** Of the archive, in hex. */
  sha512: z.string(),
})
export type Statement = z.infer<typeof Statement>

/**
 * The archive to install: the file itself, or of a folder the newest for this machine. Throws a
 * StartError when there is none.
 */
export function chooseArchive(path: string, arch: string): string {
  if (!statSync(path, { throwIfNoEntry: false })) {
    throw new StartError(`${path} does not exist.`)
  }
  if (!statSync(path).isDirectory()) return requireFile(path)
  const found = readdirSync(path)
    .map((file) => ({ file, match: NAME.exec(file) }))
    .flatMap(({ file, match }) => (match?.[2] === arch ? [{ file, version: match[1] ?? '' }] : []))
    .filter(({ version }) => isVersion(version))
    .sort((a, b) => compareVersions(b.version, a.version))
  const [newest] = found
  if (!newest) {
    throw new StartError(
      `${path} contains no archive for this machine (device-agent-VERSION-linux-${arch}.tar.gz).`,
    )
  }
  return requireFile(join(path, newest.file))
}

/** A pipe or a device would never end, and what is too large would fill the disk. */
function requireFile(path: string): string {
  const found = statSync(path)
  if (!found.isFile()) throw new StartError(`${path} is not a file. Nothing was changed.`)
  if (found.size <= MAX_ARCHIVE_BYTES) return path
  throw new StartError(
    `${path} is too large: ${found.size} bytes, limit ${MAX_ARCHIVE_BYTES}. Nothing was changed.`,
  )
}

/** Ed25519 keys of these files, as many as each has; a file that is missing has none. Throws a StartError. */
export function readUpdateKeys(paths: readonly string[]): KeyObject[] {
  return paths
    .filter((path) => existsSync(path))
    .flatMap((path) => {
      const text = readFileSync(path, 'utf8')
      const blocks = text.match(/-----BEGIN PUBLIC KEY-----[^-]+-----END PUBLIC KEY-----/g)
      if (!blocks) throw new StartError(`${path} contains no public key in PEM format.`)
      return blocks.map((block) => readKey(block, path))
    })
}

function readKey(block: string, path: string): KeyObject {
  let key: KeyObject | undefined
  try {
    key = createPublicKey(block)
  } catch {
    // Said below.
  }
  if (key?.asymmetricKeyType === 'ed25519') return key
  throw new StartError(`${path} contains a public key that is damaged or not Ed25519.`)
}

/**
 * What one of the keys says of an archive, after the two lines of `FILE.sig`: the statement as JSON, and
 * its signature in base64. Throws a StartError when none of them does.
 */
export function readStatement(archive: string, keys: readonly KeyObject[]): Statement {
  const path = `${archive}.sig`
  if (!existsSync(path)) {
    throw new StartError(`${archive} is not signed, ${path} is missing. Nothing was changed.`)
  }
  if (keys.length === 0) {
    throw new StartError(
      'This version has no key to verify updates. Store the public key in /etc/device-agent/update-keys.pem.',
    )
  }
  const found = statSync(path)
  const isShort = found.isFile() && found.size <= MAX_SIGNATURE_BYTES
  const text = isShort ? readFileSync(path, 'utf8') : ''
  const [statement = '', signature = ''] = text.split('\n')
  const bytes = Buffer.from(statement)
  const isKnown = keys.some((key) => verify(null, bytes, key, Buffer.from(signature, 'base64')))
  if (!isKnown) {
    throw new StartError(
      `${path} was not signed with a trusted key (/etc/device-agent/update-keys.pem). Nothing was changed.`,
    )
  }
  return readStated(statement, path)
}

function readStated(text: string, path: string): Statement {
  try {
    return Statement.parse(JSON.parse(text))
  } catch (cause) {
    throw new StartError(`${path} is signed, but has an unknown format.`, {
      cause,
    })
  }
}

/** Throws a StartError when what was signed is not for here. */
export function requireFitting(
  { version, arch }: Statement,
  here: { readonly version: string; readonly arch: string },
): void {
  if (arch !== here.arch) {
    throw new StartError(`Version ${version} is for ${arch}, but this machine is ${here.arch}.`)
  }
  const order = compareVersions(version, here.version)
  if (order === 0) throw new StartError(`Version ${version} is already running.`)
  if (order < 0) {
    throw new StartError(
      `Version ${version} is older than the running version ${here.version}. Updates must be newer.`,
    )
  }
}

/** Throws a StartError when the file is not what was signed. `named` is what its owner calls it. */
export async function requireStated(
  file: string,
  { sha512 }: Statement,
  named: string,
): Promise<void> {
  const hash = createHash('sha512')
  await pipeline(createReadStream(file), hash)
  if (hash.digest('hex') !== sha512) {
    throw new StartError(
      `${named} does not match its signature. It is damaged or incomplete. Nothing was changed.`,
    )
  }
}
