import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT, readLock } from '../../packaging/project.ts'

describe('package-lock.json', () => {
  const packages = Object.entries(readLock()).filter(([path]) => path !== '')

  it('pins the bytes of every package', () => {
    const open = packages.filter(
      ([, { integrity }]) => !/^sha512-[\w+/]{86}==$/.test(integrity ?? ''),
    )
    expect(open.map(([path]) => path)).toEqual([])
    expect(packages.length).toBeGreaterThan(100)
  })

  it('names no registry', () => {
    const text = readFileSync(join(ROOT, 'package-lock.json'), 'utf8')
    expect(text.match(/"resolved":/g)).toBeNull()
  })
})
