import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import process from 'node:process'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { checkedKeys, keyringOf, makeKeyringDeb } from '../../packaging/apt/archive-key.ts'
import { checkedUrl, publish } from '../../packaging/apt/repository.ts'
import { put } from '../../packaging/file-tree.ts'
import { ROOT, readManifest, run } from '../../packaging/project.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const has = (tool: string) => spawnSync(tool, ['--version']).status === 0
const hasTools = ['gpg', 'dpkg-deb', 'apt-get'].every(has)
const NOON = Date.parse('2026-03-01T12:00:00Z')
const POOL_FILE = 'pool/device-agent_1.0.0_amd64.deb'
const SUITE = 'dists/stable'

/** This key, the next key, a foreign key, a key that has expired, and a key that will. */
const keys: string[] = []
let gpgHome: string

/** A package that is small; its content is of no interest here. */
function smallDeb(version: string, debian = 'amd64', content = version): string {
  const folder = temporaryFolder()
  put(join(folder, 'tree/usr/share/device-agent/text'), content)
  put(
    join(folder, 'tree/DEBIAN/control'),
    `Package: device-agent\nVersion: ${version}\nArchitecture: ${debian}\nMaintainer: A <a@example.com>\nDescription: trial\n`,
  )
  const path = join(folder, `device-agent_${version}_${debian}.deb`)
  run('dpkg-deb', ['-Znone', '--root-owner-group', '--build', join(folder, 'tree'), path], {
    env: { SOURCE_DATE_EPOCH: String(NOON / 1_000) },
  })
  return path
}

interface Publication {
  readonly folder?: string
  readonly debs?: readonly string[]
  readonly by?: readonly string[]
  readonly version?: string
  readonly now?: number
}

function published(options: Publication = {}): string {
  const {
    folder = temporaryFolder(),
    version = '1.0.0',
    by = keys.slice(0, 1),
    now = NOON,
  } = options
  const manifest = { ...readManifest(), version }
  const debs = options.debs ?? [smallDeb(version)]
  const url = 'https://packages.example.com'
  publish({
    folder,
    debs,
    keys: by,
    url,
    manifest,
    work: temporaryFolder(),
    date: NOON / 1_000,
    now,
  })
  return folder
}

/** Serves a repository; `asked` are the paths of all requests. */
async function served(folder: string) {
  const asked: string[] = []
  const server = createServer(({ url = '' }, response) => {
    asked.push(url)
    try {
      response.end(readFileSync(join(folder, url)))
    } catch {
      response.writeHead(404).end()
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close().closeAllConnections())
  const { port } = server.address() as AddressInfo
  return { asked, url: `http://127.0.0.1:${port}` }
}

/** apt of a device that trusts the keys of a repository. */
function deviceOf(keyringFolder: string, url: string) {
  const folder = temporaryFolder()
  for (const name of ['state/lists/partial', 'cache/archives/partial']) {
    mkdirSync(join(folder, name), { recursive: true })
  }
  const keyring = join(folder, 'keyring.gpg')
  const trust = (from: string) => cpSync(join(from, 'device-agent-archive-keyring.gpg'), keyring)
  trust(keyringFolder)
  const sources = readFileSync(join(keyringFolder, 'device-agent.sources'), 'utf8')
  writeFileSync(
    join(folder, 'device-agent.sources'),
    sources
      .replace(/^URIs:.*$/m, `URIs: ${url}`)
      .replace(/^Signed-By:.*$/m, `Signed-By: ${keyring}`),
  )
  const settings = {
    'APT::Architecture': 'amd64',
    'APT::Architectures': 'amd64',
    'APT::Sandbox::User': '',
    'APT::Update::Error-Mode': 'any',
    'Acquire::Languages': 'none',
    'Acquire::http::Proxy': 'DIRECT',
    'Dir::Etc::sourcelist': join(folder, 'device-agent.sources'),
    'Dir::Etc::sourceparts': '/dev/null',
    'Dir::State': join(folder, 'state'),
    'Dir::State::status': '/dev/null',
    'Dir::Cache': join(folder, 'cache'),
  }
  const apt = (tool: string, ...args: string[]) => {
    const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])
    return aptRun(tool, [...options, ...args], folder)
  }
  return {
    trust,
    update: () => apt('apt-get', 'update'),
    versions: async () =>
      [...(await apt('apt-cache', 'madison', 'device-agent')).text.matchAll(/\| +(\S+) \|/g)].map(
        ([, version]) => version,
      ),
    download: (version: string) => apt('apt-get', 'download', `device-agent=${version}`),
  }
}

