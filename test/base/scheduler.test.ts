import { afterEach, describe, expect, it, vi } from 'vitest'
import { Scheduler } from '../../src/base/scheduler.ts'

const nextRound = () => new Promise((resolve) => setImmediate(resolve))

afterEach(() => void vi.useRealTimers())

describe('Scheduler', () => {
  it('gives each round of the event loop one turn, to those who asked first', async () => {
    const scheduler = new Scheduler()
    const log: string[] = []
    let rounds = 0
    const work = async (name: string) => {
      for (const part of [1, 2]) {
        await scheduler.yield()
        log.push(`${name}${part} in ${rounds}`)
      }
    }
    const all = Promise.all([work('a'), work('b')])
    for (let n = 0; n < 6; n += 1) {
      await nextRound()
      rounds += 1
    }
    await all
    expect(log.map((line) => line.slice(0, 2))).toEqual(['a1', 'b1', 'a2', 'b2'])
    expect(new Set(log.map((line) => line.slice(2))).size).toBe(4)
  })

  it('gives owners turns, however many of them each asks for', async () => {
    const scheduler = new Scheduler()
    const [many, few] = [{}, {}]
    const log: string[] = []
    const ask = async (owner: object, name: string) => {
      await scheduler.yield(owner)
      log.push(name)
    }
    const all = [...Array(4).fill('many'), 'few', 'few'].map((name) =>
      ask(name === 'many' ? many : few, name),
    )
    expect([scheduler.waiting(many), scheduler.waiting(few)]).toEqual([4, 2])
    await Promise.all(all)
    expect(log).toEqual(['many', 'few', 'many', 'few', 'many', 'many'])
    expect([scheduler.waiting(many), scheduler.waiting(few)]).toEqual([0, 0])
  })

  it('has no turn while it rests, which is for as long as its turns took', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout'] })
    const scheduler = new Scheduler()
    vi.advanceTimersByTime(1_000)
    scheduler.restAfter(30)
    vi.advanceTimersByTime(20)
    scheduler.restAfter(20)
    let isOver = false
    const turn = scheduler.yield().then(() => {
      isOver = true
    })
    await nextRound()
    vi.advanceTimersByTime(49)
    await nextRound()
    expect(isOver).toBe(false)
    vi.advanceTimersByTime(1)
    await turn
  })

  it('gathers rests that are too short for a timer', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout'] })
    const scheduler = new Scheduler()
    vi.advanceTimersByTime(1_000)
    scheduler.restAfter(0.1)
    await scheduler.yield()
    scheduler.restAfter(0.5)
    scheduler.restAfter(0.6)
    let isOver = false
    const turn = scheduler.yield().then(() => {
      isOver = true
    })
    await nextRound()
    expect([isOver, vi.getTimerCount()]).toEqual([false, 1])
    vi.advanceTimersByTime(2)
    await turn
  })
})
