import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { writeFileDurably } from '../../src/base/file.ts'
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
