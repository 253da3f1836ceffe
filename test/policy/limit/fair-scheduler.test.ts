import { afterEach, describe, expect, it, vi } from 'vitest'
import { FairScheduler, SchedulerMember } from '../../../src/policy/limit/fair-scheduler.ts'

const LONG = 4_000
const SHORT = 999
const nextRound = () => new Promise((resolve) => setImmediate(resolve))

afterEach(() => void vi.useRealTimers())

describe('a member of the lane', () => {
  it('does not wait before it was long, and no more when it was short 64 times in a row', () => {
    const member = new SchedulerMember(new FairScheduler())
    expect(member.hasToWait).toBe(false)
    member.ran(LONG)
    for (let count = 0; count < 63; count += 1) member.ran(SHORT)
    member.ran(SHORT + 1)
    for (let count = 0; count < 63; count += 1) member.ran(SHORT)
    expect(member.hasToWait).toBe(true)
    member.ran(SHORT)
    expect(member.hasToWait).toBe(false)
  })

  it('waits in a round in which others were long already', async () => {
    const lane = new FairScheduler()
    const [one, other] = [new SchedulerMember(lane), new SchedulerMember(lane)]
    for (let count = 0; count < 3; count += 1) one.ran(SHORT + 100)
    expect(other.hasToWait).toBe(false)
    one.ran(SHORT + 100)
    expect(other.hasToWait).toBe(true)
    await nextRound()
    expect(other.hasToWait).toBe(false)
  })

  it('does not wait in any round when it is known to be short', () => {
    const lane = new FairScheduler()
    const [short, other] = [new SchedulerMember(lane), new SchedulerMember(lane)]
    for (let count = 0; count < 64; count += 1) short.ran(SHORT)
    for (let count = 0; count < 4; count += 1) other.ran(SHORT + 100)
    expect([short.hasToWait, other.hasToWait]).toEqual([false, true])
    short.ran(SHORT + 1)
    expect(short.hasToWait).toBe(true)
  })

  it('rests for as long as a turn took, and lets those go on who were not long', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout'] })
    const lane = new FairScheduler()
    const [long, usual] = [new SchedulerMember(lane), new SchedulerMember(lane)]
    long.ran(LONG)
    await nextRound()
    await long.inTurn(() => vi.advanceTimersByTime(20))
    let isLongNext = false
    const next = long.inTurn(() => {
      isLongNext = true
    })
    await usual.inTurn(() => {})
    await nextRound()
    vi.advanceTimersByTime(19)
    await nextRound()
    expect(isLongNext).toBe(false)
    vi.advanceTimersByTime(1)
    await next
  })

  it('does not wait for however many short ones', () => {
    const lane = new FairScheduler()
    for (let count = 0; count < 1_000; count += 1) new SchedulerMember(lane).ran(SHORT)
    expect(new SchedulerMember(lane).hasToWait).toBe(false)
  })

  it('does not wait behind those who are costly when it is not', async () => {
    const lane = new FairScheduler()
    const order: string[] = []
    const enter = (name: string, member: SchedulerMember) => member.inTurn(() => order.push(name))
    const costly = Array.from({ length: 20 }, () =>
      enter('costly', new SchedulerMember(lane, 'long')),
    )
    const calm = enter('calm', new SchedulerMember(lane))
    await calm
    expect(order.length).toBeLessThanOrEqual(2)
    await Promise.all(costly)
    expect(order.filter((name) => name === 'costly')).toHaveLength(20)
  })

  it('says where a stretch should end', () => {
    const member = new SchedulerMember(new FairScheduler())
    expect([LONG - 1, LONG].map((steps) => member.isLong(steps))).toEqual([false, true])
  })

  it('is full when 256 wait, and nobody else is because of that', async () => {
    const lane = new FairScheduler()
    const [one, other] = [new SchedulerMember(lane), new SchedulerMember(lane)]
    const turns = Array.from({ length: 255 }, () => one.inTurn(() => {}))
    expect(one.isFull).toBe(false)
    turns.push(one.inTurn(() => {}))
    expect([one.isFull, other.isFull]).toEqual([true, false])
    await turns[0]
    expect(one.isFull).toBe(false)
    await Promise.all(turns)
  })
})
