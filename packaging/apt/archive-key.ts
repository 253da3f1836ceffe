import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { changelogText, MAINTAINER, packDeb } from '../deb.ts'
import { put } from '../file-tree.ts'
import { type Manifest, ROOT, run } from '../project.ts'

/** Name of the package with the public keys, and of its file. */
export const KEYRING = 'device-agent-archive-keyring'
/** Path of the public keys on a device. */
export const KEYRING_PATH = `/usr/share/keyrings/${KEYRING}.gpg`

const MAKE_A_KEY =
  "Make a key: gpg --quick-generate-key 'device-agent packages <packages@example.com>' ed25519 sign never"

/** Checks that gpg has the keys, before anything is built. The first key signs, the second is the next key. */
export function checkedKeys(keys: readonly string[]): readonly string[] {
  if (keys.length === 0) {
    throw new Error(`--repository needs --archive-key FINGERPRINT. ${MAKE_A_KEY}`)
  }
  if (keys.length > 2)
    throw new Error('Give --archive-key once or twice: this key and the next key.')
  const named = keys.map((key) => key.replaceAll(' ', '').toUpperCase())
  const short = named.find((key) => !/^[\dA-F]{40}$/.test(key))
  // Other keys can have the same name or the same short id.
  if (short !== undefined) {
    throw new Error(`${short} is not a fingerprint of 40 digits. See gpg --list-secret-keys.`)
  }
  if (new Set(named).size < named.length) throw new Error('Both --archive-key are the same key.')
  named.forEach(checkUsable)
  const [signing = ''] = named
  gpg(['--list-secret-keys', signing], `gpg has no secret key ${signing}. ${MAKE_A_KEY}`)
  return named
}

function checkUsable(key: string): void {
  const missing = `gpg has no key ${key}. Import it: gpg --import FILE`
  const listed = gpg(['--with-colons', '--list-keys', key], missing)
  // Validity is field 2 of the line, the end is field 7.
  const [, validity = '', , , , , end = ''] = /^pub:.*/m.exec(listed)?.[0].split(':') ?? []
  const faults = new Map([
    ['e', 'has expired'],
    ['r', 'was revoked'],
    ['d', 'is disabled'],
    ['i', 'is invalid'],
  ])
  const fault = faults.get(validity)
  if (fault !== undefined) throw new Error(`The key ${key} ${fault}. Use another key.`)
  // Later, every device would refuse the repository and its next key.
  if (end !== '')
    throw new Error(`The key ${key} has an end. Use: gpg --quick-set-expire ${key} never`)
}

function gpg(args: readonly string[], failure: string): string {
  try {
    return run('gpg', ['--batch', '--yes', ...args])
  } catch (error) {
    const { code, stderr } = error as NodeJS.ErrnoException & { stderr?: string }
    if (code === 'ENOENT') throw new Error('gpg is missing: apt-get install gnupg')
    throw new Error(`${failure}\n${stderr ?? ''}`.trimEnd())
  }
}

/** Public keys as apt reads them: the same bytes for the same keys. */
export function keyringOf(keys: readonly string[], work: string): Buffer {
  return Buffer.concat(
    keys.map((key) => {
      const path = join(work, `${key}.gpg`)
      const options = ['--export-options', 'export-minimal', '--output', path]
      gpg([...options, '--export', key], `gpg cannot export the key ${key}.`)
      return readFileSync(path)
    }),
  )
}

/** Signs a file, inside another file or detached. */
export function signFile(
  form: 'clearsign' | 'detach-sign',
  { key, path, output }: { readonly key: string; readonly path: string; readonly output: string },
): void {
  const options = ['--local-user', `${key}!`, '--digest-algo', 'SHA512', '--armor']
  gpg([...options, '--output', output, `--${form}`, path], `gpg cannot sign with the key ${key}.`)
}

interface KeyringOptions {
  readonly manifest: Manifest
  readonly keyring: Buffer
  readonly work: string
  readonly output: string
  /** Seconds since the epoch. */
  readonly date: number
}

/** The package that brings the keys to devices, with the version of the program; returns its path. */
export function makeKeyringDeb({ manifest, keyring, work, output, date }: KeyringOptions): string {
  const root = join(work, KEYRING)
  const docs = join(root, 'usr/share/doc', KEYRING)
  put(join(root, KEYRING_PATH), keyring)
  put(join(docs, 'copyright'), copyrightText())
  put(
    join(docs, 'changelog.gz'),
    gzipSync(changelogText(KEYRING, { manifest, date }), { level: 9 }),
  )
  const control = `Package: ${KEYRING}
Version: ${manifest.version}
Architecture: all
Maintainer: ${MAINTAINER}
Section: misc
Priority: optional
Description: public keys of the device-agent package repository
 apt checks packages of device-agent with these keys. Before the key of the
 repository changes, an update of this package brings the next key.
`
  const path = join(output, `${KEYRING}_${manifest.version}_all.deb`)
  return packDeb({ root, path, control, date })
}

/** Without the comment on bundled software: this package has none. */
function copyrightText(): string {
  const text = readFileSync(join(ROOT, 'packaging/debian/copyright'), 'utf8')
  return text.replace(/^Comment:.*\n(?: .*\n)*/m, '')
}
