import { describe, expect, it } from 'vitest'
import {
  type BucketMemory,
  SlidingWindow,
  SPARE_WORD,
} from '../../../src/policy/limit/sliding-window.ts'

const WINDOW_MS = 60_000

function memoryOf(words: number): BucketMemory {
  const memory = new ArrayBuffer(words * 4)
  return { words: new Int32Array(memory), doubles: new Float64Array(memory) }
}

/** One bucket, behind another one so that it does not start at 0. */
function bucketOf(capacity: number, windowMs = WINDOW_MS) {
  const window = new SlidingWindow(capacity, windowMs)
  const memory = memoryOf(2 * window.words)
  const at = window.words
  return {
    window,
    memory,
    admit: (now: number) => window.admit(memory, at, now),
    waitMs: (now: number) => window.waitMs(memory, at, now),
    isIdle: (now: number) => window.isIdle(memory, at, now),
    times: () => window.times(memory, at),
    neighbour: () => [...memory.words.subarray(0, at)],
  }
}

describe('SlidingWindow', () => {
  it.each([
    [1, 8],
    [2, 8],
    [8, 14],
    [9, 16],
    [60, 66],
    [61, 38],
    [120, 66],
    [121, 48],
    [1_000, 66],
  ])('takes for a capacity of %d %d words, an even number', (capacity, words) => {
    expect(new SlidingWindow(capacity, WINDOW_MS).words).toBe(words)
  })

  it('leaves its neighbours alone, and the word that is not its own', () => {
    const bucket = bucketOf(3)
    const spare = bucket.window.words + SPARE_WORD
    bucket.memory.words[spare] = 0x1234_5678
    for (let now = 0; now < 5 * WINDOW_MS; now += 7_000) bucket.admit(now)
    expect(bucket.neighbour().every((word) => word === 0)).toBe(true)
    expect(bucket.memory.words[spare]).toBe(0x1234_5678)
  })

  it('says beforehand what it would answer, and changes nothing', () => {
    const bucket = bucketOf(3)
    for (let now = 0; now < 5 * WINDOW_MS; now += 9_000) {
      const before = [...bucket.memory.words]
      const waitMs = bucket.waitMs(now)
      expect([...bucket.memory.words]).toEqual(before)
      expect(bucket.admit(now)).toBe(waitMs)
    }
  })

  it('takes a slot back when its admission has left the window, and the next ones one by one', () => {
    const bucket = bucketOf(3)
    for (const now of [1_000, 2_000, 4_000]) expect(bucket.admit(now)).toBe(0)
    expect(bucket.admit(5_000)).toBe(56_000)
    expect(bucket.waitMs(60_999)).toBe(1)
    expect(bucket.waitMs(61_000)).toBe(0)
    expect(bucket.admit(62_000)).toBe(0)
    expect(bucket.admit(62_000)).toBe(0)
    expect(bucket.admit(62_000)).toBe(2_000)
    expect(bucket.times()).toEqual([4_000, 62_000, 62_000])
  })

  it('waits whole milliseconds that are enough, for times in between', () => {
    const bucket = bucketOf(1)
    bucket.admit(0.3)
    expect(bucket.waitMs(0.4)).toBe(60_000)
    expect(bucket.waitMs(60_000)).toBe(1)
    expect(bucket.waitMs(60_000.29)).toBe(1)
    expect(bucket.waitMs(60_000.4)).toBe(0)
  })

  it('ends to the unit, also for a time that falls between two of them', () => {
    const bucket = bucketOf(1)
    const between = 2 ** -20
    bucket.admit(between)
    expect(bucket.waitMs(WINDOW_MS + between)).toBe(0)
  })

  it('goes on where its times overflow 32 bits', () => {
    // One millisecond is 2^14 units in a window of a minute: 2^31 of them are 131,072 ms.
    for (let start = 131_072 - 30_000; start < 4 * 131_072; start += 131_072) {
      const bucket = bucketOf(2)
      expect(bucket.admit(start)).toBe(0)
      expect(bucket.admit(start + 20_000)).toBe(0)
      expect(bucket.admit(start + 40_000)).toBe(20_000)
      expect(bucket.times()).toEqual([start, start + 20_000])
      expect(bucket.admit(start + 59_999)).toBe(1)
      expect(bucket.admit(start + 60_000)).toBe(0)
      expect(bucket.admit(start + 79_999)).toBe(1)
      expect(bucket.admit(start + 80_000)).toBe(0)
    }
  })

  it('forgets everything after a window of silence, however long that was', () => {
    for (const silence of [60_000, 262_144, 262_144 + 30_000, 10 * 86_400_000]) {
      const bucket = bucketOf(2)
      bucket.admit(5_000)
      bucket.admit(5_000)
      expect(bucket.admit(5_000 + silence)).toBe(0)
      expect(bucket.times()).toEqual([5_000 + silence])
    }
  })

  it('is idle when the last admission has left the window', () => {
    const bucket = bucketOf(2)
    bucket.admit(1_000)
    bucket.admit(3_000)
    expect([62_999, 63_000].map(bucket.isIdle)).toEqual([false, true])
  })

  it('counts a group until its last admission has left', () => {
    // 120 are counted two by two, and the window slides by the second of each two.
    const bucket = bucketOf(120)
    for (let call = 0; call < 120; call += 1) expect(bucket.admit(call * 100)).toBe(0)
    expect(bucket.times()).toHaveLength(60)
    expect(bucket.times().slice(0, 2)).toEqual([100, 300])
    expect(bucket.admit(12_000)).toBe(48_100)
    expect(bucket.admit(60_099)).toBe(1)
    expect(bucket.admit(60_100)).toBe(0)
    expect(bucket.admit(60_100)).toBe(0)
    expect(bucket.admit(60_100)).toBe(200)
  })

  it('has the capacity also where the last group is not whole', () => {
    // 61 are two by two, in 31 groups.
    const bucket = bucketOf(61)
    for (let call = 0; call < 61; call += 1) expect(bucket.admit(1_000)).toBe(0)
    expect(bucket.admit(1_000)).toBe(60_000)
    expect(bucket.times()).toHaveLength(31)
  })

  it('tells no time after the last admission', () => {
    const bucket = bucketOf(2)
    bucket.admit(0.1 + 0.2)
    expect(bucket.times()).toEqual([0.1 + 0.2])
  })

  it('has a window of a day', () => {
    const day = 86_400_000
    const bucket = bucketOf(1, day)
    bucket.admit(1_000)
    expect(bucket.waitMs(2_000)).toBe(day - 1_000)
    expect(bucket.waitMs(day + 999)).toBe(1)
    expect(bucket.waitMs(day + 1_000)).toBe(0)
  })
})
