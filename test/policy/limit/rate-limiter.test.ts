import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { expectWithinCapacity, TimedLimiter, WINDOW_MS } from '../../helpers/timed-limiter.ts'

/** Up to this capacity every admission is remembered on its own. */
const EXACT_CAPACITY = 60

/** What a limiter would do that remembers the time of each admission. */
class ExactModel {
  readonly #capacity: number
  readonly #times: number[] = []
  #oldest = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  admits(now: number): boolean {
    while (now - (this.#times[this.#oldest] ?? now) >= WINDOW_MS) this.#oldest += 1
    if (this.#times.length - this.#oldest >= this.#capacity) return false
    this.#times.push(now)
    return true
  }
}

type Arrivals = (capacity: number, random: () => number) => number[]

function until(endMs: number, nextGap: () => number): number[] {
  const times: number[] = []
  for (let now = nextGap(); now < endMs; now += nextGap()) times.push(now)
  return times
}

const exponential = (random: () => number, meanMs: number) => -Math.log(1 - random()) * meanMs
const poisson =
  (load: number): Arrivals =>
  (capacity, random) =>
    until(8 * WINDOW_MS, () => exponential(random, WINDOW_MS / capacity / load))
const sorted = (times: number[]) => times.sort((a, b) => a - b)
const repeat = <T>(count: number, make: (index: number) => T) =>
  Array.from({ length: Math.max(1, Math.floor(count)) }, (_, index) => make(index))

/** How clients may behave, from patient to hostile. */
const PATTERNS: Readonly<Record<string, Arrivals>> = {
  'a steady stream below the capacity': poisson(0.9),
  'a steady stream at the capacity': poisson(1),
  'a steady stream of half as much again': poisson(1.5),
  'a flood of five times the capacity': poisson(5),
  'requests in even steps, as many as are allowed': (capacity) =>
    repeat(8 * capacity, (index) => Math.round((index * WINDOW_MS) / capacity)),
  'bursts at random': (capacity, random) =>
    sorted(
      until(8 * WINDOW_MS, () => exponential(random, WINDOW_MS / 10)).flatMap((start) =>
        repeat((random() * capacity) / 3, () => start + random() * 10),
      ),
    ),
  'a burst of all that is allowed, once in a window': (capacity) =>
    repeat(8, (index) => repeat(capacity, () => index * WINDOW_MS + 7)).flat(),
  'a burst within two seconds, once in a window': (capacity, random) =>
    sorted(
      repeat(8, (index) => repeat(capacity, () => index * WINDOW_MS + random() * 2_000)).flat(),
    ),
  'bursts on both sides of the edges of windows': (capacity) =>
    repeat(8, (index) =>
      [-1, 0, 1].flatMap((offset) => repeat(capacity / 2, () => (index + 1) * WINDOW_MS + offset)),
    ).flat(),
  'bursts at the edges among a steady stream': (capacity, random) =>
    sorted([
      ...repeat(8, (index) =>
        [-1, 0, 1].flatMap((offset) =>
          repeat(capacity / 4, () => (index + 1) * WINDOW_MS + offset),
        ),
      ).flat(),
      ...poisson(0.5)(capacity, random),
    ]),
  'silence, bursts and streams in turns': (capacity, random) => {
    const times: number[] = []
    for (let now = 0; now < 8 * WINDOW_MS; ) {
      const dice = random()
      if (dice < 0.3) now += (random() * WINDOW_MS) / 3
      else if (dice < 0.5) times.push(...repeat(capacity / 20, () => now))
      else {
        for (let left = capacity / 30; left > 0; left -= 1) {
          now += (random() * WINDOW_MS) / capacity
          times.push(now)
        }
      }
    }
    return times
  },
}

interface Run {
  readonly admitted: readonly number[]
  readonly decisions: readonly boolean[]
}

function run(capacity: number, times: readonly number[]): Run {
  const limiter = new TimedLimiter({ capacity, windowMs: WINDOW_MS })
  const decisions = times.map((time) => limiter.admit('key', time) === 0)
  return { decisions, admitted: times.filter((_, index) => decisions[index]) }
}

const seeded = (seed: number) => {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

describe('RateLimiter', () => {
  describe.each(Object.entries(PATTERNS))('under %s', (_, arrivals) => {
    it('never admits more than the capacity in any window', () => {
      fc.assert(
        fc.property(fc.integer({ min: 1, max: 2_000 }), fc.nat(), (capacity, seed) => {
          expectWithinCapacity(run(capacity, arrivals(capacity, seeded(seed))).admitted, capacity)
        }),
        { numRuns: 25 },
      )
    })

    it(`decides like an exact log up to a capacity of ${EXACT_CAPACITY}`, () => {
      fc.assert(
        fc.property(fc.integer({ min: 1, max: EXACT_CAPACITY }), fc.nat(), (capacity, seed) => {
          const times = arrivals(capacity, seeded(seed)).map(Math.round)
          const model = new ExactModel(capacity)
          expect(run(capacity, times).decisions).toEqual(times.map((time) => model.admits(time)))
        }),
        { numRuns: 25 },
      )
    })

    it('admits at least 98 % of what an exact log would from a capacity of 100', () => {
      fc.assert(
        fc.property(fc.integer({ min: 100, max: 3_000 }), fc.nat(), (capacity, seed) => {
          const times = arrivals(capacity, seeded(seed))
          const model = new ExactModel(capacity)
          const possible = times.filter((time) => model.admits(time)).length
          const { admitted } = run(capacity, times)
          expect(admitted.length / possible).toBeGreaterThanOrEqual(0.98)
        }),
        { numRuns: 15 },
      )
    })
  })

  it('keeps the promise for any times whatsoever', () => {
    const gap = fc.oneof(
      fc.double({ min: 0, max: 3, noNaN: true }),
      fc.integer({ min: 0, max: 2 * WINDOW_MS }),
      fc.constantFrom(0, 1, WINDOW_MS - 1, WINDOW_MS, WINDOW_MS + 1, 3 * WINDOW_MS),
    )
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 150 }),
        fc.array(gap, { minLength: 1, maxLength: 600 }),
        (capacity, gaps) => {
          let now = 0
          const times = gaps.map((step) => {
            now += step
            return now
          })
          expectWithinCapacity(run(capacity, times).admitted, capacity)
        },
      ),
      { numRuns: 200 },
    )
  })

