import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { packageRoot } from '../../src/base/package-root.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe('packageRoot', () => {
  it('is the folder with what the package ships', () => {
    const shipped = ['package.json', 'default-policy.json', 'systemd']
    expect(shipped.filter((name) => !existsSync(join(packageRoot(), name)))).toEqual([])
  })

  it('is none where a part of the package was copied, and is not looked for without end', () => {
    expect(() => packageRoot(temporaryFolder())).toThrow(StartError)
  })
})
