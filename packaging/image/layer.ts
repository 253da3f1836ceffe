import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { pack } from 'tar-stream'

/** One entry of a layer: a file, a link or a folder. */
export interface LayerEntry {
  readonly content?: string | Buffer
  readonly link?: string
  readonly mode?: number
  readonly uid?: number
}

/** By path, without a slash in front. */
export type LayerEntries = Readonly<Record<string, LayerEntry>>

/** Files and links below a folder whose paths pass, with the modes that files of a system have. */
export function entriesIn(
  folder: string,
  isTaken: (path: string) => boolean,
  to = '',
): LayerEntries {
  const entries: Record<string, LayerEntry> = {}
  for (const found of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const full = join(found.parentPath, found.name)
    const path = full.slice(folder.length + 1)
    if (found.isDirectory() || !isTaken(path)) continue
    entries[join(to, path)] = found.isSymbolicLink()
      ? { link: readlinkSync(full) }
      : { content: readFileSync(full), mode: lstatSync(full).mode & 0o100 ? 0o755 : 0o644 }
  }
  return entries
}

/** A tar archive of the entries and of the folders above them: the same bytes for the same entries. */
export function tarOf(entries: LayerEntries, date: number): Promise<Buffer> {
  const all = new Map(Object.entries(entries))
  for (const path of Object.keys(entries)) {
    for (let above = dirname(path); above !== '.'; above = dirname(above)) {
      if (!all.has(above)) all.set(above, {})
    }
  }
  const archive = pack()
  const bytes = buffer(archive)
  for (const path of [...all.keys()].sort()) {
    const { content, link, mode, uid = 0 } = all.get(path) ?? {}
    const common = { mtime: new Date(date * 1_000), uid, gid: 0, uname: '', gname: '' }
    if (link !== undefined) {
      archive.entry({ ...common, name: path, type: 'symlink', linkname: link, mode: 0o777 })
    } else if (content === undefined) {
      archive.entry({ ...common, name: `${path}/`, type: 'directory', mode: mode ?? 0o755 })
    } else {
      archive.entry({ ...common, name: path, mode: mode ?? 0o644 }, content)
    }
  }
  archive.finalize()
  return bytes
}

/** By the program, as for the other archives: the zlib of each Node packs in another way. */
export function gzip(bytes: Buffer): Buffer {
  const { status, stdout, stderr, error } = spawnSync('gzip', ['-9n'], {
    input: bytes,
    maxBuffer: 1_024 * 1_048_576,
  })
  if (error) throw error
  if (status !== 0) throw new Error(`gzip failed: ${stderr}`)
  return stdout
}

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
