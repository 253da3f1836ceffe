import { createHash, randomBytes } from 'node:crypto'
import {
  chmodSync,
  createReadStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { gunzipSync, gzipSync } from 'node:zlib'
import { extract, type Header, pack } from 'tar-stream'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { type Manifest, readBackup, writeBackup } from '../../../src/cli/backup/backup-file.ts'
import { canMount, mountSmallDisk } from '../../helpers/small-disk.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const ORIGIN = {
  program: '1.0.0',
  role: 'agent',
  made_at: '2026-01-02T03:04:05.000Z',
  host: 'device',
  device_id: 'dev_0',
  cluster: false,
} as const
const FILES = new Map([
  ['data/agent.db', Buffer.from('database')],
  ['data/device-id', Buffer.from('dev_0\n')],
])
const noPassphrase = async () => undefined
const read = (path: string) => readBackup(path, noPassphrase)

async function madeBackup(): Promise<string> {
  const path = join(temporaryFolder(), 'backup')
  await writeBackup(path, ORIGIN, FILES, undefined)
  return path
}

type Entry = readonly [header: Partial<Header> & { name: string }, content?: string | Buffer]

const digest = (content: Buffer) => createHash('sha256').update(content).digest('hex')

function manifestOf(files: ReadonlyMap<string, Buffer>, change: object = {}): Entry {
  const list = [...files].map(([path, content]) => ({
    ...{ path, bytes: content.length, sha256: digest(content) },
  }))
  const manifest = { format: 'device-agent-backup', version: 1, ...ORIGIN, files: list, ...change }
  return [{ name: 'manifest.json' }, JSON.stringify(manifest)]
}

/** A file as an attacker would make it. */
async function forged(entries: readonly Entry[]): Promise<string> {
  const archive = pack()
  for (const [header, content = ''] of entries) archive.entry(header, content)
  archive.finalize()
  const path = join(temporaryFolder(), 'forged')
  writeFileSync(path, gzipSync(await buffer(archive)))
  return path
}

const contentOf: Entry[] = [...FILES].map(([name, content]) => [{ name }, content])

describe('a backup file', () => {
  it('has the files again, is private, and states what it is before anything else', async () => {
    const path = await madeBackup()
    const { manifest, files, isEncrypted } = await read(path)
    expect(files).toEqual(FILES)
    expect(isEncrypted).toBe(false)
    expect(manifest).toMatchObject({ ...ORIGIN, format: 'device-agent-backup', version: 1 })
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(readdirSync(join(path, '..'))).toEqual(['backup'])
    // Also for tar itself.
    const names: string[] = []
    const archive = extract()
    createReadStream(path)
      .pipe((await import('node:zlib')).createGunzip())
      .pipe(archive)
    for await (const entry of archive) {
      names.push(entry.header.name)
      entry.resume()
    }
    expect(names).toEqual(['manifest.json', ...FILES.keys()])
  })

  it('is encrypted with a passphrase', async () => {
    const path = join(temporaryFolder(), 'backup')
    const passphrase = new Secret('correct horse battery')
    await writeBackup(path, ORIGIN, FILES, passphrase)
    expect(readFileSync(path).includes('manifest')).toBe(false)
    await expect(read(path)).rejects.toThrow('is encrypted. Set --passphrase-file.')
    const { files, isEncrypted } = await readBackup(path, async () => passphrase)
    expect([files, isEncrypted]).toEqual([FILES, true])
  })

  it('replaces no file, and leaves nothing behind when it cannot be written', async () => {
    const path = await madeBackup()
    const before = readFileSync(path)
    await expect(writeBackup(path, ORIGIN, FILES, undefined)).rejects.toThrow('already exists')
    expect(readFileSync(path).equals(before)).toBe(true)
    const missing = join(temporaryFolder(), 'missing/backup')
    await expect(writeBackup(missing, ORIGIN, FILES, undefined)).rejects.toThrow(
      `Cannot write ${missing}: no such file or directory.`,
    )
  })

  it.skipIf(!canMount())('says that the disk is full, and leaves it as it was', async () => {
    const { folder } = mountSmallDisk('1m')
    const path = join(folder, 'backup')
    const files = new Map([['data/agent.db', randomBytes(4 * 1024 * 1024)]])
    await expect(writeBackup(path, ORIGIN, files, undefined)).rejects.toThrow(
      `Cannot write ${path}: no space left on the disk.`,
    )
    expect(readdirSync(folder)).toEqual([])
  })
})

describe('a damaged backup', () => {
  it('is refused wherever it is cut off', async () => {
    const path = await madeBackup()
    const bytes = readFileSync(path)
    for (let end = 0; end < bytes.length; end += 1) {
      writeFileSync(path, bytes.subarray(0, end))
      await expect(read(path), `cut at ${end}`).rejects.toThrow(
        /^Cannot use .*(damaged|incomplete)/,
      )
    }
  })

  it('is refused, or is the same, whichever byte is changed', async () => {
    const path = await madeBackup()
    const bytes = readFileSync(path)
    let refused = 0
    for (let at = 0; at < bytes.length; at += 1) {
      const changed = Buffer.from(bytes)
      changed[at] = (changed[at] ?? 0) ^ 0x10
      writeFileSync(path, changed)
      const result = await read(path).catch((error: Error) => error)
      if (result instanceof Error) refused += 1
      // Some bits of gzip mean nothing, such as its time.
      else expect(result.files, `byte ${at}`).toEqual(FILES)
    }
    expect(refused).toBeGreaterThan(bytes.length - 12)
  })

  it('is refused when the archive ends early within a whole gzip', async () => {
    const path = await madeBackup()
    const tar = gunzipSync(readFileSync(path))
    for (let end = 0; end < tar.length - 1024; end += 256) {
      writeFileSync(path, gzipSync(tar.subarray(0, end)))
      await expect(read(path), `cut at ${end}`).rejects.toThrow(/damaged|incomplete|not a backup/)
    }
  })
})

