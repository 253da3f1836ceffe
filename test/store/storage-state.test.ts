import { describe, expect, it } from 'vitest'
import { type StorageFault, StorageState } from '../../src/store/storage-state.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

function watched() {
  const clock = new ManualClock()
  const { log, lines } = captureLog()
  const asked: StorageFault[] = []
  const disk = { isWell: false }
  const isOver = (fault: StorageFault) => {
    asked.push(fault)
    return disk.isWell
  }
  return { clock, lines, asked, disk, state: new StorageState({ log, clock, isOver }) }
}

describe('StorageState', () => {
  it('stays in its fault until a recheck finds that it is over', async () => {
    const { clock, disk, state } = watched()
    state.fail('full')
    await clock.advance(60_000)
    expect(state.fault).toBe('full')
    disk.isWell = true
    await clock.advance(10_000)
    expect(state.fault).toBeUndefined()
    expect(clock.sleeping).toBe(0)
  })

  it('rechecks the newest fault, with one watch for all', async () => {
    const { clock, asked, state } = watched()
    state.fail('full')
    state.fail('unwritable')
    await clock.advance(20_000)
    expect(asked).toEqual(['unwritable', 'unwritable'])
  })

  it('logs a fault once, not at each refused change', () => {
    const { lines, state } = watched()
    for (let change = 0; change < 5; change += 1) state.fail('full')
    expect(lines).toHaveLength(1)
  })

  it('leaves nothing behind when it stops', async () => {
    const { clock, asked, state } = watched()
    state.fail('full')
    state.stop()
    await clock.advance(60_000)
    expect(asked).toEqual([])
    expect(clock.sleeping).toBe(0)
  })
})
