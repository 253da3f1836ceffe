import { describe, expect, it } from 'vitest'
import { IdleEnd } from '../../../src/gateway/agents/departure.ts'
import { startSlots } from '../../helpers/slots-rig.ts'

/** Something with work under way that never ends, which is to end within 10 s. */
async function begin() {
  const { clock, slots } = await startSlots()
  const ending = new IdleEnd({ slots, clock })
  let ends = 0
  const wanted = {
    isIdle: () => false,
    end: () => {
      ends += 1
    },
  }
  ending.begin(wanted, 10_000)
  return { clock, ending, wanted, ends: () => ends }
}

describe('IdleEnd', () => {
  it('ends what is busy after its time', async () => {
    const { clock, ends } = await begin()
    await clock.advance(9_999)
    expect(ends()).toBe(0)
    await clock.advance(1)
    expect(ends()).toBe(1)
  })

  it('allows more time, but never past a minute from when the end was wanted', async () => {
    const { clock, ending, ends } = await begin()
    await clock.advance(9_000)
    ending.allow(600_000)
    await clock.advance(50_999)
    expect(ends()).toBe(0)
    await clock.advance(1)
    expect(ends()).toBe(1)
  })

  it('allows it once: who asks again and again ends all the same', async () => {
    const { clock, ending, ends } = await begin()
    for (let second = 0; second < 15; second += 1) {
      await clock.advance(1_000)
      ending.allow(10_000)
    }
    expect(ends()).toBe(1)
    await clock.advance(600_000)
    expect(ends()).toBe(1)
  })

  it('counts the minute anew for an end that is wanted anew', async () => {
    const { clock, ending, wanted, ends } = await begin()
    await clock.advance(9_000)
    ending.allow(60_000)
    await clock.advance(50_000)
    ending.begin(wanted, 10_000)
    ending.allow(60_000)
    await clock.advance(59_999)
    expect(ends()).toBe(0)
    await clock.advance(1)
    expect(ends()).toBe(1)
  })

  it('ends nothing after it was stopped, and allows nothing then', async () => {
    const { clock, ending, ends } = await begin()
    ending.stop()
    ending.allow(1_000)
    await clock.advance(60_000)
    expect(ends()).toBe(0)
  })
})
