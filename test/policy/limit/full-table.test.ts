import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { KeyHash } from '../../../src/policy/limit/key-hash.ts'
import { seeded } from '../../helpers/seeded.ts'
import { expectWithinCapacity, TimedLimiter, WINDOW_MS } from '../../helpers/timed-limiter.ts'

/** The same hashes in each run: what meets in a bucket is the same, too. */
const limiterOf = (capacity: number, maxBuckets: number) =>
  new TimedLimiter({ capacity, maxBuckets, windowMs: WINDOW_MS, hash: new KeyHash(FIXED) })
const FIXED = Buffer.from('limiters')

const address = (number: number) => `10.${number >>> 16}.${(number >>> 8) & 255}.${number & 255}`
const attacker = (number: number) => `203.0.113.${number}`

/** Ever new keys, from `addresses` in turns. */
function flood(limiter: TimedLimiter, keys: number, now: number, addresses = 1): void {
  for (let key = 0; key < keys; key += 1) {
    limiter.admit(`flood ${now} ${key}`, now, attacker(key % addresses))
  }
}

/** How many of so many calls are admitted. */
function admittedOf(calls: number, admit: () => number): number {
  let admitted = 0
  for (let call = 0; call < calls; call += 1) admitted += admit() === 0 ? 1 : 0
  return admitted
}

describe('a RateLimiter with a full table', () => {
  it('never admits more than the capacity of a key in any window, whoever asks for it', () => {
    let admissions = 0
    let shared = 0
    fc.assert(
      fc.property(
        fc.record({
          capacity: fc.oneof(
            fc.integer({ min: 1, max: 12 }),
            fc.constantFrom(3, 8, 9, 60, 61, 100, 150),
          ),
          maxBuckets: fc.integer({ min: 0, max: 40 }),
          keys: fc.integer({ min: 1, max: 120 }),
          addresses: fc.integer({ min: 1, max: 30 }),
          calls: fc.integer({ min: 100, max: 2_000 }),
          windows: fc.integer({ min: 1, max: 8 }),
          seed: fc.nat(),
        }),
        ({ capacity, maxBuckets, keys, addresses, calls, windows, seed }) => {
          const random = seeded(seed)
          const limiter = limiterOf(capacity, maxBuckets)
          const admitted = new Map<string, number[]>()
          let now = random() * WINDOW_MS
          for (let call = 0; call < calls; call += 1) {
            // Some come at once; now and then nothing comes for so long that buckets are given back.
            if (random() < 0.7) now += ((2 * windows * WINDOW_MS) / calls) * random()
            if (random() < 0.002) now += 1.5 * WINDOW_MS * random()
            const key = `key ${Math.floor(random() ** 2 * keys)}`
            if (limiter.admit(key, now, address(Math.floor(random() * addresses))) !== 0) continue
            const times = admitted.get(key)
            if (times) times.push(now)
            else admitted.set(key, [now])
          }
          expect(limiter.buckets).toBeLessThanOrEqual(maxBuckets)
          for (const times of admitted.values()) {
            expectWithinCapacity(times, capacity)
            admissions += times.length
          }
          shared += limiter.shared
        },
      ),
      { numRuns: 60 },
    )
    // It was about something.
    expect(admissions).toBeGreaterThan(5_000)
    expect(shared).toBeGreaterThan(5_000)
  })

  it.each([
    { capacity: 3, used: 3 },
    { capacity: 10, used: 5 },
    { capacity: 10, used: 10 },
    { capacity: 100, used: 100 },
  ])(
    'gives a key that had to share no second helping: $used of $capacity used',
    ({ capacity, used }) => {
      const limiter = limiterOf(capacity, 2)
      const late = (time: number) => () => limiter.admit('late', time, '198.51.100.3')
      limiter.admit('first', 0, '198.51.100.1')
      limiter.admit('second', 0, '198.51.100.2')
      expect(admittedOf(used, late(30_000))).toBe(used)
      expect([limiter.buckets, limiter.shared]).toEqual([2, used])
      // The first two are swept now, and there is room for a bucket of its own.
      expect(admittedOf(2 * capacity, late(60_000))).toBe(capacity - used)
      expect([limiter.buckets, limiter.shared]).toEqual([1, used])
      expect(admittedOf(2 * capacity, late(90_000))).toBe(used)
    },
  )

  it('refuses nobody for one address with ever new keys', () => {
    const limiter = limiterOf(10, 1_000)
    flood(limiter, 5_000, 1_000)
    expect(limiter.buckets).toBe(200)
    for (let client = 0; client < 800; client += 1) {
      const take = () => limiter.admit(`client ${client}`, 2_000, address(client))
      expect(admittedOf(3, take)).toBe(3)
    }
  })

  it.each([
    { attackers: 1, newcomers: 1_000 },
    { attackers: 10, newcomers: 1_000 },
    { attackers: 10, newcomers: 4_000 },
    { attackers: 100, newcomers: 1_000 },
    { attackers: 250, newcomers: 1_000 },
  ])(
    'refuses at most $attackers of 512 of $newcomers newcomers for $attackers such addresses',
    ({ attackers, newcomers }) => {
      const limiter = limiterOf(20, 1_000)
      // The table is full before the first of them comes.
      for (let owner = 0; limiter.buckets < 1_000; owner += 1) {
        limiter.admit(`early ${owner}`, 500, `172.16.${owner >>> 8}.${owner & 255}`)
      }
      flood(limiter, 40 * attackers, 1_000, attackers)
      let refused = 0
      for (let client = 0; client < newcomers; client += 1) {
        refused += limiter.admit(`client ${client}`, 2_000, address(client)) === 0 ? 0 : 1
      }
      const expected = (newcomers * attackers) / 512
      expect(refused).toBeLessThanOrEqual(expected + 3 * Math.sqrt(expected))
    },
  )
})

