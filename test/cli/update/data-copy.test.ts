import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { DataCopy } from '../../../src/cli/update/data-copy.ts'
import { lockFolder } from '../../../src/store/data-folder.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { lockElsewhere } from '../../helpers/lock-elsewhere.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { refusing } from './refused-calls.ts'
import { updateFolder } from './update-folder.ts'

const REMOVE = { recursive: true, force: true } as const

describe('DataCopy', () => {
  it('has modes, folders and links, and no sockets', () => {
    const { dataDir, read } = updateFolder()
    writeFileSync(join(dataDir, 'api-token'), 'secret', { mode: 0o600 })
    symlinkSync('api-token', join(dataDir, 'link'))
    const copy = new DataCopy(dataDir)
    copy.make()
    rmSync(dataDir, { recursive: true })
    copy.restore()
    expect(read()).toBe('before')
    expect(statSync(join(dataDir, 'api-token')).mode & 0o777).toBe(0o600)
    expect(readlinkSync(join(dataDir, 'link'))).toBe('api-token')
  })

  it('leaves the lock on the data, and has a lock file for the same user', async () => {
    const { dataDir } = updateFolder()
    const options = { folder: dataDir, owner: 'agent', log: captureLog().log }
    const lock = lockFolder(options)
    onTestFinished(() => lock.release())
    new DataCopy(dataDir).make()
    expect(await lockElsewhere(`${dataDir}.before-update`)).toBeUndefined()
    const { size, mode } = statSync(join(dataDir, 'agent.lock'))
    expect([size, mode & 0o777]).toEqual([0, 0o600])
    expect(await lockElsewhere(dataDir)).toBeDefined()
  })

  it('follows the link that systemd puts in place of the folder', () => {
    const { dataDir, put, read } = updateFolder()
    mkdirSync(`${dataDir}-private`)
    renameSync(dataDir, `${dataDir}-private/device-agent`)
    symlinkSync('data-private/device-agent', dataDir)
    const copy = new DataCopy(dataDir)
    copy.make()
    put('migrated')
    copy.restore()
    expect(read()).toBe('before')
    expect(existsSync(`${dataDir}-private/device-agent.of-trial`)).toBe(true)
  })

  it.each([
    ['by its own path', ''],
    ['behind a link in the middle of its path', 'link'],
  ])('refuses a data folder that is a file system of its own, %s', (_, link) => {
    const folder = temporaryFolder()
    symlinkSync('/', join(folder, 'link'))
    const path = link === '' ? '/dev/pts' : join(folder, link, 'dev/pts')
    onTestFinished(() => {
      for (const end of ['', '.tmp']) rmSync(`/dev/pts.before-update${end}`, REMOVE)
    })
    expect(() => new DataCopy(path).make()).toThrow(/separate file system/)
  })

  it('finds its place behind links when the data are away, as after a cut', () => {
    const { dataDir, put, read } = updateFolder()
    const outer = join(dirname(dataDir), 'outer')
    symlinkSync(dirname(dataDir), outer)
    symlinkSync(join(outer, 'data'), `${dataDir}-link`)
    const path = join(outer, 'data-link')
    new DataCopy(path).make()
    put('migrated')
    renameSync(dataDir, `${dataDir}.of-trial`)
    new DataCopy(path).restore()
    expect(read()).toBe('before')
    // Nothing there at all, and links that lead to each other.
    symlinkSync('b', join(outer, 'a'))
    symlinkSync('a', join(outer, 'b'))
    for (const lost of ['gone/further/data', 'a']) new DataCopy(join(outer, lost)).restore()
  })

  it('is not used where what would put it back is refused', () => {
    const { trial, candidate, settle, home, dataDir, read } = updateFolder()
    const paths = [dataDir, `${dataDir}.before-update.tmp`]
    for (const refused of paths) {
      trial.prepare(candidate)
      const text = refusing(['renameSync'], (from) => from === refused, settle)
      expect(text).toContain('1.0.0 stays')
      expect(home.state()).toMatchObject({ reason: expect.stringContaining('EROFS') })
      expect([home.currentFolder(), read()]).toEqual([null, 'before'])
      expect(readdirSync(dirname(dataDir)).sort()).toEqual(['data', 'home'])
    }
  })

  it.runIf(process.getuid?.() === 0)('is not made where others could put something else', () => {
    const { dataDir } = updateFolder()
    const copy = new DataCopy(dataDir)
    for (const mode of [0o777, 0o1777, 0o770]) {
      chmodSync(dirname(dataDir), mode)
      expect(() => copy.make()).toThrow(/users other than root can write to/)
    }
    chmodSync(dirname(dataDir), 0o755)
    chownSync(dirname(dataDir), 65_534, 0)
    expect(() => copy.make()).toThrow(/users other than root can write to/)
    chownSync(dirname(dataDir), 0, 0)
    copy.make()
  })

  it('of a trial that was never finished is not put back', () => {
    const { dataDir, put, read } = updateFolder()
    mkdirSync(`${dataDir}.before-update.tmp`)
    put('new')
    new DataCopy(dataDir).restore()
    expect(read()).toBe('new')
  })
})
