import { describe, expect, it } from 'vitest'
import { RateMeter } from '../../../../src/gateway/ingress/common/progress-watch.ts'

/** The rate after each second in which so many bytes moved and so many were held. */
function rates(seconds: readonly (readonly [moved: number, held: number])[]) {
  const meter = new RateMeter()
  let all = 0
  return seconds.map(([moved, held], second) => {
    all += moved
    meter.measure(all, held, second * 1_000)
    return meter.rate
  })
}

const times = <Item>(count: number, item: Item) => Array<Item>(count).fill(item)

describe('RateMeter', () => {
  it('says nothing for ten seconds, then the mean of ten', () => {
    const seen = rates([...times(5, [100, 0] as const), ...times(8, [300, 0] as const)])
    expect(seen.slice(0, 10)).toEqual(times(10, undefined))
    expect(seen[10]).toBe((4 * 100 + 6 * 300) / 10)
  })

  it('does not blame a reader for bytes that may have gone on', () => {
    // 262,144 bytes in one write: 17 kB/s take more than 15 s of it.
    const seen = rates(times(30, [0, 262_144] as const))
    expect(seen[15]).toBeGreaterThan(16_000)
    expect(seen[17]).toBeLessThan(16_000)
  })

  it('forgets what was fast once', () => {
    const seen = rates([...times(11, [100_000, 0] as const), ...times(30, [0, 0] as const)])
    expect(seen[11]).toBe(100_000)
    expect(seen.at(-1)).toBe(0)
  })
})
