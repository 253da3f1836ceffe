/**
 * What policies cost: the limiter beside the memory stores of two libraries from npm, the rules by
 * themselves, a compile, and requests through a real gateway with and without a policy.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { MemoryStore } from 'express-rate-limit'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { systemClock } from '../src/base/clock.ts'
import { createLogger } from '../src/base/logger.ts'
import { Exchange } from '../src/policy/exchange.ts'
import { HeaderList } from '../src/policy/header-list.ts'
import { compilePolicy } from '../src/policy/policy.ts'
import { RateLimiter } from '../src/policy/rate-limiter.ts'
import { Site } from '../test/helpers/site.ts'
import {
  cpuMs,
  median,
  printTable,
  progress,
  requirePrograms,
  scratchFolder,
  startNginx,
  wrk,
} from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 3)
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
  const startedAt = performance.now()
  for (const key of keys) {
    const pending = limiter.hit(key)
    if (pending instanceof Promise) await pending
  }
  return ((performance.now() - startedAt) * 1e6) / keys.length
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
  for (const each of contenders) {
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
for (const key of freshKeys(50_000, (call) => call)) {
  for (let call = 0; call < 10; call += 1) busy.admit(key, performance.now())
}
const busyBytes = busy.bytes / busy.buckets

const FIVE_RULES = {
  on_http_request: [
    rule([], {
      type: 'rate-limit',
      config: {
        name: 'clients',
        algorithm: 'sliding_window',
        capacity: 2_000_000_000,
        rate: '60s',
        bucket_key: ['conn.client_ip'],
      },
    }),
    rule(["req.url.path.startsWith('/admin')"], { type: 'deny' }),
    rule(["req.method == 'DELETE' || req.method == 'PUT'"], { type: 'deny' }),
    rule(["getReqHeader('user-agent').exists(v, v.matches('(?i)badbot'))"], { type: 'deny' }),
    rule(["!('host' in req.headers)"], { type: 'deny' }),
  ],
}

function rule(expressions: readonly string[], action: unknown) {
  return { expressions, actions: [action] }
}

const options = { clock: systemClock, log: createLogger('silent') }
const policy = compilePolicy(FIVE_RULES, options)
const perRequestUs: number[] = []
for (let round = 0; round <= ROUNDS; round += 1) {
  const calls = 100_000
  const startedAt = performance.now()
  for (let call = 0; call < calls; call += 1) void policy.onHttpRequest(createExchange())
  if (round > 0) perRequestUs.push(((performance.now() - startedAt) * 1_000) / calls)
}

function createExchange(): Exchange {
  return new Exchange({
    connection: {
      clientIp: '203.0.113.9',
      clientPort: 50_000,
      serverIp: '192.0.2.1',
      serverPort: 443,
      startedAt: 0,
      bytesIn: 0,
      bytesOut: 0,
    },
    endpoint: { id: 'ep_1', url: 'https://h', host: 'h', port: 443, protocol: 'https' },
    request: {
      method: 'GET',
      target: '/api/v1/users/42?verbose=1',
      host: 'h',
      scheme: 'https',
      httpVersion: '1.1',
      headers: new HeaderList(['Host', 'h', 'Accept', '*/*', 'User-Agent', 'wrk/4.2.0']),
      receivedAt: 0,
      readBody: () => Promise.resolve(Buffer.alloc(0)),
    },
  })
}

/** No two expressions are the same, so that none comes from a cache. */
const hundredRules = (seed: number) =>
  JSON.stringify({
    on_http_request: Array.from({ length: 100 }, (_, index) =>
      rule(
        [`req.url.path.startsWith('/${seed}/${index}') && 'x-${seed}-${index}' in req.headers`],
        {
          type: 'add-headers',
          config: { headers: { 'x-rule': `\${req.host} ${index}` } },
        },
      ),
    ),
  })
const compileMs: number[] = []
for (let seed = 0; seed < 5; seed += 1) {
  const text = hundredRules(seed)
  const startedAt = performance.now()
  compilePolicy(text, options)
  compileMs.push(performance.now() - startedAt)
}

requirePrograms({ nginx: 'nginx-light', wrk: 'wrk' })
const nginx = await startNginx()
const site = await Site.start(scratchFolder())
const WITHOUT = 'without.site.localhost'
const WITH = 'with.site.localhost'
await site.create(WITHOUT, nginx, { on_http_request: [], on_http_response: [] })
await site.create(WITH, nginx, FIVE_RULES)
await site.online(2)
const gatewayUs: Record<string, number[]> = { [WITHOUT]: [], [WITH]: [] }
const rates: Record<string, number[]> = { [WITHOUT]: [], [WITH]: [] }
for (let round = 0; round <= ROUNDS; round += 1) {
  for (const host of [WITHOUT, WITH]) {
    progress(`${round === 0 ? 'warm-up' : `round ${round} of ${ROUNDS}`}: gateway, ${host}`)
    const before = cpuMs(site.gateway.pid)
    const load = await wrk(site.ready.ingress_http, host, 50, 2)
    if (load.errors > 0) throw new Error(`${load.errors} errors`)
    if (round === 0) continue
    const requests = load.requestsPerSecond * 2
    gatewayUs[host]?.push(((cpuMs(site.gateway.pid) - before) * 1_000) / requests)
    rates[host]?.push(load.requestsPerSecond)
  }
}
progress('')

const us = (value: number) => `${value.toFixed(1)} us`
const ms = (value: number) => `${value.toFixed(1)} ms`
const worst = (values: readonly number[]) => Math.max(...values)
const [plainUs, policedUs] = [median(gatewayUs[WITHOUT] ?? []), median(gatewayUs[WITH] ?? [])]
const [plainRate, policedRate] = [median(rates[WITHOUT] ?? []), median(rates[WITH] ?? [])]
console.log()
printTable(
  ['what', 'measured', 'worst', 'aim'],
  [
    ['memory of a busy bucket', `${busyBytes.toFixed(0)} B`, '', '300 B'],
    [
      'five rules by themselves, per request',
      us(median(perRequestUs)),
      us(worst(perRequestUs)),
      '',
    ],
    [
      'gateway CPU per request without a policy',
      us(plainUs),
      us(worst(gatewayUs[WITHOUT] ?? [])),
      '',
    ],
    [
      'gateway CPU per request with five rules',
      us(policedUs),
      us(worst(gatewayUs[WITH] ?? [])),
      '',
    ],
    ['five rules in the gateway', us(policedUs - plainUs), '', '15 us'],
    ['requests per second, with to without', (policedRate / plainRate).toFixed(2), '', ''],
    ['compiling 100 rules, the first time', ms(compileMs[0] ?? 0), '', '100 ms'],
    ['compiling 100 other rules', ms(median(compileMs)), ms(worst(compileMs)), '100 ms'],
  ],
)
await site.stop()
process.exit(0)
