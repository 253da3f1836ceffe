import { closeSync, openSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  judgeUsage,
  ResourceWatch,
  readUsage,
  type Usage,
} from '../../../src/agent/device/resources.ts'

const MB = 1_048_576
const FINE: Usage = {
  descriptors: 100,
  maxDescriptors: 1_024,
  freeMemory: 500 * MB,
  heapUsed: 50 * MB,
  maxHeap: 2_000 * MB,
}

describe('judgeUsage', () => {
  it.each<[string, Partial<Usage>, string]>([
    ['much of everything', {}, 'enough'],
    ['room for four visitors', { descriptors: 1_016 }, 'enough'],
    ['hardly a descriptor', { descriptors: 1_017 }, 'descriptors'],
    ['none to look with', { descriptors: undefined }, 'descriptors'],
    ['little memory', { freeMemory: 16 * MB - 1 }, 'memory'],
    ['a full heap', { heapUsed: 1_900 * MB }, 'memory'],
  ])('%s: %o is %s', (_what, change, name) => {
    expect(judgeUsage({ ...FINE, ...change }).name).toBe(name)
  })

  it('says what to do', () => {
    expect(judgeUsage({ ...FINE, descriptors: 1_020 })).toMatchObject({
      problem: {
        reason: 'resources',
        detail: '1020 of 1024 open files are in use',
        remedy: expect.stringContaining('LimitNOFILE='),
      },
    })
  })
})

describe('readUsage', () => {
  it('counts what is open in this process', () => {
    const before = readUsage()
    const files = Array.from({ length: 10 }, () => openSync('/dev/null', 'r'))
    const after = readUsage()
    for (const file of files) closeSync(file)
    expect(after.descriptors ?? 0).toBeGreaterThanOrEqual((before.descriptors ?? 0) + 8)
    expect(before.maxDescriptors).toBeGreaterThan(64)
    expect(before.freeMemory).toBeGreaterThan(0)
    expect(before.heapUsed).toBeLessThan(before.maxHeap)
  })
})

describe('ResourceWatch', () => {
  it('tells changes, and a short moment without for 15 s', () => {
    let usage = FINE
    let now = 0
    const watch = new ResourceWatch({ read: () => usage, now: () => now })
    expect([watch.check(), watch.current.name]).toEqual([false, 'enough'])
    usage = { ...FINE, descriptors: 1_024 }
    expect([watch.check(), watch.check(), watch.current.name]).toEqual([true, false, 'descriptors'])
    usage = FINE
    now = 14_999
    expect([watch.check(), watch.current.name]).toEqual([false, 'descriptors'])
    now = 15_000
    expect([watch.check(), watch.current.name]).toEqual([true, 'enough'])
  })

  it('believes who could not connect for want of a descriptor', () => {
    const watch = new ResourceWatch({ read: () => FINE, now: () => 0 })
    expect([watch.exhausted(), watch.current.name]).toEqual([true, 'descriptors'])
  })
})
