import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { installScript } from '../../packaging/apt/repository.ts'
import { put } from '../../packaging/file-tree.ts'
import { ROOT } from '../../packaging/project.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const URL = 'https://packages.example.com'
const PARTS = { url: URL, keyring: Buffer.from('key'), date: 1_767_225_600 }
const SCRIPT = installScript(PARTS)
const hasShellcheck = spawnSync('shellcheck', ['--version']).status === 0

/** What the tools of a system answer; a tool without an answer is missing. */
interface System {
  readonly uname?: string
  readonly machine?: string
  readonly dpkg?: string
  readonly bits?: string
  readonly glibc?: string
  readonly hasApt?: boolean
}

let bin: string
let called: string

/** Programs of that system: those that only compute are the real ones. Each call of another one is noted. */
function fill({
  uname = 'Linux',
  machine = 'x86_64',
  bits = '64',
  glibc = '2.36',
  ...system
}: System) {
  const { dpkg = 'amd64', hasApt = true } = system
  const answers: Record<string, string> = {
    uname: `case $1 in -m) echo ${machine} ;; *) echo ${uname} ;; esac`,
    getconf: `case $1 in LONG_BIT) echo ${bits} ;; *) ${glibc ? `echo glibc ${glibc}` : 'exit 1'} ;; esac`,
    ...(dpkg && { dpkg: `echo ${dpkg}` }),
    ...(hasApt && { 'apt-get': 'exit 1', sudo: 'exit 1', install: 'exit 1' }),
  }
  for (const [name, text] of Object.entries(answers)) {
    put(join(bin, name), `#!/bin/sh\necho "${name} $*" >>${called}\n${text}\n`, 0o755)
  }
  for (const name of ['sh', 'cat', 'cut', 'date', 'head', 'id', 'setsid', 'sort']) link(name)
}

/** The real program of this machine. */
function link(name: string): void {
  const found = spawnSync('sh', ['-c', 'command -v "$1"', 'sh', name], { encoding: 'utf8' })
  symlinkSync(found.stdout.trim(), join(bin, name))
}

function install(args: readonly string[], script = SCRIPT) {
  const options = { input: script, encoding: 'utf8', env: { PATH: bin, LC_ALL: 'C' } } as const
  const { status, stdout, stderr } = spawnSync('/bin/sh', ['-s', '--', ...args], options)
  return { status, stdout, stderr }
}

const changes = () =>
  existsSync(called)
    ? (readFileSync(called, 'utf8').match(/^(?:apt-get|sudo|install) .*$/gm) ?? [])
    : []

