import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { put } from '../file-tree.ts'
import { gzip, sha256 } from '../image/layer.ts'
import { type Manifest, ROOT, run } from '../project.ts'
import { TARGETS } from '../target.ts'
import { KEYRING, KEYRING_PATH, keyringOf, makeKeyringDeb, signFile } from './archive-key.ts'

const SUITE = 'stable'

export interface RepositoryOptions {
  /** The repository. Versions that are in it stay. */
  readonly folder: string
  readonly debs: readonly string[]
  /** Fingerprints of the key that signs and, for a roll-over, of the next key. */
  readonly keys: readonly string[]
  /** Address of the repository for devices. */
  readonly url: string
  readonly manifest: Manifest
  readonly work: string
  /** Seconds since the epoch that packages carry. */
  readonly date: number
  /** Time of the release in ms. apt keeps an older list if it has a newer one. */
  readonly now: number
}

/** Adds packages to the repository, signs it anew, and writes the files for a first installation. */
export function publish(options: RepositoryOptions): void {
  const { folder, debs, keys, url, work, date, now } = options
  const keyring = keyringOf(keys, work)
  for (const path of [...debs, makeKeyringDeb({ ...options, keyring, output: work })]) {
    addToPool(folder, path)
  }
  signRelease(folder, { key: keys[0] ?? '', indexes: writeIndexes(folder), now })
  put(join(folder, `${KEYRING}.gpg`), keyring)
  put(join(folder, 'device-agent.sources'), sourcesText(url))
  put(join(folder, 'install.sh'), installScript({ url, keyring, date }), 0o755)
}

interface ScriptValues {
  readonly url: string
  readonly keyring: Buffer
  readonly date: number
}

/** The script for a first installation, with the address and the keys in it. */
export function installScript({ url, keyring, date }: ScriptValues): string {
  const values = { URL: url, KEYRING: keyring.toString('base64'), MADE: String(date) }
  return readFileSync(join(ROOT, 'packaging/install.sh'), 'utf8').replaceAll(
    /@(URL|KEYRING|MADE)@/g,
    (_, name: keyof typeof values) => values[name],
  )
}

/** The address as apt and the script take it, without a slash at its end. */
export function checkedUrl(url: string | undefined): string {
  if (url === undefined) {
    throw new Error('--repository needs --url: the address of the repository for devices')
  }
  // The address is quoted in a shell script and ends at a space in a list of apt.
  if (!/^(?:https?:\/\/|file:\/)[\w.~:/[\]%-]+$/.test(url)) {
    throw new Error(`${url} cannot be the address of a repository. Use https://HOST/PATH.`)
  }
  return url.replace(/\/+$/, '')
}

export function sourcesText(url: string): string {
  return `Types: deb
URIs: ${url}
Suites: ${SUITE}
Components: main
Signed-By: ${KEYRING_PATH}
`
}

/** A version is published once: devices refuse other bytes under a name that they know. */
function addToPool(folder: string, path: string): void {
  const name = basename(path)
  const pool = join(folder, 'pool')
  const published = join(pool, name)
  mkdirSync(pool, { recursive: true })
  if (!existsSync(published)) {
    copyFileSync(path, `${published}.new`)
    renameSync(`${published}.new`, published)
  } else if (!readFileSync(path).equals(readFileSync(published))) {
    throw new Error(
      `${name} is already in ${pool}, with other content. Raise the version in package.json.`,
    )
  }
}

interface Index {
  /** Below the folder of the suite. */
  readonly path: string
  readonly content: Buffer
}

/** The lists of packages, one for each architecture. Until the release is signed, only their hashes name them. */
function writeIndexes(folder: string): readonly Index[] {
  const pool = readdirSync(join(folder, 'pool')).filter((name) => name.endsWith('.deb'))
  const stanzas = pool.sort().map((name) => stanzaOf(join(folder, 'pool', name), name))
  const indexes = TARGETS.flatMap(({ debian }) => {
    const fitting = stanzas.filter(({ architecture }) => ['all', debian].includes(architecture))
    const content = Buffer.from(fitting.map(({ text }) => text).join('\n'))
    const path = `main/binary-${debian}/Packages`
    return [
      { path, content },
      { path: `${path}.gz`, content: gzip(content) },
    ]
  })
  for (const { path, content } of indexes) {
    const byHash = join(path, '../by-hash/SHA256', sha256(content))
    put(join(folder, 'dists', SUITE, byHash), content)
  }
  return indexes
}

function stanzaOf(path: string, name: string) {
  const bytes = readFileSync(path)
  const control = run('dpkg-deb', ['--field', path]).trimEnd()
  return {
    architecture: /^Architecture: (.*)$/m.exec(control)?.[1] ?? '',
    text: `${control}\nFilename: pool/${name}\nSize: ${bytes.length}\nSHA256: ${sha256(bytes)}\n`,
  }
}

/** Without an end of validity: devices with a wrong clock would refuse a good repository. */
function releaseText(indexes: readonly Index[], now: number): string {
  const sums = indexes.map(({ path, content }) => ` ${sha256(content)} ${content.length} ${path}`)
  return `Origin: device-agent
Label: device-agent
Suite: ${SUITE}
Codename: ${SUITE}
Date: ${new Date(now).toUTCString().replace('GMT', 'UTC')}
Architectures: ${TARGETS.map(({ debian }) => debian).join(' ')}
Components: main
Acquire-By-Hash: yes
SHA256:
${sums.join('\n')}
`
}

function signRelease(
  folder: string,
  { key, indexes, now }: { key: string; indexes: readonly Index[]; now: number },
): void {
  const suite = join(folder, 'dists', SUITE)
  const [release, inline, detached] = ['Release', 'InRelease', 'Release.gpg'].map((name) =>
    join(suite, name),
  ) as [string, string, string]
  const before = existsSync(release) ? readFileSync(release, 'utf8') : ''
  const text = releaseText(indexes, now)
  if (dateOf(before) > dateOf(text)) {
    throw new Error(`${release} is from the future. Correct the clock of this machine.`)
  }
  writeFileSync(`${release}.new`, text)
  signFile('clearsign', { key, path: `${release}.new`, output: `${inline}.new` })
  signFile('detach-sign', { key, path: `${release}.new`, output: `${detached}.new` })
  for (const { path, content } of indexes) put(join(suite, path), content)
  for (const path of [release, detached, inline]) renameSync(`${path}.new`, path)
  removeOldIndexes(suite, `${before}${text}`)
}

const dateOf = (release: string) => Date.parse(/^Date: (.*)$/m.exec(release)?.[1] ?? '') || 0

/** Keeps the lists of this release and of the one before: devices may be reading them. */
function removeOldIndexes(suite: string, releases: string): void {
  for (const { debian } of TARGETS) {
    const folder = join(suite, `main/binary-${debian}/by-hash/SHA256`)
    for (const hash of readdirSync(folder)) {
      if (!releases.includes(` ${hash} `)) rmSync(join(folder, hash))
    }
  }
}
