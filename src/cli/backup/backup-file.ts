import { createHash } from 'node:crypto'
import {
  closeSync,
  createReadStream,
  createWriteStream,
  existsSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { dirname } from 'node:path'
import process from 'node:process'
import { Transform } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createGzip } from 'node:zlib'
import { extract, pack } from 'tar-stream'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { syncFolder } from '../../base/file.ts'
import type { Secret } from '../../base/secret.ts'
import { plainLine } from '../local/terminal-text.ts'
import { isSealed, SEAL_START_BYTES, seal, unseal } from './sealing.ts'

const FORMAT = 'device-agent-backup'
/** Backups without settings files have the first version, for older programs. */
const VERSIONS = [1, 2] as const
const MANIFEST = 'manifest.json'
const MAX_MANIFEST_BYTES = 4 * 1024 * 1024
const MAX_FILES = 20_000
/** All files together. They are in memory while they are checked. */
const MAX_BYTES = 1024 * 1024 * 1024
/** A tar header and its padding for each file, and the end of the archive. */
const TAR_BYTES_PER_FILE = 4_096
const TAR_END_BYTES = 65_536

/** All versions of the format have these, and no version changes them. */
const FormatSchema = z.looseObject({ format: z.literal(FORMAT), version: z.int().positive() })

const ManifestSchema = z.strictObject({
  format: z.literal(FORMAT),
  version: z.literal(VERSIONS),
  /** Version of the program that made the backup. */
  program: z.string().max(100),
  role: z.enum(['agent', 'gateway']),
  made_at: z.iso.datetime(),
  host: z.string().max(255),
  /** Identity at the service; null for a gateway. */
  device_id: z.string().max(100).nullable(),
  /** Whether the records come from the PostgreSQL of several gateways. */
  cluster: z.boolean(),
  files: z
    .array(
      z.strictObject({
        path: z.string().max(500),
        bytes: z.int().nonnegative().max(MAX_BYTES),
        sha256: z.string().regex(/^[0-9a-f]{64}$/),
        /** Permissions of a settings file. */
        mode: z.int().min(0).max(0o777).optional(),
      }),
    )
    .max(MAX_FILES),
})
export type Manifest = z.infer<typeof ManifestSchema>

/** Content of the files by their path, with `/` between folders. */
export type Files = ReadonlyMap<string, Buffer>

export interface Backup {
  readonly manifest: Manifest
  readonly files: Files
  readonly isEncrypted: boolean
}

export type Origin = Omit<Manifest, 'format' | 'version' | 'files'>

/**
 * Writes a new file that only its owner can read, reads it back, and gives it its name when it is sound. Throws a
 * StartError, and leaves nothing behind.
 */
export async function writeBackup(
  path: string,
  origin: Origin,
  files: Files,
  passphrase: Secret | undefined,
  modes: ReadonlyMap<string, number> = new Map(),
): Promise<Manifest> {
  if (existsSync(path)) {
    throw new StartError(`${path} already exists. Choose another name, or delete the file.`)
  }
  const manifest = describe(origin, files, modes)
  const temporary = `${path}.${process.pid}.tmp`
  let isOurs = false
  try {
    const file = createWriteStream(temporary, { flags: 'wx', mode: 0o600, flush: true })
    file.once('open', () => {
      isOurs = true
    })
    await pipeline(
      tarOf(manifest, files),
      createGzip(),
      passphrase ? seal(passphrase) : asItIs,
      file,
    )
    await readBackup(temporary, async () => passphrase)
    renameSync(temporary, path)
    syncFolder(dirname(path))
    return manifest
  } catch (error) {
    if (isOurs) rmSync(temporary, { force: true })
    throw refusalOf(`Cannot write ${path}`, error)
  }
}

/** Whether users other than the owner can read the file: some file systems have no modes. */
export function isReadableByOthers(path: string): boolean {
  return (statSync(path).mode & 0o077) !== 0
}

function describe(origin: Origin, files: Files, modes: ReadonlyMap<string, number>): Manifest {
  const list = [...files].map(([path, content]) => ({
    path,
    bytes: content.length,
    sha256: digestOf(content),
    ...(modes.has(path) && { mode: modes.get(path) }),
  }))
  const total = list.reduce((sum, { bytes }) => sum + bytes, 0)
  if (total > MAX_BYTES || list.length > MAX_FILES) {
    throw new StartError(
      `The data is too large for a backup: ${list.length} files with ${total} bytes. The limits are ${MAX_FILES} files and 1 GiB.`,
    )
  }
  const version = modes.size > 0 ? 2 : 1
  return { format: FORMAT, version, ...origin, files: list }
}

function tarOf(manifest: Manifest, files: Files) {
  const archive = pack()
  const mtime = new Date(manifest.made_at)
  const add = (name: string, content: string | Buffer) =>
    archive.entry({ name, mode: 0o600, mtime }, content)
  add(MANIFEST, `${JSON.stringify(manifest, undefined, 2)}\n`)
  for (const [path, content] of files) add(path, content)
  archive.finalize()
  return archive
}

/**
 * Reads and checks a whole backup. The file may come from an attacker: its size, names and types of entries are
 * checked before use. `passphraseFor` is called if it is encrypted. Throws a StartError.
 */