/** Beside this process, which serves the repository. */
async function aptRun(tool: string, args: readonly string[], cwd: string) {
  const child = spawn(tool, args, { cwd, env: { ...process.env, LC_ALL: 'C' } })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part) => (text += part))
  const [code] = await once(child, 'close')
  return { code, text }
}

describe.runIf(hasTools)('the apt repository', { timeout: 120_000 }, () => {
  beforeAll(() => {
    gpgHome = run('mktemp', ['-d']).trim()
    vi.stubEnv('GNUPGHOME', gpgHome)
    for (const name of ['this', 'next', 'other', 'ended', 'ending']) {
      const life = name.startsWith('end') ? '1y' : 'never'
      const made = [
        '--quick-generate-key',
        `${name} <${name}@example.com>`,
        'ed25519',
        'sign',
        life,
      ]
      const then = name === 'ended' ? ['--faked-system-time', '20200101T000000'] : []
      run('gpg', ['--batch', '--passphrase', '', ...then, ...made])
      const listed = run('gpg', ['--with-colons', '--list-keys', `${name}@example.com`])
      keys.push(/^fpr:+([\dA-F]{40}):/m.exec(listed)?.[1] ?? '')
    }
    return () => vi.unstubAllEnvs()
  })
  afterAll(() => {
    run('gpgconf', ['--homedir', gpgHome, '--kill', 'all'])
    rmSync(gpgHome, { recursive: true, force: true })
  })

  it('offers all versions that it has had, in lists by hash', async () => {
    const folder = published()
    published({ folder, version: '1.1.0', now: NOON + 1_000 })
    const { asked, url } = await served(folder)
    const device = deviceOf(folder, url)
    expect(await device.update()).toMatchObject({ code: 0 })
    expect(await device.versions()).toEqual(['1.1.0', '1.0.0'])
    expect(await device.download('1.0.0')).toMatchObject({ code: 0 })
    const lists = asked.filter((path) => path.includes('/binary-'))
    expect(lists).not.toEqual([])
    for (const path of lists) expect(path).toContain('/by-hash/SHA256/')
  })

  it('lists for each machine its packages and the keyring', () => {
    const folder = published({ debs: [smallDeb('1.0.0'), smallDeb('1.0.0', 'arm64')] })
    for (const debian of ['amd64', 'arm64']) {
      const list = readFileSync(join(folder, SUITE, `main/binary-${debian}/Packages`), 'utf8')
      expect(list.match(/^Filename: .*$/gm)).toEqual([
        'Filename: pool/device-agent-archive-keyring_1.0.0_all.deb',
        `Filename: pool/device-agent_1.0.0_${debian}.deb`,
      ])
    }
  })

  it('stays valid, whatever the clock of a device says later', () => {
    const release = readFileSync(join(published(), SUITE, 'Release'), 'utf8')
    expect(release).toContain('\nDate: Sun, 01 Mar 2026 12:00:00 UTC\n')
    expect(release).not.toContain('Valid-Until')
  })

  it('keeps the lists that devices are reading, and no older ones', () => {
    const folder = published()
    const lists = join(folder, SUITE, 'main/binary-amd64/by-hash/SHA256')
    const first = readdirSync(lists)
    published({ folder, version: '1.1.0' })
    expect(readdirSync(lists)).toEqual(expect.arrayContaining(first))
    published({ folder, version: '1.2.0' })
    expect(readdirSync(lists)).toHaveLength(4)
    for (const name of first) expect(readdirSync(lists)).not.toContain(name)
  })

  it('refuses other bytes under a version that was published', () => {
    const folder = published()
    const before = readFileSync(join(folder, POOL_FILE))
    const debs = [smallDeb('1.0.0', 'amd64', 'something else')]
    expect(() => published({ folder, debs })).toThrow(/with other content. Raise the version/)
    expect(readFileSync(join(folder, POOL_FILE)).equals(before)).toBe(true)
  })

  it('refuses a release that is older than the last release', () => {
    const folder = published()
    expect(() => published({ folder, now: NOON - 1_000 })).toThrow(/Correct the clock/)
  })

  it.each([
    [
      'signed with another key',
      (folder: string) => {
        rmSync(join(folder, 'pool'), { recursive: true })
        published({ folder, by: keys.slice(2, 3) })
      },
    ],
    [
      'without a signature',
      (folder: string) => {
        for (const name of ['InRelease', 'Release.gpg']) rmSync(join(folder, SUITE, name))
      },
    ],
    [
      'with an unsigned InRelease',
      (folder: string) => {
        cpSync(join(folder, SUITE, 'Release'), join(folder, SUITE, 'InRelease'))
      },
    ],
    [
      'with a changed release',
      (folder: string) => {
        for (const name of ['InRelease', 'Release'])
          change(join(folder, SUITE, name), 'Label: device', 'Label: devour')
      },
    ],
    [
      'with a changed list',
      (folder: string) => {
        const lists = join(folder, SUITE, 'main/binary-amd64')
        for (const path of filesOf(lists)) writeFileSync(path, 'Package: evil\n')
      },
    ],
  ])('is refused by apt %s', async (_, forge) => {
    const folder = published()
    const right = deviceOf(folder, (await served(folder)).url)
    const forged = temporaryFolder()
    cpSync(folder, forged, { recursive: true })
    forge(forged)
    const device = deviceOf(folder, (await served(forged)).url)
    expect(await right.update()).toMatchObject({ code: 0 })
    expect(await device.update()).toMatchObject({ code: 100 })
    expect(await device.versions()).toEqual([])
  })

  it('does not lead a device back to lists that were published before', async () => {
    const folder = published()
    const { url } = await served(folder)
    const [device, newcomer] = [deviceOf(folder, url), deviceOf(folder, url)]
    const older = temporaryFolder()
    cpSync(folder, older, { recursive: true })
    published({ folder, version: '1.1.0', now: NOON + 1_000 })
    await device.update()
    cpSync(join(older, 'dists'), join(folder, 'dists'), { recursive: true })
    expect(await device.update()).toMatchObject({ code: 0 })
    expect(await device.versions()).toEqual(['1.1.0', '1.0.0'])
    await newcomer.update()
    expect(await newcomer.versions()).toEqual(['1.0.0'])
  })

  it('has a package that was changed refused by apt', async () => {
    const folder = published()
    const { url } = await served(folder)
    const device = deviceOf(folder, url)
    await device.update()
    // The same size: only the hash tells.
    change(join(folder, POOL_FILE), 'Maintainer: A', 'Maintainer: B')
    const { code, text } = await device.download('1.0.0')
    expect(code).toBe(100)
    expect(text).toContain('Hash Sum mismatch')
  })

  it('changes its key without a gap for devices that have the keyring package', async () => {
    const [now = '', next = '', later = ''] = keys
    const folder = published({ by: [now, next] })
    const { url } = await served(folder)
    const [late, device] = [deviceOf(published({ by: [now] }), url), deviceOf(folder, url)]
    expect(await late.update()).toMatchObject({ code: 0 })
    expect(await device.update()).toMatchObject({ code: 0 })
    published({ folder, version: '1.1.0', by: [next, later], now: NOON + 1_000 })
    expect(await device.update()).toMatchObject({ code: 0 })
    expect(await device.versions()).toContain('1.1.0')
    // This device has missed the next key: it needs the new keyring once.
    expect(await late.update()).toMatchObject({ code: 100 })
    late.trust(folder)
    expect(await late.update()).toMatchObject({ code: 0 })
  })

  it('has a keyring package with the same bytes twice, which holds both keys', () => {
    const [by, work] = [keys.slice(0, 2), temporaryFolder()]
    const debs = ['first', 'second'].map((name) => {
      const output = join(work, name)
      mkdirSync(output)
      const keyring = keyringOf(by, output)
      const date = NOON / 1_000
      return makeKeyringDeb({ manifest: readManifest(), keyring, work: output, output, date })
    })
    const [first, second] = debs.map((path) => readFileSync(path))
    expect(first?.equals(second ?? Buffer.of())).toBe(true)
    run('dpkg-deb', ['--extract', debs[0] ?? '', join(work, 'tree')])
    const file = join(work, 'tree/usr/share/keyrings/device-agent-archive-keyring.gpg')
    const listed = run('gpg', ['--with-colons', '--show-keys', file])
    expect([...listed.matchAll(/^fpr:+([\dA-F]{40}):/gm)].map(([, key]) => key)).toEqual(by)
    expect(run('gpg', ['--list-packets', file])).not.toContain('secret key packet')
  })

  it('is made with keys that gpg has, by their whole fingerprints', () => {
    const [key = '', next = ''] = keys
    expect(checkedKeys([key.toLowerCase(), next])).toEqual([key, next])
    expect(() => checkedKeys([])).toThrow(/--archive-key FINGERPRINT\. Make a key: gpg --quick-g/)
    expect(() => checkedKeys([key.slice(-16)])).toThrow(/not a fingerprint of 40 digits/)
    expect(() => checkedKeys(['this@example.com'])).toThrow(/not a fingerprint of 40 digits/)
    expect(() => checkedKeys([key, key])).toThrow(/the same key/)
    expect(() => checkedKeys([key, next, key])).toThrow(/once or twice/)
    expect(() => checkedKeys(['0'.repeat(40)])).toThrow(/gpg has no key 0{40}\. Import it/)
  })

  it('signs with no key of which only the public half is here, or that has ended', () => {
    const [key = '', , , ended = ''] = keys
    const publicHalf = run('gpg', ['--armor', '--export', key])
    const home = temporaryFolder()
    run('chmod', ['700', home])
    put(join(home, 'key.asc'), publicHalf)
    vi.stubEnv('GNUPGHOME', home)
    onTestFinished(() => {
      run('gpgconf', ['--homedir', home, '--kill', 'all'])
      vi.stubEnv('GNUPGHOME', gpgHome)
    })
    run('gpg', ['--batch', '--import', join(home, 'key.asc')])
    expect(() => checkedKeys([key])).toThrow(/gpg has no secret key/)
    expect(() => checkedKeys([key, ended])).toThrow(/gpg has no key/)
    vi.stubEnv('GNUPGHOME', gpgHome)
    expect(() => checkedKeys([key, ended])).toThrow(/has expired\. Use another key/)
  })

  it('refuses keys that will end: devices would refuse the repository from then on', () => {
    const [key = '', , , , ending = ''] = keys
    const sentence = `The key ${ending} has an end. Use: gpg --quick-set-expire ${ending} never`
    expect(() => checkedKeys([ending])).toThrow(sentence)
    expect(() => checkedKeys([key, ending])).toThrow(sentence)
    // What the sentence says helps.
    run('gpg', ['--batch', '--quick-set-expire', ending, 'never'])
    expect(checkedKeys([ending])).toEqual([ending])
  })
})

