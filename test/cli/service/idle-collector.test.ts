import { PerformanceObserver } from 'node:perf_hooks'
import { runInNewContext } from 'node:vm'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import { type Heap, IdleCollector, ownHeap } from '../../../src/cli/service/idle-collector.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const MB = 1024 * 1024
const POLL_MS = 5_000

/** A heap that keeps `liveMb`, and a collection of it takes `pauseMs`. */
class TrialHeap implements Heap {
  usedMb = 15
  liveMb = 10
  pauseMs = 10
  collections = 0
  readonly times = { idle: 0, active: 0 }
  readonly clock = new ManualClock()

  usedBytes = () => this.usedMb * MB
  utilization = () => ({ ...this.times })
  collect = () => {
    this.collections += 1
    this.usedMb = this.liveMb
    return this.pauseMs
  }

  /** Time until the next look, at work for that share of it. */
  async pass(busy = 0): Promise<void> {
    this.times.active += busy * POLL_MS
    this.times.idle += (1 - busy) * POLL_MS
    await this.clock.advance(POLL_MS)
  }
}

describe('IdleCollector', () => {
  const running: IdleCollector[] = []
  afterEach(() => Promise.all(running.splice(0).map((it) => it.stop())))

  function startOn(heap: TrialHeap): IdleCollector {
    const collector = new IdleCollector({ heap, clock: heap.clock, log: captureLog().log })
    running.push(collector)
    collector.start()
    return collector
  }

  it('collects what the start has left as soon as nothing happens, once', async () => {
    const heap = new TrialHeap()
    startOn(heap)
    await heap.pass(0.4)
    expect(heap.collections).toBe(0)
    await heap.pass()
    expect(heap.collections).toBe(1)
    for (let n = 0; n < 100; n += 1) await heap.pass()
    expect(heap.collections).toBe(1)
  })

  it('collects again after a burst, when that is over', async () => {
    const heap = new TrialHeap()
    startOn(heap)
    await heap.pass()
    await heap.pass()
    Object.assign(heap, { usedMb: 60, liveMb: 20 })
    await heap.pass(0.06)
    expect(heap.collections).toBe(1)
    await heap.pass(0.04)
    expect([heap.collections, heap.usedMb]).toEqual([2, 20])
  })

  it('leaves little garbage where it is, and a quarter of a large heap', async () => {
    const heap = new TrialHeap()
    startOn(heap)
    await heap.pass()
    heap.usedMb = 13.9
    await heap.pass()
    await heap.pass()
    expect(heap.collections).toBe(1)
    Object.assign(heap, { usedMb: 50, liveMb: 40 })
    await heap.pass()
    heap.usedMb = 49.9
    for (let n = 0; n < 10; n += 1) await heap.pass()
    expect(heap.collections).toBe(2)
  })

  it('counts from what V8 has left by itself', async () => {
    const heap = new TrialHeap()
    startOn(heap)
    await heap.pass()
    heap.usedMb = 6
    await heap.pass()
    await heap.pass()
    heap.usedMb = 10.1
    await heap.pass()
    expect(heap.collections).toBe(2)
  })

  it('takes at most a thousandth of the time', async () => {
    const heap = new TrialHeap()
    heap.pauseMs = 100
    startOn(heap)
    for (let n = 0; n < 20; n += 1) {
      heap.usedMb = 30
      await heap.pass()
    }
    expect(heap.collections).toBe(1)
    await heap.pass()
    expect(heap.collections).toBe(2)
  })

  it('leaves a heap to V8 that would take long', async () => {
    const heap = new TrialHeap()
    heap.usedMb = 64.1
    startOn(heap)
    await heap.pass()
    await heap.pass()
    expect(heap.collections).toBe(0)
  })

  it('looks no more when it is stopped', async () => {
    const heap = new TrialHeap()
    const collector = startOn(heap)
    await collector.stop()
    await heap.pass()
    expect([heap.collections, heap.clock.sleeping]).toEqual([0, 0])
  })
})

/** In use after `work`, with what it has left. */
function heapAfter(work: () => unknown): number {
  work()
  return process.memoryUsage().heapUsed
}

describe('the heap of this process', () => {
  it('is of no use on an older Node', () => {
    expect(ownHeap('22.20.0')).toBe(undefined)
  })

  it('is collected when that is asked for, and says how long it took', async () => {
    let collections = 0
    const observer = new PerformanceObserver((list) => {
      collections += list.getEntries().length
    })
    observer.observe({ entryTypes: ['gc'] })
    onTestFinished(() => observer.disconnect())
    const heap = ownHeap('24.21.0')
    for (let n = 0; n < 20; n += 1) expect(heap?.collect()).toBeGreaterThan(0)
    await eventually(() => expect(collections).toBeGreaterThanOrEqual(20))
  })

  it('gives back what nobody needs, where it is of use', () => {
    const heap = ownHeap()
    expect(heap !== undefined).toBe(Number.parseInt(process.versions.node, 10) >= 24)
    const before = heapAfter(() => Array.from({ length: 1_000_000 }, (_, n) => ({ n })).length)
    heap?.collect()
    if (heap) expect(before - heap.usedBytes()).toBeGreaterThan(10 * MB)
  })

  it('leaves nobody else a collector', () => {
    ownHeap('24.21.0')?.collect()
    expect(runInNewContext('typeof gc')).toBe('undefined')
  })
})
