import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { lockFolder } from '../../src/store/data-folder.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import { lockElsewhere } from '../helpers/lock-elsewhere.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

function lock(folder: string, log = captureLog().log) {
  const held = lockFolder({ folder, owner: 'agent', log })
  onTestFinished(() => held.release())
  return held
}

describe('lockFolder', () => {
  it('lets one agent on a folder and names the folder to the second', () => {
    const folder = temporaryFolder()
    lock(folder)
    expect(() => lock(folder)).toThrow(StartError)
    expect(() => lock(folder)).toThrow(folder)
  })

  it('is free after its release', () => {
    const folder = temporaryFolder()
    lock(folder).release()
    lock(folder)
  })

  it('is taken back after its release, unless another one has it by then', () => {
    const folder = temporaryFolder()
    const first = lock(folder)
    first.release()
    first.reclaim()
    expect(() => lock(folder)).toThrow(folder)
    first.release()
    const second = lock(folder)
    expect(() => first.reclaim()).toThrow(StartError)
    second.release()
    first.reclaim()
  })

  it('refuses while another process lives, and is free once that was killed', async () => {
    const folder = temporaryFolder()
    const child = await lockElsewhere(folder)
    expect(() => lock(folder)).toThrow(StartError)

    child?.kill('SIGKILL')
    if (child) await once(child, 'exit')
    await eventually(() => lock(folder))
  })

  it('is not lost when the process that holds it is refused another time', async () => {
    const folder = temporaryFolder()
    expect(await lockElsewhere(folder, 'again')).toBeDefined()
    expect(() => lock(folder)).toThrow(StartError)
  })

  it('writes nothing into the lock file', () => {
    const folder = temporaryFolder()
    lock(folder)
    expect(statSync(join(folder, 'agent.lock')).size).toBe(0)
    expect(existsSync(join(folder, 'agent.lock-journal'))).toBe(false)
  })

  it('closes a folder to other users in which nothing is for them', () => {
    const folder = temporaryFolder()
    chmodSync(folder, 0o755)
    writeFileSync(join(folder, '.gitkeep'), '')
    mkdirSync(join(folder, 'private'), { mode: 0o700 })
    lock(folder)
    expect(statSync(folder).mode & 0o777).toBe(0o700)
  })

  it('warns about a folder with things for others in it, and leaves it open', () => {
    const folder = temporaryFolder()
    chmodSync(folder, 0o755)
    writeFileSync(join(folder, 'for-all'), '', { mode: 0o644 })
    const { log, lines } = captureLog()
    lock(folder, log)
    expect(statSync(folder).mode & 0o777).toBe(0o755)
    expect(lines).toContainEqual(expect.objectContaining({ level: 'warn', folder }))
  })

  it('says which folder cannot be made', () => {
    const file = join(temporaryFolder(), 'a-file')
    writeFileSync(file, '')
    expect(() => lock(join(file, 'data'))).toThrow(StartError)
    expect(() => lock(join(file, 'data'))).toThrow(join(file, 'data'))
  })

  it('says why a lock file cannot be opened', () => {
    const folder = temporaryFolder()
    mkdirSync(join(folder, 'agent.lock'))
    expect(() => lock(folder)).toThrow(StartError)
  })
})