describe('the address of the repository', () => {
  it('is an address that a shell and apt can read', () => {
    expect(checkedUrl('https://packages.example.com/apt/')).toBe('https://packages.example.com/apt')
    expect(checkedUrl('file:/srv/apt')).toBe('file:/srv/apt')
    expect(() => checkedUrl(undefined)).toThrow(/needs --url/)
    const bad = [
      "https://x/'$(id)'",
      'https://x/a b',
      'packages.example.com',
      'ftp://x',
      'https://x\ny',
    ]
    for (const url of bad) expect(() => checkedUrl(url)).toThrow(/Use https:\/\/HOST\/PATH/)
  })

  it('and the key are asked for before anything is built', () => {
    const args = ['packaging/main.ts', '--repository', join(temporaryFolder(), 'apt')]
    const tsx = join(ROOT, 'node_modules/.bin/tsx')
    const { status, stderr } = spawnSync(tsx, args, { cwd: ROOT, encoding: 'utf8' })
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/^--repository needs --archive-key FINGERPRINT\. .+\n$/),
    ])
  })
})

function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
}

function change(path: string, from: string, to: string): void {
  const text = readFileSync(path, 'latin1')
  expect(text).toContain(from)
  writeFileSync(path, text.replace(from, to), 'latin1')
}
