import fs, {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { makeFolder, packageRoot, writeFileDurably } from '../../src/base/file.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** What is made, replaced and synced below `folder` while it runs, by its path from there. */
function diskWrites(folder: string, run: () => void): string[] {
  const writes: string[] = []
  const { mkdirSync, renameSync, fsyncSync } = fs
  const note = (what: string, path: string) => {
    if (path.startsWith(folder)) writes.push(`${what} ${path.slice(folder.length) || '/'}`)
  }
  Object.assign(fs, {
    mkdirSync: (path: string, options: fs.MakeDirectoryOptions) => {
      note('make', path)
      return mkdirSync(path, options)
    },
    renameSync: (from: string, to: string) => {
      note('replace', to)
      renameSync(from, to)
    },
    fsyncSync: (file: number) => {
      note('sync', readlinkSync(`/proc/self/fd/${file}`).replace(/\.\d+\.tmp$/, '.tmp'))
      fsyncSync(file)
    },
  })
  syncBuiltinESMExports()
  try {
    run()
  } finally {
    Object.assign(fs, { mkdirSync, renameSync, fsyncSync })
    syncBuiltinESMExports()
  }
  return writes
}

describe('writeFileDurably', () => {
  it('has the content on disk before the name leads to it, and the name before it answers', () => {
    const folder = temporaryFolder()
    expect(diskWrites(folder, () => writeFileDurably(join(folder, 'token'), 'new'))).toEqual([
      'sync /token.tmp',
      'replace /token',
      'sync /',
    ])
  })

  it('replaces the content, readable by the owner alone', () => {
    const path = join(temporaryFolder(), 'token')
    writeFileSync(path, 'an old and longer text', { mode: 0o644 })
    writeFileDurably(path, 'new')
    expect(readFileSync(path, 'utf8')).toBe('new')
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('leaves no temporary file behind when the target cannot be replaced', () => {
    const folder = temporaryFolder()
    const path = join(folder, 'token')
    mkdirSync(join(path, 'occupied'), { recursive: true })
    expect(() => writeFileDurably(path, 'new')).toThrow()
    expect(readdirSync(folder)).toEqual(['token'])
  })
})

describe('makeFolder', () => {
  it('makes all that is missing, each with the mode', () => {
    const folder = temporaryFolder()
    makeFolder(join(folder, 'a/b/c'))
    for (const path of ['a', 'a/b', 'a/b/c']) {
      expect(statSync(join(folder, path)).mode & 0o777, path).toBe(0o700)
    }
  })

  it('has each on disk before it makes the next', () => {
    const folder = temporaryFolder()
    expect(diskWrites(folder, () => makeFolder(join(folder, 'a/b')))).toEqual([
      'make /a',
      'sync /',
      'make /a/b',
      'sync /a',
    ])
    expect(diskWrites(folder, () => makeFolder(join(folder, 'a/b')))).toEqual([])
  })

  it('leaves one alone that is there', () => {
    const folder = temporaryFolder()
    chmodSync(folder, 0o750)
    makeFolder(folder)
    expect(statSync(folder).mode & 0o777).toBe(0o750)
  })

  it('says what the system says about a file in its place, or above it', () => {
    const path = join(temporaryFolder(), 'file')
    writeFileSync(path, '')
    expect(() => makeFolder(path)).toThrow('EEXIST')
    expect(() => makeFolder(join(path, 'below'))).toThrow('ENOTDIR')
  })

  it('names a link to a missing folder, and does not create its target', () => {
    const folder = temporaryFolder()
    const link = join(folder, 'state')
    symlinkSync('private/state', link)
    const sentence = `${link} is a symbolic link to private/state, which does not exist.`
    expect(() => makeFolder(link)).toThrow(sentence)
    expect(() => makeFolder(join(link, 'below'))).toThrow(sentence)
    expect(existsSync(join(folder, 'private'))).toBe(false)
  })
})

describe('packageRoot', () => {
  it('is the folder with what the package ships', () => {
    const shipped = ['package.json', 'default-policy.json', 'systemd']
    expect(shipped.filter((name) => !existsSync(join(packageRoot(), name)))).toEqual([])
  })

  it('is none where a part of the package was copied, and is not looked for without end', () => {
    expect(() => packageRoot(temporaryFolder())).toThrow(StartError)
  })
})
