import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { makeFolder, writeFileDurably } from '../../src/base/file.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe('writeFileDurably', () => {
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
})
