import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'dotenv'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { EnvFile, type EnvSettings } from '../../../src/cli/provision/env-file.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** The text of a file with `before` in it, after `settings` were written. */
function written(before: string, settings: EnvSettings): string {
  const path = join(temporaryFolder(), 'device.env')
  writeFileSync(path, before)
  EnvFile.read(path).write(settings)
  return readFileSync(path, 'utf8')
}

describe('EnvFile', () => {
  it('makes the file and the folders above it, for this user alone', () => {
    const path = join(temporaryFolder(), 'out/site/device.env')
    EnvFile.read(path).write({
      AGENT_DOMAIN: 'a.test',
      SVC_AUTHTOKEN: 'token',
      SVC_CA_CERT: undefined,
    })
    expect(readFileSync(path, 'utf8')).toBe('AGENT_DOMAIN=a.test\nSVC_AUTHTOKEN=token\n')
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it.each<[string, string, EnvSettings, string]>([
    ['adds what is missing', 'LOG_LEVEL=debug\n', { A: '1' }, 'LOG_LEVEL=debug\nA=1\n'],
    ['replaces in place', '# mine\nA=0\nB=2', { A: '1' }, '# mine\nA=1\nB=2\n'],
    ['takes lines out', 'A=0\nB=2\n', { A: undefined }, 'B=2\n'],
    ['leaves no second line that would win', 'A=0\nexport A=9\n', { A: '1' }, 'A=1\n'],
    ['knows a commented line as none', '#A=0\n', { A: '1' }, '#A=0\nA=1\n'],
    ['quotes what needs it', '', { A: '/srv/my files/#1' }, 'A="/srv/my files/#1"\n'],
  ])('%s', (_what, before, settings, after) => {
    expect(written(before, settings)).toBe(after)
  })

  it('writes what dotenv reads', () => {
    const settings = { A: '/srv/my files/#1', B: '*.site.test', C: "it's", D: 'a=b' }
    expect(parse(written('', settings))).toEqual(settings)
  })

  it.each(['a\nB=1', 'a"b', '$(id)', '`id`', 'a\\b'])('refuses the value %j', (value) => {
    expect(() => written('', { A: value })).toThrow(StartError)
  })

  it('differs when a line does, or when others may read it', () => {
    const path = join(temporaryFolder(), 'device.env')
    EnvFile.read(path).write({ A: '1' })
    expect(EnvFile.read(path).differs({ A: '1' })).toBe(false)
    expect(EnvFile.read(path).differs({ A: '2' })).toBe(true)
    chmodSync(path, 0o644)
    expect(EnvFile.read(path).differs({ A: '1' })).toBe(true)
    EnvFile.read(path).write({ A: '1' })
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('names a path that is no file, or cannot be one', () => {
    const folder = temporaryFolder()
    expect(() => EnvFile.read(folder)).toThrow(`Cannot read ${folder} (EISDIR).`)
    writeFileSync(join(folder, 'file'), '')
    mkdirSync(join(folder, 'taken.env'))
    const path = join(folder, 'file/device.env')
    expect(() => EnvFile.read(path).write({})).toThrow(/Cannot (read|write) .* \(ENOTDIR\)/)
  })
})
