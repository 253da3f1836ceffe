import { describe, expect, it } from 'vitest'
import { Lane, LaneMember } from '../../../src/policy/limit/lane.ts'

const LONG = 4_000
const SHORT = 999
const nextRound = () => new Promise((resolve) => setImmediate(resolve))

describe('a member of the lane', () => {
  it('does not wait before it was long, and no more when it is short again', async () => {
    const member = new LaneMember(new Lane())
    expect(member.hasToWait).toBe(false)
    member.ran(LONG)
    await nextRound()
    expect(member.hasToWait).toBe(true)
    member.ran(SHORT + 1)
    await nextRound()
    expect(member.hasToWait).toBe(true)
    member.ran(SHORT)
    expect(member.hasToWait).toBe(false)
  })

  it('waits in a round in which others were long already', async () => {
    const lane = new Lane()
    const [one, other] = [new LaneMember(lane), new LaneMember(lane)]
    for (let count = 0; count < 3; count += 1) one.ran(SHORT + 100)
    expect(other.hasToWait).toBe(false)
    one.ran(SHORT + 100)
    expect(other.hasToWait).toBe(true)
    await nextRound()
    expect(other.hasToWait).toBe(false)
  })

  it('does not wait for however many short ones', () => {
    const lane = new Lane()
    for (let count = 0; count < 1_000; count += 1) new LaneMember(lane).ran(SHORT)
    expect(new LaneMember(lane).hasToWait).toBe(false)
  })

  it('says where a stretch should end', () => {
    const member = new LaneMember(new Lane())
    expect([LONG - 1, LONG].map((steps) => member.isLong(steps))).toEqual([false, true])
  })

  it('is full when 256 wait, and nobody else is because of that', async () => {
    const lane = new Lane()
    const [one, other] = [new LaneMember(lane), new LaneMember(lane)]
    const turns = Array.from({ length: 255 }, () => one.turn())
    expect(one.isFull).toBe(false)
    turns.push(one.turn())
    expect([one.isFull, other.isFull]).toEqual([true, false])
    await turns[0]
    expect(one.isFull).toBe(false)
    await Promise.all(turns)
  })
})
