import { execFileSync } from 'node:child_process'
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { publicKeyOf, readSigningKey, signArchive } from '../../../packaging/signing.ts'
import { openIncoming } from '../../../src/cli/update/install.ts'
import {
  chooseArchive,
  compareVersions,
  readStatement,
  readUpdateKeys,
  requireFitting,
  requireStated,
} from '../../../src/cli/update/signed-archive.ts'
import { UpdateHome } from '../../../src/cli/update/update-home.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const HERE = { version: '1.0.0', arch: 'x64' }

function signed({ version = '1.1.0', arch = 'x64' } = {}) {
  const folder = temporaryFolder()
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const archive = join(folder, `device-agent-${version}-linux-${arch}.tar.gz`)
  writeFileSync(archive, 'content')
  signArchive(archive, { name: 'device-agent', version, arch }, privateKey)
  return { folder, archive, keys: [publicKey] as KeyObject[], privateKey }
}

describe('a signed archive', () => {
  it('is taken when a known key has signed it', async () => {
    const { archive, keys } = signed()
    const statement = readStatement(archive, keys)
    expect(statement).toMatchObject({ version: '1.1.0', arch: 'x64' })
    requireFitting(statement, HERE)
    await requireStated(archive, statement, archive)
  })

  it('is refused when another key has signed it', () => {
    const { archive } = signed()
    expect(() => readStatement(archive, signed().keys)).toThrow(/not signed with a trusted key/)
  })

  it('is refused when no key is known, and when there is no signature', () => {
    const { folder, archive } = signed()
    expect(() => readStatement(archive, [])).toThrow(/trusts no key for updates/)
    expect(() => readStatement(join(folder, 'other.tar.gz'), [])).toThrow(/is not signed/)
  })

  it.each([
    ['says another version', (text: string) => text.replace('1.1.0', '1.2.0')],
    ['is for another machine', (text: string) => text.replace('x64', 'arm64')],
    ['is cut', (text: string) => text.slice(0, -20)],
    ['is empty', () => ''],
    ['is very long', (text: string) => text + ' '.repeat(5_000)],
  ])('is refused when what is stated %s', (_, change) => {
    const { archive, keys } = signed()
    writeFileSync(`${archive}.sig`, change(readFileSync(`${archive}.sig`, 'utf8')))
    expect(() => readStatement(archive, keys)).toThrow(/not signed with a trusted key/)
  })

  it('is refused when a byte is missing or added', async () => {
    const { archive, keys } = signed()
    const statement = readStatement(archive, keys)
    writeFileSync(archive, 'conten')
    await expect(requireStated(archive, statement, 'mine')).rejects.toThrow(
      /^mine .*damaged or incomplete/,
    )
    appendFileSync(archive, 't!')
    await expect(requireStated(archive, statement, 'mine')).rejects.toThrow(
      /^mine .*damaged or incomplete/,
    )
  })

  it.each([
    [{ version: '1.0.0' }, /is already running/],
    [{ version: '0.9.9' }, /older than the running version 1\.0\.0/],
    [{ arch: 'arm64' }, /is for arm64/],
  ])('is refused as %j', async (what, expected) => {
    const { archive, keys } = signed(what)
    const statement = readStatement(archive, keys)
    expect(() => requireFitting(statement, HERE)).toThrow(expected)
  })
})

describe('a file of somebody else', () => {
  it('is refused when it is none, or larger than any version', () => {
    const { folder, archive } = signed()
    const pipe = join(folder, 'pipe.tar.gz')
    execFileSync('mkfifo', [pipe])
    expect(() => chooseArchive(pipe, 'x64')).toThrow(/is not a file/)
    truncateSync(archive, 300_000_001)
    expect(() => chooseArchive(archive, 'x64')).toThrow(/300000001 bytes/)
    truncateSync(archive, 300_000_000)
    expect(chooseArchive(archive, 'x64')).toBe(archive)
  })

  it('is refused when its signature is a pipe, which nobody writes into', () => {
    const { archive, keys } = signed()
    rmSync(`${archive}.sig`)
    execFileSync('mkfifo', [`${archive}.sig`])
    expect(() => readStatement(archive, keys)).toThrow(/not signed with a trusted key/)
  })

  it('is refused when it is signed, and says something else', () => {
    const { archive, keys, privateKey } = signed()
    for (const text of ['no JSON', '{}', '{"name":"other"}']) {
      const signature = sign(null, Buffer.from(text), privateKey).toString('base64')
      writeFileSync(`${archive}.sig`, `${text}\n${signature}\n`)
      expect(() => readStatement(archive, keys)).toThrow(/has an unknown format/)
    }
  })

  it('is checked with no key of another kind, nor a damaged one', () => {
    const { folder } = signed()
    const path = join(folder, 'keys.pem')
    const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const other = publicKey.export({ type: 'spki', format: 'pem' }).toString()
    for (const text of [other, other.replace(/\n.{20}/, '\n')]) {
      writeFileSync(path, text)
      expect(() => readUpdateKeys([path])).toThrow(/damaged or not Ed25519/)
    }
  })
})

