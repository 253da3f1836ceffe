/** The limiter beside the memory stores of two libraries from npm, in turns within one run. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { MemoryStore } from 'express-rate-limit'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { RateLimiter } from '../src/policy/rate-limiter.ts'
import { cpuUs } from './processor-time.ts'
import { median, printTable, progress } from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 4)
const WINDOW_MS = 60_000
const MANY = 1_000_000
const FEW = 1_000
const HOT_CALLS = 1_000_000

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

/** `hit` counts one request of a key; a promise is awaited, as a server would. */
interface Limiter {
  hit(key: string): unknown
  close(): void
}

interface Contender {
  readonly name: string
  create(): Limiter
  readonly hot: number[]
  readonly insert: number[]
  readonly cold: number[]
  readonly bytes: number[]
}

const contender = (name: string, create: () => Limiter): Contender => ({
  name,
  create,
  hot: [],
  insert: [],
  cold: [],
  bytes: [],
})

/**
 * New strings, one for each call, as requests bring them: a string that was looked up before has
 * its hash with it, and maps would look faster than they are.
 */
const freshKeys = (count: number, numberAt: (call: number) => number): string[] =>
  Array.from({ length: count }, (_, call) =>
    Buffer.from(`client-${String(numberAt(call)).padStart(24, '0')}`).toString('latin1'),
  )

const contenders = [
  contender('ours, capacity 30', () => ours(30)),
  contender('ours, capacity 1,000', () => ours(1_000)),
  contender('express-rate-limit 8.7.4', () => {
    const store = new MemoryStore()
    store.init({ windowMs: WINDOW_MS } as Parameters<MemoryStore['init']>[0])
    return { hit: (key) => store.increment(key), close: () => store.shutdown() }
  }),
  contender('rate-limiter-flexible 11.4.0', () => {
    const limiter = new RateLimiterMemory({ points: 1_000_000_000, duration: WINDOW_MS / 1_000 })
    return { hit: (key) => limiter.consume(key), close: () => {} }
  }),
]

function ours(capacity: number): Limiter {
  const limiter = new RateLimiter({ capacity, windowMs: WINDOW_MS, maxBuckets: 2 * MANY })
  return { hit: (key) => limiter.admit(key, performance.now()), close: () => {} }
}

/** Nanoseconds per call. */
async function time(limiter: Limiter, keys: readonly string[]): Promise<number> {
  const startedAt = cpuUs()
  for (const key of keys) {
    const pending = limiter.hit(key)
    if (pending instanceof Promise) await pending
  }
  return ((cpuUs() - startedAt) * 1_000) / keys.length
}

function heldBytes(): number {
  collectGarbage()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

/** Fills a limiter; the keys are gone afterwards unless the limiter keeps them. */
const fill = (limiter: Limiter) =>
  time(
    limiter,
    freshKeys(MANY, (call) => call),
  )

/** A walk over all keys in an order that no cache can guess. */
const walk = (limiter: Limiter) =>
  time(
    limiter,
    freshKeys(MANY, (call) => (call * 611_953) % MANY),
  )

async function measure(each: Contender): Promise<void> {
  const few = each.create()
  await time(
    few,
    freshKeys(FEW, (call) => call),
  )
  const hot = await time(
    few,
    freshKeys(HOT_CALLS, (call) => call % FEW),
  )
  few.close()
  const before = heldBytes()
  const many = each.create()
  const insert = await fill(many)
  const bytes = (heldBytes() - before) / MANY
  const cold = await walk(many)
  many.close()
  each.hot.push(hot)
  each.insert.push(insert)
  each.cold.push(cold)
  each.bytes.push(bytes)
}

for (let round = 0; round <= ROUNDS; round += 1) {
  // Each comes first once: what runs after the large tables of another is slower.
  const first = round % contenders.length
  for (const each of [...contenders.slice(first), ...contenders.slice(0, first)]) {
    progress(`${round === 0 ? 'warm-up' : `round ${round} of ${ROUNDS}`}: ${each.name}`)
    await measure(each)
  }
}
// The first round warms the compilers up.
for (const { hot, insert, cold, bytes } of contenders) {
  for (const series of [hot, insert, cold, bytes]) series.shift()
}

const best = contenders[1] as Contender
const cell = (pick: (each: Contender) => number[], each: Contender, unit: string) => {
  const value = median(pick(each))
  return `${value.toFixed(0)} ${unit} (${(value / median(pick(best))).toFixed(2)}x)`
}
progress('')
printTable(
  ['limiter', `hot, ${FEW} keys`, `cold, ${MANY} keys`, 'insert', 'memory per bucket'],
  contenders.map((each) => [
    each.name,
    cell(({ hot }) => hot, each, 'ns'),
    cell(({ cold }) => cold, each, 'ns'),
    cell(({ insert }) => insert, each, 'ns'),
    cell(({ bytes }) => bytes, each, 'B'),
  ]),
)

/** A bucket grows when its client sends more than a few requests; these all do. */
const busy = new RateLimiter({ capacity: 1_000, windowMs: WINDOW_MS })
for (const key of freshKeys(98_304, (call) => call)) {
  for (let call = 0; call < 10; call += 1) busy.admit(key, performance.now())
}
console.log(`\nA busy bucket takes ${(busy.bytes / busy.buckets).toFixed(0)} B.`)
process.exit(0)
