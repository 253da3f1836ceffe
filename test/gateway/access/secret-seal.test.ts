import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  createSecretsKey,
  NoKeyError,
  SECRETS_KEY,
  type SealedValue,
  SecretSeal,
} from '../../../src/gateway/access/secret-seal.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const PLACE = { ownerId: 'bot_1', vaultId: 'vault_1', name: 'key' }

interface Options {
  readonly folder?: string
  readonly isShared?: boolean
  readonly sample?: SealedValue
}

function open({ folder = temporaryFolder(), isShared = false, sample }: Options = {}) {
  const path = join(folder, SECRETS_KEY)
  const captured = captureLog()
  const { log } = captured
  const seal = new SecretSeal({ path, isShared, sample: () => sample, log })
  return { folder, path, captured, seal }
}

describe('SecretSeal', () => {
  it('opens what it has sealed, also after a restart', () => {
    const { folder, path, seal } = open()
    expect(existsSync(path)).toBe(false)
    const sealed = seal.seal('hunter2 ü', PLACE)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(Buffer.from(sealed, 'base64url').toString('latin1')).not.toContain('hunter2')
    expect(seal.open(sealed, PLACE)).toBe('hunter2 ü')
    expect(open({ folder }).seal.open(sealed, PLACE)).toBe('hunter2 ü')
  })

  it('seals a value differently each time', () => {
    const { seal } = open()
    const first = seal.seal('same', PLACE)
    const second = seal.seal('same', PLACE)
    expect(first.slice(0, 16)).not.toBe(second.slice(0, 16))
    expect(first).not.toBe(second)
  })

  it('opens a value only for its account, vault and name, and unchanged', () => {
    const { seal, captured } = open()
    const sealed = seal.seal('value', PLACE)
    const changed = `${sealed.slice(0, -2)}${sealed.endsWith('AA') ? 'BB' : 'AA'}`
    expect(seal.open(sealed, { ...PLACE, ownerId: 'bot_2' })).toBeUndefined()
    expect(seal.open(sealed, { ...PLACE, ownerId: null })).toBeUndefined()
    expect(seal.open(sealed, { ...PLACE, vaultId: 'vault_2' })).toBeUndefined()
    expect(seal.open(sealed, { ...PLACE, name: 'other' })).toBeUndefined()
    expect(seal.open(sealed, { certificateId: 'cert_1' })).toBeUndefined()
    expect(seal.open(changed, PLACE)).toBeUndefined()
    expect(seal.open('', PLACE)).toBeUndefined()
    expect(
      captured.lines.filter(({ msg }) => String(msg).includes('cannot be opened')),
    ).toHaveLength(1)
  })

  it('opens older values when their key file is restored, and seals with the restored key', () => {
    const { folder, path, seal } = open()
    const old = seal.seal('old', PLACE)
    const key = readFileSync(path)
    rmSync(path)
    const { seal: running } = open({ folder })
    const other = createSecretsKey()
    writeFileSync(path, other)
    expect(running.open(old, PLACE)).toBeUndefined()
    rmSync(path)
    writeFileSync(path, key)
    expect(running.open(old, PLACE)).toBe('old')
    const next = running.seal('next', PLACE)
    expect(open({ folder }).seal.open(next, PLACE)).toBe('next')
    // Before any value needs to be opened, too.
    rmSync(path)
    writeFileSync(path, other)
    const last = running.seal('last', PLACE)
    expect(open({ folder }).seal.open(last, PLACE)).toBe('last')
  })

  it('never replaces a key that is missing or damaged while there are values', () => {
    const missing = open({ sample: { sealed: '', place: PLACE } })
    expect(() => missing.seal.seal('a', PLACE)).toThrow(NoKeyError)
    expect(existsSync(missing.path)).toBe(false)
    const damaged = open()
    writeFileSync(damaged.path, 'short\n')
    expect(() => damaged.seal.seal('a', PLACE)).toThrow(/is damaged/)
    expect(readFileSync(damaged.path, 'utf8')).toBe('short\n')
  })

  it('makes no key of its own where several gateways share one', () => {
    const { seal, path } = open({ isShared: true })
    expect(() => seal.seal('a', PLACE)).toThrow(/Restart this gateway while it reaches PostgreSQL/)
    expect(existsSync(path)).toBe(false)
  })

  it('finds a key file that is missing, damaged or of another gateway, and names the fix', () => {
    const { folder, path, seal } = open()
    seal.check()
    expect(seal.problem).toBeUndefined()
    const sample = { sealed: seal.seal('value', PLACE), place: PLACE }
    const key = readFileSync(path)
    const find = (isShared = false) => {
      const { seal } = open({ folder, sample, isShared })
      seal.check()
      return seal.problem
    }
    expect(find()).toBeUndefined()
    for (const [content, what] of [
      [undefined, 'is missing or damaged'],
      ['short', 'is missing or damaged'],
      [createSecretsKey(), 'has another key'],
    ] as const) {
      rmSync(path, { force: true })
      if (content !== undefined) writeFileSync(path, content)
      expect(find()).toContain(`secrets.key ${what}: policies cannot read secrets`)
      expect(find()).toMatch(/Restore the file from a backup/)
      expect(find(true)).toMatch(/Restart this gateway while it reaches PostgreSQL/)
    }
    writeFileSync(path, key)
    expect(find()).toBeUndefined()
  })
})
