import { describe, expect, it } from 'vitest'
import { OwnerCounts } from '../../../src/policy/limit/rate-limiter.ts'
import { seeded } from '../../helpers/seeded.ts'

describe('OwnerCounts', () => {
  it('takes 32 kB', () => {
    expect(new OwnerCounts().bytes).toBe(32_768)
  })

  it('counts each owner up and down', () => {
    const owners = new OwnerCounts()
    expect(owners.of(0x00ab_c123)).toBe(0)
    owners.change(0x00ab_c123, 1)
    owners.change(0x00ab_c123, 1)
    owners.change(0x0045_6789, 1)
    expect([owners.of(0x00ab_c123), owners.of(0x0045_6789)]).toEqual([2, 1])
    owners.change(0x00ab_c123, -1)
    expect([owners.of(0x00ab_c123), owners.of(0x0045_6789)]).toEqual([1, 1])
  })

  it('tells owners apart that share one of their two counters', () => {
    const owners = new OwnerCounts()
    for (let call = 0; call < 5; call += 1) owners.change(0x0011_1222, 1)
    expect(owners.of(0x0033_3222)).toBe(0)
    expect(owners.of(0x0011_1333)).toBe(0)
    // A counter of one row is no counter of the other.
    expect(owners.of(0x0022_2111)).toBe(0)
    expect(owners.of(0x0011_1222)).toBe(5)
  })

  it('is never too low, and hardly ever too high', () => {
    const random = seeded(7)
    const owners = new OwnerCounts()
    const exact = new Map<number, number>()
    const hashes = Array.from({ length: 500 }, () => (random() * 2 ** 32) | 0)
    for (let step = 0; step < 20_000; step += 1) {
      const owner = hashes[Math.floor(random() * 500)] as number
      const count = exact.get(owner) ?? 0
      const by = count > 0 && random() < 0.45 ? -1 : 1
      owners.change(owner, by)
      exact.set(owner, count + by)
    }
    const wrong = hashes.filter((owner) => owners.of(owner) !== exact.get(owner))
    for (const owner of wrong) {
      expect(owners.of(owner)).toBeGreaterThan(exact.get(owner) as number)
    }
    expect(wrong.length).toBeLessThan(20)
  })
})