describe('a forged backup', () => {
  it.each<[string, Entry[], string]>([
    ['no manifest', contentOf, 'not a backup of device-agent'],
    ['a late manifest', [...contentOf, manifestOf(FILES)], 'not a backup of device-agent'],
    [
      'a manifest that is a link',
      [[{ name: 'manifest.json', type: 'symlink', linkname: '/etc/passwd' }]],
      'not a backup',
    ],
    [
      'a newer format',
      [manifestOf(FILES, { version: 3, more: 1 }), ...contentOf],
      'a newer version of device-agent made this backup',
    ],
    ['an unknown field', [manifestOf(FILES, { more: 1 }), ...contentOf], 'its manifest is damaged'],
    [
      'another role',
      [manifestOf(FILES, { role: 'root' }), ...contentOf],
      'its manifest is damaged',
    ],
    ['a missing file', [manifestOf(FILES), ...contentOf.slice(1)], 'not in its manifest'],
    ['a missing last file', [manifestOf(FILES), ...contentOf.slice(0, 1)], 'incomplete'],
    [
      'an additional file',
      [manifestOf(FILES), ...contentOf, [{ name: 'data/x' }, 'x']],
      'contains data/x, which is not in its manifest',
    ],
    ['a file twice', [manifestOf(FILES), ...contentOf, ...contentOf], 'not in its manifest'],
    ['exchanged files', [manifestOf(FILES), ...contentOf.toReversed()], 'not in its manifest'],
    [
      'other content',
      [manifestOf(FILES), [{ name: 'data/agent.db' }, 'Database'], ...contentOf.slice(1)],
      'its file data/agent.db is damaged',
    ],
    [
      'a link instead of a file',
      [manifestOf(FILES), [{ name: 'data/agent.db', type: 'symlink', linkname: '/etc/shadow' }]],
      'not in its manifest',
    ],
    [
      'a hard link',
      [manifestOf(FILES), [{ name: 'data/agent.db', type: 'link', linkname: '/etc/shadow' }]],
      'not in its manifest',
    ],
    [
      'a device',
      [
        manifestOf(FILES),
        [{ name: 'data/agent.db', type: 'character-device', devmajor: 1, devminor: 1 }],
      ],
      'not in its manifest',
    ],
    [
      'a control character in a name',
      [manifestOf(FILES), [{ name: 'data/\u001b[2J' }, 'x']],
      'contains data/ [2J',
    ],
  ])('with %s is refused', async (_what, entries, reason) => {
    const path = await forged(entries)
    await expect(read(path)).rejects.toThrow(reason)
    await expect(read(path)).rejects.toThrow(`Cannot use ${path}: `)
  })

  it('is refused when one path is in its manifest twice', async () => {
    const [header, text] = manifestOf(FILES)
    const manifest: Manifest = JSON.parse(String(text))
    const [first] = manifest.files
    const twice = JSON.stringify({ ...manifest, files: [first, first] })
    const [entry] = contentOf
    if (!entry) throw new Error('no entry')
    await expect(read(await forged([[header, twice], entry, entry]))).rejects.toThrow('damaged')
  })

  it('unpacks to no more bytes than it states', async () => {
    const bomb = Buffer.alloc(64 * 1024 * 1024)
    const [first] = contentOf
    if (!first) throw new Error('no entry')
    const path = await forged([manifestOf(FILES), ...contentOf])
    writeFileSync(path, gzipSync(Buffer.concat([gunzipSync(readFileSync(path)), bomb])))
    for (const [file, reason] of [
      [path, 'unpacks to more bytes'],
      [await forged([[{ name: 'manifest.json' }, bomb]]), 'not a backup'],
      [await forged([manifestOf(FILES), [{ name: 'data/agent.db' }, bomb]]), 'not in its manifest'],
      [
        await forged([[{ name: 'manifest.json', pax: { comment: 'x'.repeat(9_000_000) } }, '{}']]),
        'Header exceeds max size',
      ],
    ] as const) {
      await expect(read(file)).rejects.toThrow(reason)
    }
  })

  it('is no other file', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'file')
    for (const content of [
      '',
      'text',
      gzipSync('text'),
      gzipSync(Buffer.alloc(1_024)),
      Buffer.alloc(9_999),
    ]) {
      writeFileSync(path, content)
      await expect(read(path)).rejects.toThrow(/^Cannot use .*: .*(backup)/)
    }
    mkdirSync(join(folder, 'directory'))
    await expect(read(join(folder, 'directory'))).rejects.toThrow('it is a directory')
    await expect(read(join(folder, 'missing'))).rejects.toThrow('no such file or directory')
    expect(existsSync(join(folder, 'missing'))).toBe(false)
    if (process.getuid?.() === 0) return
    chmodSync(path, 0)
    await expect(read(path)).rejects.toThrow('permission denied')
  })
})