  it('takes a clock that steps back for one that stands still', () => {
    const limiter = new TimedLimiter({ capacity: 2, windowMs: WINDOW_MS })
    expect(limiter.admit('key', 100_000)).toBe(0)
    expect(limiter.admit('key', 10_000)).toBe(0)
    expect(limiter.admit('key', 20_000)).toBe(WINDOW_MS)
    expect(limiter.admit('key', 159_999)).toBe(1)
    expect(limiter.admit('key', 160_000)).toBe(0)
  })

  it('frees everything after a clock that steps far ahead', () => {
    const limiter = new TimedLimiter({ capacity: 100, windowMs: WINDOW_MS })
    for (let call = 0; call < 200; call += 1) limiter.admit('key', 1_000)
    const admitted = repeat(200, () => limiter.admit('key', 1_000 + 400 * 86_400_000))
    expect(admitted.filter((wait) => wait === 0)).toHaveLength(100)
  })

  it.each([1, 5, 8, 9, 60, 61, 100, 1_000, 65_536, 2_000_000_000])(
    'says truly when a slot is certain, with a capacity of %d',
    (capacity) => {
      const limiter = new TimedLimiter({ capacity, windowMs: WINDOW_MS })
      const calls = Math.min(capacity, 5_000)
      for (let call = 0; call < calls; call += 1) limiter.admit('key', 1_000 + call)
      const waitMs = limiter.admit('key', 31_000)
      if (calls < capacity) return expect(waitMs).toBe(0)
      expect(waitMs).toBeGreaterThan(0)
      expect(waitMs).toBeLessThanOrEqual(WINDOW_MS)
      expect(limiter.admit('key', 31_000 + waitMs - 1)).toBeGreaterThan(0)
      expect(limiter.admit('key', 31_000 + waitMs)).toBe(0)
    },
  )

  it.each([60_000, 70_000, 90_000, 3_600_000, 86_400_000])(
    'is exact at the edge of a window of %d ms',
    (windowMs) => {
      for (const start of [0, 7, 12_345.5, 9_876_543_210]) {
        const limiter = new TimedLimiter({ capacity: 1, windowMs })
        expect(limiter.admit('key', start)).toBe(0)
        expect(limiter.admit('key', start + windowMs - 1)).toBeGreaterThan(0)
        expect(limiter.admit('key', start + windowMs)).toBe(0)
      }
    },
  )

