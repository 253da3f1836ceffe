import { describe, expect, it } from 'vitest'
import { SharedBuckets } from '../../../src/policy/limit/shared-buckets.ts'
import { SlidingWindow } from '../../../src/policy/limit/sliding-window.ts'

const WINDOW_MS = 60_000
const sharedOf = (capacity: number) => new SharedBuckets(new SlidingWindow(capacity, WINDOW_MS))

describe('SharedBuckets', () => {
  it('admits what fits into the bucket of the key and into that of the address', () => {
    const shared = sharedOf(2)
    expect(shared.admit(1, 10, 0)).toBe(0)
    expect(shared.admit(1, 11, 1_000)).toBe(0)
    // The key is full, then the address.
    expect(shared.admit(1, 12, 2_000)).toBe(58_000)
    expect(shared.admit(2, 12, 3_000)).toBe(0)
    expect(shared.admit(3, 12, 4_000)).toBe(0)
    expect(shared.admit(4, 12, 5_000)).toBe(58_000)
    // Both are, until the later one has room.
    expect(shared.admit(1, 12, 6_000)).toBe(57_000)
    expect([shared.decisions, shared.refusals]).toEqual([7, 3])
    expect(shared.admit(4, 12, 63_000)).toBe(0)
  })

  it('has 1,024 buckets of each kind', () => {
    const shared = sharedOf(1)
    for (let slot = 0; slot < 1_024; slot += 1) expect(shared.admit(slot, slot, 0)).toBe(0)
    for (let slot = 0; slot < 1_024; slot += 1) {
      expect(shared.admit(slot + 1_024, -1_024 + slot, 1)).toBe(59_999)
    }
    expect([shared.decisions, shared.refusals]).toEqual([2_048, 1_024])
    expect(shared.bytes).toBe(2 * 1_024 * 8 * 4)
  })

  it('counts for a key what was admitted to it, until that has left the window', () => {
    const shared = sharedOf(3)
    expect(shared.counts(5, 0)).toBe(false)
    shared.admit(5, 10, 70_000)
    expect(shared.counts(5, 70_000)).toBe(true)
    expect(shared.counts(5 + 1_024, 129_999)).toBe(true)
    expect(shared.counts(5, 130_000)).toBe(false)
    // Not for an address of that number, nor for other keys.
    expect(shared.counts(10, 70_000)).toBe(false)
    expect(shared.counts(6, 70_000)).toBe(false)
  })

  it('gives another bucket what a key was admitted', () => {
    const window = new SlidingWindow(3, WINDOW_MS)
    const shared = new SharedBuckets(window)
    shared.admit(5, 10, 70_000)
    shared.admit(5, 11, 75_000)
    const memory = new ArrayBuffer(3 * window.words * 4)
    const bucket = { words: new Int32Array(memory), doubles: new Float64Array(memory) }
    shared.copyTo(5, bucket, window.words)
    expect(window.times(bucket, window.words)).toEqual([70_000, 75_000])
    expect(window.times(bucket, 0)).toEqual([])
    expect(window.times(bucket, 2 * window.words)).toEqual([])
  })

  it('holds no memory before the first decision, nor after a window without admission', () => {
    const shared = sharedOf(1)
    expect(shared.bytes).toBe(0)
    shared.admit(1, 10, 5_000)
    const { bytes } = shared
    expect(bytes).toBeGreaterThan(0)
    // What is refused counts nowhere.
    shared.admit(1, 10, 64_999)
    shared.release(64_999, WINDOW_MS)
    expect(shared.bytes).toBe(bytes)
    shared.release(65_000, WINDOW_MS)
    expect(shared.bytes).toBe(0)
    expect(shared.admit(1, 10, 65_001)).toBe(0)
  })
})