describe('the install script', () => {
  beforeEach(() => {
    const folder = temporaryFolder()
    bin = join(folder, 'bin')
    called = join(folder, 'called')
    mkdirSync(bin)
  })

  it.each([
    [{}, 'amd64'],
    [{ machine: 'aarch64', dpkg: 'arm64' }, 'arm64'],
    [{ glibc: '2.34' }, 'amd64'],
  ])('says for %j what it would do, and does nothing of it', (system, arch) => {
    fill(system)
    const { status, stdout } = install(['--dry-run', '--join', '--version', '1.2.0'])
    expect(status).toBe(0)
    expect(stdout).toContain(`add the repository ${URL} `)
    expect(stdout).toContain(`install device-agent 1.2.0 (${arch})`)
    expect(stdout).toContain('run device-agent join')
    expect(changes()).toEqual([])
  })

  it.each<[string, System, RegExp]>([
    ['another system', { uname: 'Darwin' }, /Darwin is not supported\. Use Linux/],
    ['a 32-bit machine', { machine: 'armv7l' }, /no package for armv7l\. Install a 64-bit system/],
    ['an unknown machine', { machine: 'riscv64' }, /no package for riscv64\. Use a machine with/],
    [
      'a 32-bit system on a 64-bit kernel',
      { machine: 'aarch64', dpkg: 'armhf' },
      /kernel is arm64, but the programs of this system are armhf\. Install a 64-bit system/,
    ],
    [
      'the same without dpkg',
      { machine: 'aarch64', dpkg: '', bits: '32' },
      /kernel is arm64, but the programs of this system are 32-bit\. Install/,
    ],
    ['musl', { glibc: '' }, /no glibc \(musl, as Alpine\)\. Use the container image/],
    ['an old glibc', { glibc: '2.31' }, /glibc 2\.31 is too old: 2\.34 is needed\. Upgrade/],
    ['a very old glibc', { glibc: '2.4' }, /glibc 2\.4 is too old/],
    [
      'a system without apt',
      { dpkg: '', hasApt: false },
      /has no apt\. Use the archive for linux-amd64/,
    ],
  ])('refuses %s in a sentence, with what to do', (_, system, sentence) => {
    fill(system)
    const { status, stdout, stderr } = install([])
    expect([status, stdout]).toEqual([1, ''])
    expect(stderr).toMatch(sentence)
    expect(stderr.trim().split('\n')).toHaveLength(1)
    expect(changes()).toEqual([])
  })

  it('refuses a clock that is behind the script: apt would refuse each list', () => {
    fill({})
    const later = installScript({ ...PARTS, date: 4_102_444_800 })
    expect(install([], later)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/the clock is wrong: it says \d{4}-\d\d-\d\d\. Set it with/),
    })
    expect(changes()).toEqual([])
  })

  it('refuses to run as it is in the sources, without an address', () => {
    fill({})
    const source = readFileSync(join(ROOT, 'packaging/install.sh'), 'utf8')
    expect(install([], source)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('npm run package -- --repository makes it'),
    })
    expect(changes()).toEqual([])
  })

  it.each([
    [['--dryrun'], /unknown option --dryrun/],
    [['--version'], /--version needs a version/],
    [['--version', '1 -o X'], /is not a version/],
  ])('refuses the options %j', (args, sentence) => {
    fill({})
    expect(install(args)).toMatchObject({ status: 1, stderr: expect.stringMatching(sentence) })
    expect(changes()).toEqual([])
  })

  it('runs nothing of a download that was cut off, wherever', () => {
    fill({})
    const ends = [...SCRIPT.matchAll(/\n/g)].map(({ index }) => index)
    const start = SCRIPT.lastIndexOf('\n{ main')
    const last = SCRIPT.length - 2
    for (let end = start; end < last; end++) ends.push(end)
    for (const end of ends.filter((it) => it <= last)) {
      expect([end, install([], SCRIPT.slice(0, end)).stdout]).toEqual([end, ''])
      expect([end, existsSync(called)]).toEqual([end, false])
    }
    // As a whole it would have called them.
    install([])
    expect(existsSync(called)).toBe(true)
  })

  it('asks for a join string before it changes anything', () => {
    fill({})
    const file = join(bin, '../install.sh')
    writeFileSync(file, SCRIPT)
    const options = { input: '', encoding: 'utf8', env: { PATH: bin } } as const
    // Without a terminal.
    const { status, stderr } = spawnSync(
      join(bin, 'setsid'),
      ['--wait', 'sh', file, '--join'],
      options,
    )
    expect([status, stderr]).toEqual([1, expect.stringContaining('no join string on stdin')])
    expect(changes()).toEqual([])
  })

  /**
   * Runs the script on a system whose programs only note their calls. `keys`: whether apt reads the
   * repository with the keys that are installed; null without such keys. `running`: the version that runs.
   */
  function installNoted({ keys = null as boolean | null, running = '1.0.0' } = {}) {
    fill({})
    const folder = join(bin, '..')
    const given = join(folder, 'given')
    const work = `"\${part%/*}"`
    const trial = `cat "$part"; stat --format "mode %a" ${work} ${work}/keys.gpg`
    const tries = `case $part in */trial.sources) ${trial} ;; */device-agent.sources) ${keys === false ? 'exit 1' : ':'} ;; esac`
    const answers = {
      'apt-get': `for part; do case $part in Dir::Etc::sourcelist=${folder}/etc/*) ;; Dir::Etc::sourcelist=*) part=\${part#*=}; ${tries} ;; esac; done >>"$CALLED"`,
      install: ':',
      sudo: 'exec "$@"',
      'device-agent': `case $1 in join) cat >${given} ;; *) echo ${running} ;; esac`,
    }
    for (const [name, text] of Object.entries(answers)) {
      put(join(bin, name), `#!/bin/sh\necho "${name} $*" >>"$CALLED"\n${text}\n`, 0o755)
    }
    for (const name of ['base64', 'chmod', 'env', 'mktemp', 'rm', 'stat', 'tr']) link(name)
    if (keys !== null)
      put(join(folder, 'usr/share/keyrings/device-agent-archive-keyring.gpg'), 'installed')
    const file = join(folder, 'install.sh')
    const script = SCRIPT.replace('sources=/', `sources=${folder}/`)
    writeFileSync(file, script.replace('keys=/', `keys=${folder}/`))
    // A user that lets no other user read its new files, or look into its TMPDIR.
    const args = ['-c', 'umask 077; exec sh "$0" "$@"', file, '--join', '--version', '1.0.0']
    const env = { PATH: bin, CALLED: called, TMPDIR: folder }
    const options = { input: 'dajoin1_secret@gateway:443', encoding: 'utf8', env } as const
    const { status, stderr } = spawnSync('/bin/sh', args, options)
    const calls = readFileSync(called, 'utf8')
    return { status, stderr, calls, given }
  }

  it('trusts a repository before it adds it, then gives the join string to the program by stdin', () => {
    const { status, stderr, calls, given } = installNoted()
    expect([status, stderr]).toEqual([0, ''])
    expect(readFileSync(given, 'utf8')).toBe('dajoin1_secret@gateway:443\n')
    expect(calls).not.toContain('secret')
    expect(calls).toMatch(
      /^URIs: https:\/\/packages\.example\.com\n.*\n.*\n.*\nSigned-By: \/tmp\/device-agent\.\w+\/keys\.gpg$/m,
    )
    // The user of apt can read them.
    expect(calls.match(/^mode .*$/gm)).toEqual(['mode 755', 'mode 644'])
    const steps = [
      ...calls.matchAll(/^(?:apt-get (?:.* )?(update|install) |(install|device-agent) )/gm),
    ]
    expect(steps.map(([, apt, own]) => apt ?? own)).toEqual([
      ...['update', 'install', 'install', 'update'],
      ...['install', 'install', 'device-agent', 'device-agent'],
    ])
    expect(calls).toMatch(
      /^apt-get .*--allow-downgrades .*--force-confold install device-agent=1\.0\.0$/m,
    )
  })

  it('brings no key of its own back while the installed keys read the repository', () => {
    const writesKeys = /^install .*keyring\.gpg$/m
    const fitting = installNoted({ keys: true })
    expect([fitting.status, writesKeys.test(fitting.calls)]).toEqual([0, false])
    // Before the program, which may be held.
    const packages = [...fitting.calls.matchAll(/^apt-get .* install (\S+)$/gm)]
    expect(packages.map(([, name]) => name)).toEqual([
      'device-agent-archive-keyring',
      'device-agent=1.0.0',
    ])
  })

  it('replaces installed keys that do not read the repository', () => {
    const { status, calls } = installNoted({ keys: false })
    expect([status, /^install .*keyring\.gpg$/m.test(calls)]).toEqual([0, true])
  })

  it('says so if another version runs than was asked for', () => {
    const { status, stderr, calls } = installNoted({ running: '1.1.0' })
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(
        /but 1\.1\.0 from device-agent update runs\. .*sudo rm \/opt\/device-agent\/current/,
      ),
    ])
    expect(calls).not.toContain('device-agent join')
  })

  it('has its address and keys in it', () => {
    expect(SCRIPT).toContain(`url='${URL}' keyring='a2V5' made='1767225600'`)
    expect(SCRIPT).not.toMatch(/@[A-Z]+@/)
  })
})

describe.runIf(hasShellcheck)('the shell scripts of packages', () => {
  const scripts = [
    'install.sh',
    'test.sh',
    'bare-root/run.sh',
    'bare-root/inside.sh',
    'bare-root/inside-apt.sh',
  ]
  const debian = ['postinst', 'postrm', 'prerm', 'settle-update'].map((name) => `debian/${name}`)

  it.each([...scripts, ...debian])('%s has no faults that shellcheck knows', (name) => {
    const args = ['--severity', 'warning', join(ROOT, 'packaging', name)]
    expect(spawnSync('shellcheck', args, { encoding: 'utf8' }).stdout).toBe('')
  })
})