describe('the buckets of one address', () => {
  it.each([
    { addresses: 1, buckets: 200 },
    { addresses: 4, buckets: 500 },
    { addresses: 12, buckets: 750 },
  ])(
    'are no more than a quarter of what is free: $buckets of 1,000 for $addresses',
    ({ addresses, buckets }) => {
      const limiter = limiterOf(10, 1_000)
      flood(limiter, 5_000, 1_000, addresses)
      expect(limiter.buckets).toBeGreaterThanOrEqual(buckets)
      expect(limiter.buckets).toBeLessThan(buckets + addresses)
    },
  )

  it.each([
    { addresses: 1, buckets: 200 },
    { addresses: 2, buckets: 360 },
    { addresses: 10, buckets: 893 },
  ])('leave some when $addresses come one after the other', ({ addresses, buckets }) => {
    const limiter = limiterOf(10, 1_000)
    for (let from = 0; from < addresses; from += 1) {
      for (let key = 0; key < 2_000; key += 1) limiter.admit(`${from} ${key}`, 0, attacker(from))
    }
    expect(limiter.buckets).toBeGreaterThanOrEqual(buckets)
    expect(limiter.buckets).toBeLessThan(buckets + addresses)
  })

  it('are those of its /64 with IPv6', () => {
    const limiter = limiterOf(10, 1_000)
    for (let key = 0; key < 5_000; key += 1) {
      limiter.admit(`key ${key}`, 0, `2001:db8::${key.toString(16)}:1`)
    }
    expect(limiter.buckets).toBe(200)
    limiter.admit('neighbour', 0, '2001:db8:0:1::1')
    expect(limiter.buckets).toBe(201)
  })

  it.each([
    ['small', 1],
    ['large', 15],
  ])('count no more when they have been swept: %s ones', (_, calls) => {
    const limiter = limiterOf(20, 1_000)
    for (let round = 0; round < 5; round += 1) {
      const now = round * 4 * WINDOW_MS
      for (let key = 0; key < 600; key += 1) {
        for (let call = 0; call < calls; call += 1) limiter.admit(`${round} ${key}`, now)
      }
      expect(limiter.buckets).toBe(200)
      // Somebody else keeps it from being cleared at once.
      for (let later = 0; later < 3 * WINDOW_MS; later += 100) {
        limiter.admit('alive', now + later, '198.51.100.1')
      }
      expect(limiter.buckets).toBe(1)
    }
  })

  it('that others have had for longer are not taken away', () => {
    const limiter = limiterOf(10, 1_000)
    for (let client = 0; client < 400; client += 1) limiter.admit(`c ${client}`, 0, address(client))
    flood(limiter, 5_000, 1_000)
    expect(limiter.buckets).toBe(400 + 120)
    for (let client = 0; client < 400; client += 1) {
      expect(admittedOf(20, () => limiter.admit(`c ${client}`, 2_000, address(client)))).toBe(9)
    }
  })
})

describe('a decision without a bucket', () => {
  const full = (capacity: number) => {
    const limiter = limiterOf(capacity, 1)
    limiter.admit('first', 0, '198.51.100.1')
    return limiter
  }

  it('admits an address no more than the capacity, whatever its keys', () => {
    const limiter = full(5)
    expect(admittedOf(100, () => limiter.admit(`${Math.random()}`, 1_000, attacker(1)))).toBe(5)
    expect([limiter.shared, limiter.figures.sharedRefused]).toEqual([100, 95])
  })

  it('that refuses the address costs the key nothing', () => {
    const limiter = full(5)
    for (let call = 0; call < 5; call += 1) limiter.admit(`other ${call}`, 1_000, attacker(1))
    for (let call = 0; call < 9; call += 1) limiter.admit('key', 1_000, attacker(1))
    expect(admittedOf(9, () => limiter.admit('key', 2_000, attacker(2)))).toBe(5)
  })

  it('that refuses the key costs the address nothing', () => {
    const limiter = full(5)
    for (let call = 0; call < 5; call += 1) limiter.admit('key', 1_000, attacker(1))
    for (let call = 0; call < 9; call += 1) {
      expect(limiter.admit('key', 1_000, attacker(2))).toBe(WINDOW_MS)
    }
    expect(admittedOf(9, () => limiter.admit('another', 2_000, attacker(2)))).toBe(5)
  })

  it('says when both have room', () => {
    const limiter = full(1)
    limiter.admit('key', 10_000, attacker(1))
    limiter.admit('other', 20_000, attacker(2))
    expect(limiter.admit('key', 30_000, attacker(2))).toBe(50_000)
    expect(limiter.admit('other', 30_000, attacker(1))).toBe(50_000)
  })
})

describe('the memory of a RateLimiter', () => {
  it('has nothing for owners and shared buckets until it is needed', () => {
    const limiter = limiterOf(60, 1_000)
    limiter.admit('first', 0, address(0))
    const ofOne = limiter.figures.bytes
    expect(ofOne).toBeLessThan(8_192)
    for (let client = 1; client < 200; client += 1) limiter.admit(`c ${client}`, 0, address(client))
    expect(limiter.figures.bytes).toBeLessThan(24_576)
  })

  it('gives both back while others keep coming', () => {
    const limiter = limiterOf(60, 1_000)
    flood(limiter, 5_000, 1_000)
    expect(limiter.figures.bytes).toBeGreaterThan(2 * 1_024 * 264)
    for (let now = 1_000; now < 4 * WINDOW_MS; now += 100) limiter.admit('alive', now, address(1))
    expect(limiter.figures.bytes).toBeLessThan(50_000)
    expect(limiter.figures.shared).toBe(4_800)
  })
})
