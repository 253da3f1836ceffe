/** The limiter beside the memory stores of two libraries from npm, in turns within one run. */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { systemClock } from '../src/base/clock.ts'
import { RateLimiter } from '../src/policy/limit/rate-limiter.ts'
import type { Measurement } from './limiter-contender.ts'
import { cpuUs } from './processor-time.ts'
import { median, printTable, progress } from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 4)
const FLOOD = 1_000_000
const BEST = 'ours, capacity 1,000'

/** What a process of its own says about one limiter; without a name, which ones there are. */
function ask<T>(...name: string[]): T {
  const program = join(import.meta.dirname, 'limiter-contender.ts')
  const output = execFileSync(process.execPath, ['--import', 'tsx', program, ...name])
  return JSON.parse(output.toString()) as T
}

const names = ask<string[]>()
const measured = new Map<string, Measurement[]>(names.map((name) => [name, []]))
for (let round = 0; round < ROUNDS; round += 1) {
  for (const name of names) {
    progress(`round ${round + 1} of ${ROUNDS}: ${name}`)
    measured.get(name)?.push(ask<Measurement>(name))
  }
}

function cell(name: string, what: keyof Measurement, unit: string): string {
  const [value, best] = [name, BEST].map((of) =>
    median((measured.get(of) ?? []).map((one) => one[what])),
  ) as [number, number]
  return `${value.toFixed(0)} ${unit} (${(value / best).toFixed(2)}x)`
}

progress('')
printTable(
  ['limiter', 'hot, 1,000 keys', 'cold, 1,000,000 keys', 'insert', 'memory per bucket'],
  names.map((name) => [
    name,
    cell(name, 'hot', 'ns'),
    cell(name, 'cold', 'ns'),
    cell(name, 'insert', 'ns'),
    cell(name, 'bytes', 'B'),
  ]),
)

/** A bucket grows when its client sends more than a few requests; these all do. */
const busy = new RateLimiter({ capacity: 1_000, windowMs: 60_000, clock: systemClock })
for (let key = 0; key < 98_304; key += 1) {
  const address = `10.${key >>> 16}.${(key >>> 8) & 255}.${key & 255}`
  for (let call = 0; call < 10; call += 1) busy.tryCount(`client-${key}`, address)
}
console.log(`\nA busy bucket takes ${(busy.figures.bytes / busy.buckets).toFixed(0)} B.`)

/** One address floods the same table with ever new keys: hardly one gets a bucket. */
const startedAt = cpuUs()
for (let key = 0; key < FLOOD; key += 1) busy.tryCount(`flood-${key}`, '203.0.113.9')
const each = ((cpuUs() - startedAt) * 1_000) / FLOOD
const { shared, bytes } = busy.figures
console.log(
  `A key of an address that floods: ${each.toFixed(0)} ns; ${shared} of ${FLOOD} had to share, all of it ${bytes} B.`,
)
