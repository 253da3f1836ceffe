import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { describe, expect, it } from 'vitest'
import { ROOT, readManifest } from '../../packaging/project.ts'
import { TARGETS } from '../../packaging/target.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** Runs `npm run package -- OPTIONS` on a machine with these tools only. npm and tsx note that they were called. */
function runPackage(tools: readonly string[], options: readonly string[]) {
  const folder = temporaryFolder()
  mkdirSync(join(folder, 'bin'))
  const calls = join(folder, 'calls')
  for (const name of [...tools, 'npm', 'tsx']) {
    const path = join(folder, 'bin', name)
    writeFileSync(path, `#!/bin/sh\necho ${name} "$@" >>'${calls}'\n`)
    chmodSync(path, 0o755)
  }
  symlinkSync(process.execPath, join(folder, 'bin/node'))
  symlinkSync('/bin/sh', join(folder, 'bin/sh'))
  // As npm does it: the options come after the script, in quotes.
  const script = [readManifest().scripts.package, ...options.map((it) => `'${it}'`)].join(' ')
  const { status, stderr } = spawnSync('/bin/sh', ['-c', script], {
    cwd: ROOT,
    encoding: 'utf8',
    env: { PATH: join(folder, 'bin') },
  })
  return { status, stderr, calls: existsSync(calls) ? readFileSync(calls, 'utf8') : '' }
}

const STRIPS = TARGETS.map(({ triplet }) => `${triplet}-strip`)

describe('the tools of npm run package', () => {
  it('are checked before anything is installed, and one command installs the missing tools', () => {
    const [x64 = ''] = STRIPS
    const options = ['--only', 'deb', '--repository', '/srv/my apt']
    expect(runPackage(['tar', x64], options)).toEqual({
      status: 1,
      stderr:
        'Tools for these packages are missing: git, aarch64-linux-gnu-strip, dpkg-deb, gpg. ' +
        'Install them first: sudo apt-get install git binutils-aarch64-linux-gnu dpkg gnupg\n',
      calls: '',
    })
  })

  it.each<readonly [string, readonly string[], readonly string[]]>([
    ['one architecture', ['--only', 'tar', '--arch=x64'], ['git', 'tar', 'gzip', STRIPS[0] ?? '']],
    ['npm', ['--only', 'npm'], ['git']],
    [
      'packages of another machine',
      ['--from', 'a b', '--repository', 'r'],
      ['git', 'dpkg-deb', 'gpg'],
    ],
    ['a mistaken option, which the program reports', ['--only', 'rpm', '--odd'], ['git']],
  ])('are only those for %s', (_what, options, tools) => {
    const { status, calls } = runPackage(tools, options)
    const ran = `npm run --silent deps\ntsx packaging/main.ts ${options.join(' ')}\n`
    expect({ status, calls }).toEqual({ status: 0, calls: ran })
    for (const without of tools) {
      const rest = tools.filter((it) => it !== without)
      expect(runPackage(rest, options)).toMatchObject({
        status: 1,
        stderr: expect.stringContaining(`missing: ${without}.`),
        calls: '',
      })
    }
  })

  it('include apt for an image with all architectures', () => {
    const tools = ['git', 'tar', 'dpkg-deb', ...STRIPS]
    const { stderr } = runPackage(tools, ['--only', 'image'])
    const isDebian = existsSync('/usr/lib/apt/apt-helper')
    expect(stderr).toBe(
      isDebian
        ? ''
        : 'Tools for these packages are missing: /usr/lib/apt/apt-helper. Install them first: sudo apt-get install apt\n',
    )
  })

  it.each<readonly [string, readonly string[], string]>([
    [
      'for a script that starts there',
      ['--only', 'npm'],
      'Tools for these packages are missing: git.',
    ],
    [
      'after the options',
      ['--only', 'npm', '--repository', 'r'],
      '--repository takes Debian packages.',
    ],
  ])('are checked by main.ts, too, %s', (_what, options, reason) => {
    const args = [join(ROOT, 'node_modules/tsx/dist/cli.mjs'), 'packaging/main.ts', ...options]
    const env = { PATH: temporaryFolder() }
    const { status, stderr } = spawnSync(process.execPath, args, {
      cwd: ROOT,
      encoding: 'utf8',
      env,
    })
    expect([status, stderr.split('\n').length, stderr]).toEqual([
      1,
      2,
      expect.stringContaining(reason),
    ])
  })

  it('are not needed for the help', () => {
    expect(runPackage([], ['--help'])).toMatchObject({ status: 0, stderr: '' })
  })
})
