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
  // A prerelease is older than its version.
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
/** Six times the size of a version today. The file is read before its signature is checked. */
export const MAX_ARCHIVE_BYTES = 300_000_000

/** The signed statement: version, machine type and hash of an archive. */
export const Statement = z.strictObject({
  name: z.literal('device-agent'),
  version: z.string().refine(isVersion),
  arch: z.string(),
  /** Hash of the archive, in hex. */
  sha512: z.string(),
})
export type Statement = z.infer<typeof Statement>

/**
 * The archive to install: the file itself, or the newest in a folder for this machine. Throws a StartError if
 * there is none.
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

/** A pipe or a device would never end, and a large file would fill the disk. */
function requireFile(path: string): string {
  const found = statSync(path)
  if (!found.isFile()) throw new StartError(`${path} is not a file. Nothing was changed.`)
  if (found.size <= MAX_ARCHIVE_BYTES) return path
  throw new StartError(
    `${path} is too large: ${found.size} bytes, limit ${MAX_ARCHIVE_BYTES}. Nothing was changed.`,
  )
}

/** All Ed25519 keys of these files; a missing file has none. Throws a StartError. */
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
 * Reads the statement about an archive and checks it with the keys. `FILE.sig` has two lines: the statement
 * as JSON, and its signature in base64. Throws a StartError if no key fits.
 */
export function readStatement(archive: string, keys: readonly KeyObject[]): Statement {
  const path = `${archive}.sig`
  if (!existsSync(path)) {
    throw new StartError(`${archive} is not signed, ${path} is missing. Nothing was changed.`)
  }
  if (keys.length === 0) {
    throw new StartError(
      'This device trusts no key for updates. Write the public half of your key, from openssl pkey -in update.key -pubout, to /etc/device-agent/update-keys.pem.',
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
      `${path} was not signed with a trusted key: that of this version, or one in /etc/device-agent/update-keys.pem. Nothing was changed.`,
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

/** Throws a StartError if the archive is for another machine type, or is not newer. */
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

/** Throws a StartError if the file does not match its statement. `named` is the file name for messages. */
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
