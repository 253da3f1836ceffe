import { describe, expect, it } from 'vitest'
import { shrinkwrapOf, stagedManifest } from '../../packaging/npm-package.ts'
import { type LockEntry, readLock, readManifest } from '../../packaging/project.ts'

const SHA = 'sha512-x'
const staged = { name: 'it', version: '1.0.0', dependencies: {}, optionalDependencies: {} }

describe('the manifest of the npm package', () => {
  it('lists what is not in the bundle, and nothing of the workshop', () => {
    const { dependencies, optionalDependencies, ...rest } = stagedManifest(readManifest())
    expect(Object.keys(dependencies)).toEqual(['@ngrok/ngrok'])
    expect(Object.keys(optionalDependencies).sort()).toEqual([
      'better-sqlite3',
      'better-sqlite3-node20',
      'node-unix-socket',
    ])
    expect(rest).toMatchObject({ type: 'module', bin: { 'device-agent': 'dist/main.js' } })
    expect(rest).not.toHaveProperty('private')
    expect(rest).not.toHaveProperty('scripts')
  })
})

describe('the shrinkwrap', () => {
  it('pins the bytes of every entry', () => {
    const manifest = stagedManifest(readManifest())
    const { packages } = shrinkwrapOf(manifest, readLock()) as {
      packages: Record<string, LockEntry>
    }
    const paths = Object.keys(packages).filter((path) => path !== '')
    expect(paths).toContain('node_modules/@ngrok/ngrok-linux-arm64-gnu')
    expect(paths).toContain('node_modules/better-sqlite3')
    expect(paths).not.toContain('node_modules/zod')
    expect(paths.filter((path) => !packages[path]?.integrity?.startsWith('sha512-'))).toEqual([])
    expect(paths.filter((path) => packages[path]?.dev)).toEqual([])
  })

  it('takes the package that the one which wants it would find', () => {
    const lock = {
      'node_modules/a': { version: '1.0.0', integrity: SHA, dependencies: { b: '2' } },
      'node_modules/a/node_modules/b': {
        version: '2.0.0',
        integrity: SHA,
        dependencies: { c: '1' },
      },
      'node_modules/b': { version: '1.0.0', integrity: SHA },
      'node_modules/c': { version: '1.0.0', integrity: SHA, dev: true, dependencies: { a: '1' } },
    }
    const wrapped = shrinkwrapOf({ ...staged, dependencies: { a: '1' } }, lock)
    expect(wrapped).toMatchObject({ lockfileVersion: 3 })
    const { packages } = wrapped as { packages: Record<string, LockEntry> }
    expect(Object.keys(packages)).toEqual([
      '',
      'node_modules/a',
      'node_modules/a/node_modules/b',
      'node_modules/c',
    ])
    expect(packages['node_modules/c']).not.toHaveProperty('dev')
  })

  it('refuses a package whose bytes are not pinned, also an optional one', () => {
    const needed = { 'node_modules/a': { version: '1.0.0' } }
    expect(() => shrinkwrapOf({ ...staged, dependencies: { a: '1' } }, needed)).toThrow(
      'pins no bytes of node_modules/a',
    )
    const optional = { 'node_modules/a': { version: '1.0.0', optional: true } }
    expect(() => shrinkwrapOf({ ...staged, optionalDependencies: { a: '1' } }, optional)).toThrow(
      'pins no bytes of node_modules/a',
    )
  })
})
