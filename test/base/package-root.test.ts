import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { packageRoot } from '../../src/base/package-root.ts'

describe('packageRoot', () => {
  it('is the folder with what the package ships', () => {
    const shipped = ['package.json', 'default-policy.json', 'systemd']
    expect(shipped.filter((name) => !existsSync(join(packageRoot(), name)))).toEqual([])
  })
})