  it('counts only what it admitted, so that a blocked client recovers by time alone', () => {
    const limiter = new TimedLimiter({ capacity: 3, windowMs: WINDOW_MS })
    for (let call = 0; call < 3; call += 1) limiter.admit('key', 1_000)
    for (let now = 1_001; now < 61_000; now += 10) expect(limiter.admit('key', now)).not.toBe(0)
    expect(limiter.admit('key', 61_000)).toBe(0)
  })

  it('counts each key by itself', () => {
    const limiter = new TimedLimiter({ capacity: 1, windowMs: WINDOW_MS })
    for (let key = 0; key < 5_000; key += 1) expect(limiter.admit(`key ${key}`, 1_000)).toBe(0)
    for (let key = 0; key < 5_000; key += 1) expect(limiter.admit(`key ${key}`, 1_001)).not.toBe(0)
  })
})

describe('the buckets of a RateLimiter', () => {
  const addressOf = (key: number) => `10.${key >>> 16}.${(key >>> 8) & 255}.${key & 255}`

  it('take at most 300 bytes each, and 80 for clients that send little', () => {
    const few = new TimedLimiter({ capacity: 1_000, windowMs: WINDOW_MS })
    const many = new TimedLimiter({ capacity: 1_000, windowMs: WINDOW_MS })
    for (let key = 0; key < 98_304; key += 1) few.admit(`key ${key}`, 1_000, addressOf(key))
    for (let key = 0; key < 24_576; key += 1) {
      for (let call = 0; call < 9; call += 1) many.admit(`key ${key}`, 1_000, addressOf(key))
    }
    expect(few.figures.bytes / few.buckets).toBeLessThan(80)
    expect(many.figures.bytes / many.buckets).toBeLessThan(300)
  })

  it('are swept while other keys come', () => {
    const limiter = new TimedLimiter({ capacity: 10, windowMs: WINDOW_MS })
    for (let key = 0; key < 10_000; key += 1) limiter.admit(`old ${key}`, 1_000)
    for (let now = 2_000; now < 1_000 + 3 * WINDOW_MS; now += 500) limiter.admit('alive', now)
    expect(limiter.buckets).toBeLessThan(20)
  })

  it('are given back after a window of silence', () => {
    const limiter = new TimedLimiter({ capacity: 10, windowMs: WINDOW_MS })
    for (let key = 0; key < 50_000; key += 1) limiter.admit(`old ${key}`, 1_000)
    const before = limiter.figures.bytes
    limiter.admit('new', 1_000 + WINDOW_MS)
    expect([limiter.buckets, limiter.figures.bytes < before / 100]).toEqual([1, true])
  })

  it('keep their counts while others are swept around them', () => {
    fc.assert(
      fc.property(fc.nat(), (seed) => {
        const random = seeded(seed)
        const limiter = new TimedLimiter({ capacity: 12, windowMs: WINDOW_MS })
        const models = new Map<string, ExactModel>()
        for (let now = 0; now < 6 * WINDOW_MS; now += random() * 60) {
          const key = `key ${Math.floor(random() ** 3 * 400)}`
          const model = models.get(key) ?? new ExactModel(12)
          models.set(key, model)
          expect(limiter.admit(key, Math.round(now)) === 0).toBe(model.admits(Math.round(now)))
        }
      }),
      { numRuns: 5 },
    )
  })

  it('are looked at a few at a time, however many are due', () => {
    const limiter = new TimedLimiter({ capacity: 1, windowMs: WINDOW_MS })
    for (let key = 0; key < 10_000; key += 1) limiter.admit(`old ${key}`, 0)
    limiter.admit('alive', 40_000)
    limiter.admit('alive', 80_000)
    expect(limiter.buckets).toBeGreaterThanOrEqual(10_001 - 1_024)
    expect(limiter.buckets).toBeLessThan(10_001)
  })

  it('are one for each key, also for one that has moved into a large bucket', () => {
    const limiter = new TimedLimiter({ capacity: 100, windowMs: WINDOW_MS })
    for (let call = 0; call < 100; call += 1) limiter.admit('key', call)
    expect(limiter.buckets).toBe(1)
  })
})