export async function readBackup(
  path: string,
  passphraseFor: () => Promise<Secret | undefined>,
): Promise<Backup> {
  const isEncrypted = isSealed(startOf(path))
  const passphrase = isEncrypted ? await passphraseFor() : undefined
  if (isEncrypted && !passphrase) {
    throw new StartError(`${path} is encrypted. Set --passphrase-file.`)
  }
  const bound = new ByteLimit(MAX_MANIFEST_BYTES + TAR_END_BYTES)
  const archive = extract()
  const source = createReadStream(path)
  try {
    const [content] = await Promise.all([
      readEntries(archive, bound).catch((error: unknown) => {
        archive.destroy()
        throw error
      }),
      pipeline(source, passphrase ? unseal(passphrase) : asItIs, createGunzip(), bound, archive),
    ])
    return { ...content, isEncrypted }
  } catch (error) {
    throw refusalOf(`Cannot use ${path}`, error)
  } finally {
    source.destroy()
  }
}

async function readEntries(
  archive: ReturnType<typeof extract>,
  bound: ByteLimit,
): Promise<Pick<Backup, 'manifest' | 'files'>> {
  let manifest: Manifest | undefined
  const files = new Map<string, Buffer>()
  for await (const entry of archive) {
    const { name, type, size = 0 } = entry.header
    if (!manifest) {
      if (name !== MANIFEST || type !== 'file' || size > MAX_MANIFEST_BYTES) throw noBackup()
      manifest = parseManifest(await buffer(entry))
      const total = manifest.files.reduce((sum, { bytes }) => sum + bytes, 0)
      if (total > MAX_BYTES) throw new Flaw('its files are larger than 1 GiB')
      bound.allow(total + manifest.files.length * TAR_BYTES_PER_FILE)
      continue
    }
    const expected = manifest.files[files.size]
    if (!expected || type !== 'file' || name !== expected.path || size !== expected.bytes) {
      throw new Flaw(`it contains ${plainLine(name)}, which is not in its manifest`)
    }
    const content = await buffer(entry)
    if (digestOf(content) !== expected.sha256) {
      throw new Flaw(`its file ${plainLine(name)} is damaged`)
    }
    files.set(name, content)
  }
  if (!manifest) throw noBackup()
  if (files.size !== manifest.files.length) throw new Flaw('the backup is incomplete')
  return { manifest, files }
}

function parseManifest(bytes: Buffer): Manifest {
  let json: unknown
  try {
    json = JSON.parse(bytes.toString('utf8'))
  } catch {
    throw noBackup()
  }
  const format = FormatSchema.safeParse(json)
  if (!format.success) throw noBackup()
  if (!VERSIONS.some((known) => known === format.data.version)) {
    throw new Flaw('a newer version of device-agent made this backup. Install that version first')
  }
  const manifest = ManifestSchema.safeParse(json)
  if (!manifest.success) throw new Flaw('its manifest is damaged')
  const paths = new Set(manifest.data.files.map(({ path }) => path))
  if (paths.size !== manifest.data.files.length) throw new Flaw('its manifest is damaged')
  return manifest.data
}

/** Ends a stream that unpacks to more bytes than allowed. */
class ByteLimit extends Transform {
  #left: number

  constructor(bytes: number) {
    super()
    this.#left = bytes
  }

  allow(more: number): void {
    this.#left += more
  }

  override _transform(
    chunk: Buffer,
    _encoding: string,
    done: (error: Error | null, chunk?: Buffer) => void,
  ) {
    this.#left -= chunk.length
    if (this.#left < 0) done(new Flaw('it unpacks to more bytes than its manifest states'))
    else done(null, chunk)
  }
}

function startOf(path: string): Buffer {
  try {
    const file = openSync(path, 'r')
    try {
      const start = Buffer.alloc(SEAL_START_BYTES)
      return start.subarray(0, readSync(file, start, 0, SEAL_START_BYTES, 0))
    } finally {
      closeSync(file)
    }
  } catch (error) {
    throw refusalOf(`Cannot read ${path}`, error)
  }
}

const asItIs = (source: AsyncIterable<Buffer>): AsyncIterable<Buffer> => source

const digestOf = (content: Buffer) => createHash('sha256').update(content).digest('hex')

const noBackup = () => new Flaw('it is not a backup of device-agent')

/** A reason that the command completes to a sentence. */
class Flaw extends Error {}

/** Reasons for errors of the system, and what to do. */
const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied. Run this command with sudo',
  EPERM: 'permission denied. Run this command with sudo',
  ENOSPC: 'no space left on the disk',
  EDQUOT: 'no space left for this user',
  EROFS: 'the file system is read-only',
  ENOENT: 'no such file or directory',
  ENOTDIR: 'a part of the path is not a directory',
  EISDIR: 'it is a directory',
  EIO: 'the disk reports an error',
  Z_BUF_ERROR: 'the backup is incomplete',
  Z_DATA_ERROR: 'the backup is damaged, or not a backup of device-agent',
}

/** One sentence for people. */
export function refusalOf(failed: string, error: unknown): StartError {
  if (error instanceof StartError) return error
  const { code = '', message = String(error) } = error as NodeJS.ErrnoException
  const isCut = /Unexpected end|Invalid tar/i.test(message)
  const reason = REASONS[code] ?? (isCut ? 'the backup is damaged or incomplete' : message)
  return new StartError(`${failed}: ${plainLine(reason)}.`, { cause: error })
}
