import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { describe, expect, it } from 'vitest'
import { unpackVersion } from '../../../src/cli/update/unpack.ts'
import { UpdateHome } from '../../../src/cli/update/update-home.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

interface Made {
  readonly version?: string
  /** What the program says when it is asked who it is. */
  readonly main?: string
  readonly change?: (tree: string) => void
  readonly tarFlags?: readonly string[]
}

/** An archive with this Node, in a link that tar follows, and a program of a line. */
function archive({ version = '1.1.0', main, change, tarFlags = [] }: Made = {}) {
  const root = temporaryFolder()
  const tree = join(root, 'tree')
  mkdirSync(join(tree, 'lib/bin'), { recursive: true })
  mkdirSync(join(tree, 'lib/dist'))
  const node = join(tree, 'lib/bin/node')
  writeFileSync(node, `#!/bin/sh\nexec ${process.execPath} "$@"\n`, { mode: 0o755 })
  writeFileSync(join(tree, 'lib/package.json'), JSON.stringify({ version, type: 'module' }))
  const says = main ?? `console.log(JSON.stringify({ version: ${JSON.stringify(version)} }))`
  writeFileSync(join(tree, 'lib/dist/main.js'), says)
  change?.(tree)
  const path = join(root, 'archive.tar.gz')
  execFileSync('tar', ['-czf', path, ...tarFlags, '-C', root, 'tree'])
  const home = new UpdateHome(join(root, 'home'))
  return { root, home, path }
}

async function refusal({ home, path }: ReturnType<typeof archive>, maxBytes?: number) {
  const error = await unpackVersion(home, path, '1.1.0', maxBytes).then(
    () => undefined,
    (reason: Error) => reason,
  )
  expect(error?.message).toContain('Nothing was changed.')
  expect(readdirSync(home.versions)).toEqual([])
  return error?.message
}

describe('unpackVersion', () => {
  it('puts a version in its place that says who it is', async () => {
    const { home, path } = archive()
    expect(await unpackVersion(home, path, '1.1.0')).toBe('versions/1.1.0')
    expect(readdirSync(home.versions)).toEqual(['1.1.0'])
    expect(existsSync(join(home.versions, '1.1.0/lib/dist/main.js'))).toBe(true)
  })

  it('takes the place of one that an undone update has left', async () => {
    const { home, path } = archive()
    mkdirSync(join(home.versions, '1.1.0/lib/old'), { recursive: true })
    await unpackVersion(home, path, '1.1.0')
    expect(existsSync(join(home.versions, '1.1.0/lib/old'))).toBe(false)
  })

  it.each<[string, RegExp, Made]>([
    ['ends with an error', /Error: broken/, { main: `throw new Error('broken')` }],
    ['is another version than was signed', /reports version 1\.2\.0/, { version: '1.2.0' }],
    [
      'has a link',
      /must be a plain file/,
      { change: (tree) => symlinkSync('/etc', join(tree, 'lib/etc')) },
    ],
    [
      'has a pipe',
      /must be a plain file/,
      { change: (tree) => void execFileSync('mkfifo', [join(tree, 'lib/pipe')]) },
    ],
    [
      'has a path that leads out',
      /\.\./,
      {
        tarFlags: ['--transform', 's,^tree/lib/package.json,tree/../../../outside,'],
        change: () => {},
      },
    ],
  ])('refuses what %s', async (_, expected, made) => {
    const one = archive(made)
    expect(await refusal(one)).toMatch(expected)
    expect(existsSync(join(one.root, 'outside'))).toBe(false)
  })

  it('takes from files what only root may give', async () => {
    const { home, path } = archive({
      change: (tree) => chmodSync(join(tree, 'lib/dist/main.js'), 0o4777),
    })
    const before = process.umask(0o022)
    const outcome = await unpackVersion(home, path, '1.1.0').finally(() => process.umask(before))
    expect(outcome).toBe('versions/1.1.0')
  })

  it('refuses what is no archive, and what is cut', async () => {
    const one = archive()
    writeFileSync(one.path, 'no archive')
    expect(await refusal(one)).toMatch(/incorrect header|not look like/)
  })

  it('refuses what grows beyond every version while it is unpacked', async () => {
    const one = archive({
      change: (tree) => writeFileSync(join(tree, 'lib/large'), Buffer.alloc(3_000_000)),
    })
    expect(await refusal(one, 2_000_000)).toMatch(/more than 2000000 bytes/)
    expect(await unpackVersion(one.home, one.path, '1.1.0', 4_000_000)).toBe('versions/1.1.0')
  })
})
