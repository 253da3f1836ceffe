import { describe, expect, it } from 'vitest'
import { Handover } from '../../src/base/handover.ts'

/** A part that notes what it is told, and throws at what it is told to. */
function part(name: string, told: string[], failing = '') {
  const tell = (what: string) => () => {
    told.push(`${what} ${name}`)
    if (failing === what) throw new Error(`${what} ${name}`)
  }
  return { release: tell('release'), reclaim: tell('reclaim') }
}

describe('Handover', () => {
  it('takes back nothing of a chain before what could not be', async () => {
    const told: string[] = []
    const parts = [part('folder', told), part('database', told), part('lock', told, 'reclaim')]
    const handover = new Handover([part('api', told), new Handover(parts, { isChain: true })])
    await handover.release()
    await expect(handover.reclaim()).rejects.toThrow('reclaim lock')
    expect(told.slice(4)).toEqual(['reclaim lock', 'reclaim api'])
  })

  it('takes back in reverse order what it has let go of', async () => {
    const told: string[] = []
    const handover = new Handover([part('a', told), part('b', told)])
    await handover.release()
    await handover.reclaim()
    expect(told).toEqual(['release a', 'release b', 'reclaim b', 'reclaim a'])
    await handover.reclaim()
    expect(told).toHaveLength(4)
  })

  it('has let go of nothing when something cannot be', async () => {
    const told: string[] = []
    const handover = new Handover([part('a', told), part('b', told, 'release'), part('c', told)])
    await expect(handover.release()).rejects.toThrow('release b')
    expect(told).toEqual(['release a', 'release b', 'reclaim a'])
  })

  it('takes back what it can, and says what it cannot', async () => {
    const told: string[] = []
    const handover = new Handover([part('a', told), part('b', told, 'reclaim')])
    await handover.release()
    await expect(handover.reclaim()).rejects.toThrow('reclaim b')
    expect(told.slice(2)).toEqual(['reclaim b', 'reclaim a'])
  })
})
