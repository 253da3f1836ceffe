/**
 * One limiter by itself: `limiter-contender.ts NAME` measures it twice and writes the second
 * measurement as a line of JSON. A process has one limiter, as a server has: what another one left
 * to the compilers would be measured too.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { MemoryStore } from 'express-rate-limit'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { systemClock } from '../src/base/clock.ts'
import { RateLimiter } from '../src/policy/limit/rate-limiter.ts'
import { cpuUs } from './processor-time.ts'

const WINDOW_MS = 60_000
const MANY = 1_000_000
const FEW = 1_000
const HOT_CALLS = 1_000_000
const ADDRESS = '203.0.113.9'

/** Nanoseconds per call, and bytes per bucket. */
export interface Measurement {
  readonly hot: number
  readonly insert: number
  readonly cold: number
  readonly bytes: number
}

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

/** `hit` counts one request of a key; a promise is awaited, as a server would. */
interface Contender {
  hit(key: string): unknown
  close(): void
}

const CONTENDERS: Readonly<Record<string, () => Contender>> = {
  'ours, capacity 30': () => ours(30),
  'ours, capacity 1,000': () => ours(1_000),
  'express-rate-limit 8.7.4': () => {
    const store = new MemoryStore()
    store.init({ windowMs: WINDOW_MS } as Parameters<MemoryStore['init']>[0])
    return { hit: (key) => store.increment(key), close: () => store.shutdown() }
  },
  'rate-limiter-flexible 11.4.0': () => {
    const limiter = new RateLimiterMemory({ points: 1_000_000_000, duration: WINDOW_MS / 1_000 })
    return { hit: (key) => limiter.consume(key), close: () => {} }
  },
}

/**
 * New strings, one for each call, as requests bring them: a string that was looked up before has
 * its hash with it, and maps would look faster than they are.
 */
const freshKeys = (count: number, numberAt: (call: number) => number): string[] =>
  Array.from({ length: count }, (_, call) =>
    Buffer.from(`client-${String(numberAt(call)).padStart(24, '0')}`).toString('latin1'),
  )

function ours(capacity: number): Contender {
  const limiter = new RateLimiter({
    capacity,
    windowMs: WINDOW_MS,
    clock: systemClock,
    maxBuckets: 2 * MANY,
  })
  return { hit: (key) => limiter.tryCount(key, ADDRESS), close: () => {} }
}

/** Nanoseconds per call. */
async function time(limiter: Contender, keys: readonly string[]): Promise<number> {
  const startedAt = cpuUs()
  for (const key of keys) {
    const pending = limiter.hit(key)
    if (pending instanceof Promise) await pending
  }
  return ((cpuUs() - startedAt) * 1_000) / keys.length
}

/** What a first collection finds in array buffers is given back some time after it. */
async function heldBytes(): Promise<number> {
  for (let times = 0; times < 3; times += 1) {
    collectGarbage()
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

/** Fills a limiter; the keys are gone afterwards unless the limiter keeps them. */
const fill = (limiter: Contender) =>
  time(
    limiter,
    freshKeys(MANY, (call) => call),
  )

/** A walk over all keys in an order that no cache can guess. */
const walk = (limiter: Contender) =>
  time(
    limiter,
    freshKeys(MANY, (call) => (call * 611_953) % MANY),
  )

async function measure(create: () => Contender): Promise<Measurement> {
  const few = create()
  await time(
    few,
    freshKeys(FEW, (call) => call),
  )
  const hot = await time(
    few,
    freshKeys(HOT_CALLS, (call) => call % FEW),
  )
  few.close()
  const before = await heldBytes()
  const many = create()
  const insert = await fill(many)
  const bytes = ((await heldBytes()) - before) / MANY
  const cold = await walk(many)
  many.close()
  return { hot, insert, cold, bytes }
}

const create = CONTENDERS[process.argv[2] ?? '']
if (create) {
  // The first time warms the compilers up.
  await measure(create)
  process.stdout.write(`${JSON.stringify(await measure(create))}\n`)
} else {
  process.stdout.write(`${JSON.stringify(Object.keys(CONTENDERS))}\n`)
}
process.exit(0)
