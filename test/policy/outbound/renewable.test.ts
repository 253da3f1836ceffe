import { describe, expect, it } from 'vitest'
import { Renewable } from '../../../src/policy/outbound/key-source.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

function createSource() {
  const clock = new ManualClock()
  const answers: (string | Error)[] = []
  let reads = 0
  const source = new Renewable({
    read: async () => {
      reads += 1
      const answer = answers.shift() ?? new Error('gone')
      if (answer instanceof Error) throw answer
      return answer
    },
    freshMs: 1_000,
    pauseMs: 100,
    paused: () => new Error('paused'),
    clock,
  })
  return { clock, answers, source, reads: () => reads }
}

describe('Renewable', () => {
  it('is read once for all who wait, and again when it is old', async () => {
    const { clock, answers, source, reads } = createSource()
    answers.push('one', 'two')
    expect(await Promise.all([source.current(), source.current()])).toEqual(['one', 'one'])
    await clock.advance(999)
    expect(await source.current()).toBe('one')
    expect(reads()).toBe(1)
    await clock.advance(1)
    expect(await source.current()).toBe('two')
  })

  it('leaves a source alone that has failed, and goes on with what it had', async () => {
    const { clock, answers, source, reads } = createSource()
    await expect(source.current()).rejects.toThrow('gone')
    await expect(source.current()).rejects.toThrow('paused')
    expect(reads()).toBe(1)
    await clock.advance(100)
    answers.push('one')
    expect(await source.current()).toBe('one')
    await clock.advance(1_000)
    expect(await source.current()).toBe('one')
    expect(await source.current()).toBe('one')
    expect(reads()).toBe(3)
  })

  it('is renewed for who misses something, now and then', async () => {
    const { clock, answers, source, reads } = createSource()
    answers.push('one', 'two')
    expect(await source.current()).toBe('one')
    expect(await source.renewed()).toBeUndefined()
    await clock.advance(100)
    expect(await source.renewed()).toBe('two')
    await clock.advance(100)
    expect(await source.renewed()).toBeUndefined()
    expect(await source.renewed()).toBeUndefined()
    expect(reads()).toBe(3)
  })
})
