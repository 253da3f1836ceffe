import { cpSync, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { DataCopy } from '../../../src/cli/update/data-copy.ts'
import { TRIAL_MS } from '../../../src/cli/update/trial.ts'
import { refusing } from './refused-calls.ts'
import { updateFolder } from './update-folder.ts'

describe('Trial', () => {
  it('begins with a start of the service, and not before', () => {
    const { settle, home, trial, candidate, clock } = updateFolder()
    trial.prepare(candidate)
    expect([home.state()?.state, home.currentFolder()]).toEqual(['prepared', null])
    expect(settle()).toContain('1.1.0')
    expect(home.state()).toMatchObject({ state: 'trying', untilMs: clock.now + TRIAL_MS })
    expect(home.currentFolder()).toBe('versions/1.1.0')
  })

  it('does nothing at a start when nothing is under way', () => {
    const { settle, home, trial, candidate } = updateFolder()
    expect(settle()).toBeUndefined()
    trial.prepare(candidate)
    settle()
    trial.confirm()
    expect(settle()).toBeUndefined()
    expect([home.state()?.state, home.currentFolder()]).toEqual(['confirmed', 'versions/1.1.0'])
  })

  it('is undone by the next start, with the data that there was before', () => {
    const { settle, home, trial, candidate, put, read } = updateFolder()
    trial.prepare(candidate)
    settle()
    put('migrated')
    expect(settle()).toContain('1.0.0')
    expect(home.state()).toMatchObject({ state: 'rolled-back', from: '1.0.0', to: '1.1.0' })
    expect(home.currentFolder()).toBeNull()
    expect(read()).toBe('before')
    expect(existsSync(join(home.versions, '1.1.0'))).toBe(false)
  })

  it('goes back to the version before, and not to that of the package', () => {
    const { settle, home, trial, candidate, addVersion } = updateFolder()
    trial.prepare(candidate)
    settle()
    trial.confirm()
    addVersion('1.2.0')
    trial.prepare({ from: '1.1.0', to: '1.2.0', toFolder: 'versions/1.2.0' })
    settle()
    expect(home.currentFolder()).toBe('versions/1.2.0')
    settle()
    expect(home.currentFolder()).toBe('versions/1.1.0')
    expect(existsSync(join(home.versions, '1.1.0'))).toBe(true)
  })

  it('keeps what was changed after it was confirmed, and no copy of the data', () => {
    const { settle, trial, candidate, put, read, dataDir } = updateFolder()
    trial.prepare(candidate)
    settle()
    put('migrated')
    trial.confirm()
    put('changed')
    settle()
    expect(read()).toBe('changed')
    expect(existsSync(`${dataDir}.before-update`)).toBe(false)
  })

  it('says why it was undone', () => {
    const { settle, home, trial, candidate } = updateFolder()
    trial.prepare(candidate)
    settle()
    trial.blame('it had no link')
    settle()
    expect(home.state()).toMatchObject({ reason: 'it had no link' })
  })

  it('is not begun in another boot than it was prepared in', () => {
    const { settleIn, home, trial, candidate } = updateFolder()
    trial.prepare(candidate)
    settleIn('another')
    expect(home.state()).toMatchObject({
      state: 'rolled-back',
      reason: expect.stringContaining('restarted'),
    })
    expect(home.currentFolder()).toBeNull()
  })

  it('is undone in another boot as in the same', () => {
    const { settle, settleIn, home, trial, candidate, put, read } = updateFolder()
    trial.prepare(candidate)
    settle()
    put('migrated')
    settleIn('another')
    expect([home.state()?.state, read()]).toEqual(['rolled-back', 'before'])
  })

  it('leaves the version that runs when the data cannot be copied', () => {
    const { settle, home, trial, candidate } = updateFolder()
    trial.prepare(candidate)
    // A place where nothing can be put beside.
    expect(settle('/proc/self')).toContain('1.0.0 stays')
    expect(home.state()).toMatchObject({
      state: 'rolled-back',
      reason: expect.stringContaining('cannot copy the data'),
    })
    expect(home.currentFolder()).toBeNull()
  })

  it('is not begun where the settings of the service do not say which data it has', () => {
    const { home, trial, candidate } = updateFolder()
    trial.prepare(candidate)
    trial.settle(() => {
      throw new Error('SVC_SERVER_ADDR is no address')
    })
    expect(home.state()).toMatchObject({
      state: 'rolled-back',
      reason: expect.stringContaining('SVC_SERVER_ADDR is no address'),
    })
  })

  it('is undone where they do not say it any more', () => {
    const { settle, home, trial, candidate, put, read } = updateFolder()
    trial.prepare(candidate)
    settle()
    put('migrated')
    trial.settle(() => {
      throw new Error('SVC_SERVER_ADDR is no address')
    })
    expect([home.state()?.state, read()]).toEqual(['rolled-back', 'before'])
  })

  it('is not begun again when the copy of the data was cut off', () => {
    const { settle, home, trial, candidate, dataDir } = updateFolder()
    trial.prepare(candidate)
    const { from, to, toFolder } = candidate
    home.write({ state: 'copying', from, to, fromFolder: null, toFolder, dataDir })
    mkdirSync(`${dataDir}.before-update.tmp`)
    expect(settle()).toContain('interrupted')
    expect([home.state()?.state, home.currentFolder()]).toEqual(['rolled-back', null])
    expect(existsSync(`${dataDir}.before-update.tmp`)).toBe(false)
  })

  it('can be abandoned before it begins, and not afterwards', () => {
    const { settle, home, trial, candidate } = updateFolder()
    trial.prepare(candidate)
    trial.abandon('nobody restarts')
    expect(home.state()).toMatchObject({ state: 'rolled-back', reason: 'nobody restarts' })
    trial.prepare(candidate)
    settle()
    trial.abandon('too late')
    expect(home.state()?.state).toBe('trying')
  })
})

describe('the start after a copy that was cut off', () => {
  const cutOff = () => {
    const folder = updateFolder()
    const { home, candidate, dataDir } = folder
    home.write({ state: 'copying', ...candidate, fromFolder: null, dataDir })
    return folder
  }

  it('lets the version before run though nothing can be written', () => {
    const { settle, home, read } = cutOff()
    const text = refusing(['writeSync', 'rmSync'], () => true, settle)
    expect(text).toContain('copying and cannot be completed: EROFS')
    expect([home.state()?.state, read()]).toEqual(['copying', 'before'])
  })

  it('keeps what is changed after that', () => {
    const { settle, home, put, read, dataDir } = cutOff()
    cpSync(dataDir, `${dataDir}.before-update`, { recursive: true })
    refusing(['writeSync', 'rmSync'], () => true, settle)
    put('changed')
    settle()
    expect([home.state()?.state, read()]).toEqual(['rolled-back', 'changed'])
  })

  it('starts none while its data are not in their place', () => {
    const { settle, dataDir, read } = cutOff()
    cpSync(dataDir, `${dataDir}.before-update.tmp`, { recursive: true })
    renameSync(dataDir, `${dataDir}.before-update`)
    expect(() => refusing(['renameSync'], () => true, settle)).toThrow(/EROFS/)
    settle()
    expect(read()).toBe('before')
  })
})

describe('a start that undoes a trial', () => {
  it('starts none when it cannot', () => {
    const { settle, trial, candidate, read, put } = updateFolder()
    trial.prepare(candidate)
    settle()
    put('migrated')
    expect(() => refusing(['renameSync'], () => true, settle)).toThrow(/EROFS/)
    settle()
    expect(read()).toBe('before')
  })
})

describe('a trial whose state somebody else changes', () => {
  const inLock = () => {
    const folder = updateFolder()
    folder.trial.prepare(folder.candidate)
    return { ...folder, held: folder.lock() }
  }

  it('is not given up, confirmed or blamed meanwhile', () => {
    const { trial, home, settle, held } = inLock()
    trial.abandon('nobody restarts')
    expect(home.state()?.state).toBe('prepared')
    settle()
    trial.confirm()
    expect(trial.blame('it had no link')).toBe(false)
    expect([home.state()?.state, home.currentFolder()]).toEqual(['trying', 'versions/1.1.0'])
    held?.release()
    expect(trial.blame('it had no link')).toBe(true)
    trial.confirm()
    expect(home.state()?.state).toBe('confirmed')
    expect(trial.blame('it had no link')).toBe(false)
  })

  it('is waited for by a start, and not for ever', async () => {
    const { trial, held } = inLock()
    let slept = 0
    const clock = (releasedAfter: number) => ({
      ...systemClock,
      sleep: async () => {
        if (++slept === releasedAfter) held?.release()
      },
    })
    expect(await trial.lockForStart(clock(Number.POSITIVE_INFINITY))).toBeUndefined()
    expect(slept).toBe(100)
    slept = 0
    const lock = await trial.lockForStart(clock(3))
    expect([lock !== undefined, slept]).toEqual([true, 3])
    lock?.release()
  })

  it('is not waited for where there can be no lock', async () => {
    const { trial, home, held } = inLock()
    held?.release()
    rmSync(join(home.path, '.incoming'), { recursive: true })
    writeFileSync(join(home.path, '.incoming'), '')
    expect(await trial.lockForStart(systemClock)).toBeUndefined()
  })
})

describe('a trial that is undone after a power cut', () => {
  const tried = () => {
    const folder = updateFolder()
    folder.trial.prepare(folder.candidate)
    folder.settle()
    folder.put('migrated')
    return folder
  }
  const expectBefore = ({ settle, home, read }: ReturnType<typeof tried>) => {
    settle()
    expect([home.state()?.state, home.currentFolder(), read()]).toEqual([
      'rolled-back',
      null,
      'before',
    ])
  }

  it('between the two renames of the data', () => {
    const folder = tried()
    renameSync(folder.dataDir, `${folder.dataDir}.of-trial`)
    expectBefore(folder)
  })

  it('there, where the service manager has made an empty folder again', () => {
    const folder = tried()
    renameSync(folder.dataDir, `${folder.dataDir}.of-trial`)
    mkdirSync(folder.dataDir)
    expectBefore(folder)
  })

  it('after the data, before the link', () => {
    const folder = tried()
    new DataCopy(folder.dataDir).restore()
    expectBefore(folder)
  })

  it('after the link, before the state', () => {
    const folder = tried()
    new DataCopy(folder.dataDir).restore()
    folder.home.switchBack(null)
    expectBefore(folder)
  })

  it('before the switch to the new version', () => {
    const folder = tried()
    folder.home.switchBack(null)
    expectBefore(folder)
  })
})