describe('openIncoming', () => {
  it('lets one update in at a time, and leaves nothing', async () => {
    const { folder, archive } = signed()
    const { log } = captureLog()
    const home = new UpdateHome(join(folder, 'home'))
    const incoming = openIncoming(home, log)
    expect(() => openIncoming(home, log)).toThrow(/Another update/)
    const copy = await incoming.copyIn(archive)
    expect(readFileSync(copy, 'utf8')).toBe('content')
    expect(statSync(dirname(copy)).mode & 0o777).toBe(0o700)
    incoming.close()
    expect(existsSync(copy)).toBe(false)
    openIncoming(home, log).close()
  })

  it('removes what an update has left that was killed', async () => {
    const { folder, archive } = signed()
    const { log } = captureLog()
    const home = new UpdateHome(join(folder, 'home'))
    mkdirSync(join(home.versions, '.1.1.0.4711/lib'), { recursive: true })
    mkdirSync(join(home.versions, '1.0.0'))
    const incoming = openIncoming(home, log)
    expect(readdirSync(home.versions)).toEqual(['1.0.0'])
    await expect(incoming.copyIn(`${archive}.none`)).rejects.toThrow(/Cannot copy .*: ENOENT/)
    incoming.close()
  })
})

describe('the archive that is chosen', () => {
  it('is the file, or the newest of the folder for this machine', () => {
    const { folder, archive } = signed()
    expect(chooseArchive(archive, 'x64')).toBe(archive)
    for (const name of ['1.9.0-linux-x64', '1.10.0-linux-x64', '2.0.0-linux-arm64']) {
      writeFileSync(join(folder, `device-agent-${name}.tar.gz`), '')
    }
    expect(chooseArchive(folder, 'x64')).toContain('1.10.0-linux-x64')
  })

  it('is none where there is none for this machine', () => {
    expect(() => chooseArchive(temporaryFolder(), 'x64')).toThrow(/no archive for this machine/)
    expect(() => chooseArchive('/nowhere/at/all', 'x64')).toThrow(/does not exist/)
  })
})

describe('keys', () => {
  it('are all of all files, those that are missing left out', () => {
    const folder = temporaryFolder()
    const pems = [signed(), signed()].map(({ privateKey }) => publicKeyOf(privateKey))
    writeFileSync(join(folder, 'a.pem'), pems.join(''))
    expect(readUpdateKeys([join(folder, 'a.pem'), join(folder, 'b.pem')])).toHaveLength(2)
    writeFileSync(join(folder, 'b.pem'), 'no key')
    expect(() => readUpdateKeys([join(folder, 'b.pem')])).toThrow(/no public key/)
  })

  it('to sign with are Ed25519 alone', () => {
    const path = join(temporaryFolder(), 'key.pem')
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    writeFileSync(path, privateKey.export({ type: 'pkcs8', format: 'pem' }))
    expect(() => readSigningKey(path)).toThrow(/not an Ed25519 key/)
    writeFileSync(path, signed().privateKey.export({ type: 'pkcs8', format: 'pem' }))
    expect(readSigningKey(path).asymmetricKeyType).toBe('ed25519')
  })
})

describe('compareVersions', () => {
  it.each([
    ['1.10.0', '1.9.9'],
    ['2.0.0', '1.99.99'],
    ['1.0.1', '1.0.0'],
    ['1.0.0', '1.0.0-rc.2'],
    ['1.0.0-rc.10', '1.0.0-rc.9'],
  ])('has %s newer than %s', (newer, older) => {
    expect(compareVersions(newer, older)).toBeGreaterThan(0)
    expect(compareVersions(older, newer)).toBeLessThan(0)
  })

  it('has a version as new as itself, and refuses what is none', () => {
    expect(compareVersions('1.0.0-a', '1.0.0-a')).toBe(0)
    expect(() => compareVersions('1.0', '1.0.0')).toThrow(/is not a version/)
  })
})
