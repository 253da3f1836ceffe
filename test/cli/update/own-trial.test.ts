import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { OwnTrial } from '../../../src/cli/update/own-trial.ts'
import { refuseOnTrial } from '../../../src/cli/update/refuse-on-trial.ts'
import { TRIAL_MS } from '../../../src/cli/update/trial.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { updateFolder } from './update-folder.ts'

function started(version = '1.1.0') {
  const folder = updateFolder()
  const { settle, home, trial, candidate, clock, programOf } = folder
  trial.prepare(candidate)
  settle()
  const { log } = captureLog()
  const manual = new ManualClock()
  const now = () => clock.now
  const own = new OwnTrial({ home, programRoot: programOf(version), now, clock: manual, log })
  own.start()
  onTestFinished(() => own.stop())
  return { ...folder, own, manual }
}

describe('OwnTrial', () => {
  it('lasts until the version is confirmed', () => {
    const { own, trial } = started()
    expect(own.isOnTrial()).toBe(true)
    trial.confirm()
    expect([own.isOnTrial(), own.isOnTrial()]).toEqual([false, false])
  })

  it('lasts when it was undone while the program still runs', () => {
    const { settle, own } = started()
    settle()
    expect(own.isOnTrial()).toBe(true)
  })

  it('is none of another version, nor of a program elsewhere', () => {
    expect(started('1.0.0').own.isOnTrial()).toBe(false)
    const { home, clock } = started()
    const { log } = captureLog()
    const now = () => clock.now
    const elsewhere = { home, programRoot: '/usr', now, clock: new ManualClock(), log }
    expect(new OwnTrial(elsewhere).isOnTrial()).toBe(false)
  })

  it('tells of an update where the program is one that updates are for', () => {
    const { own, settle, home, clock } = started()
    expect(own.report()).toMatchObject({
      state: 'trying',
      from: '1.0.0',
      to: '1.1.0',
      reason: null,
    })
    settle()
    const { log, lines } = captureLog()
    const other = (programRoot: string) =>
      new OwnTrial({ home, programRoot, now: () => clock.now, clock: new ManualClock(), log })
    expect(other('/usr/lib/other').report()).toBeUndefined()
    expect(lines).toEqual([])
    const sentence = expect.stringContaining(
      'The update to 1.1.0 was rolled back: the new version stopped',
    )
    expect(other('/usr/lib/device-agent').report()).toMatchObject({
      state: 'rolled-back',
      reason: expect.stringContaining('stopped before'),
      sentence,
    })
    expect(lines).toEqual([expect.objectContaining({ level: 'warn', msg: sentence })])
  })

  it('keeps commands from changing its data, and no other', () => {
    const { home, dataDir, trial } = started()
    expect(() => refuseOnTrial(join(dataDir, '../data'), home)).toThrow(/1\.1\.0 .* is on trial/)
    expect(() => refuseOnTrial('/elsewhere', home)).not.toThrow()
    trial.confirm()
    expect(() => refuseOnTrial(dataDir, home)).not.toThrow()
  })

  it('is overdue when nobody has judged it', async () => {
    const { own, manual } = started()
    await manual.advance(TRIAL_MS + 15_000)
    expect(await own.overdue).toContain('has no result')
  })

  it('is not overdue before, nor when it was judged or the program stops', async () => {
    const [early, judged, stopped] = [started(), started(), started()]
    judged.trial.confirm()
    stopped.own.stop()
    await early.manual.advance(TRIAL_MS + 14_999)
    for (const { manual } of [judged, stopped]) await manual.advance(TRIAL_MS + 15_000)
    const none = new Promise((resolve) => setImmediate(resolve, 'none'))
    const reasons = [early, judged, stopped].map(({ own }) => own.overdue)
    expect(await Promise.race([...reasons, none])).toBe('none')
  })
})
