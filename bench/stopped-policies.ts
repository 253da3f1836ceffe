/**
 * Processor time of policies that are stopped at their budget, beside a base operation in the same process, in
 * turns. The ratio holds on a busy machine, the time only on a quiet one.
 */
import { systemClock } from '../src/base/clock.ts'
import { createLogger } from '../src/base/logger.ts'
import type { PolicyExchange } from '../src/policy/exchange/policy-exchange.ts'
import { MAX_STEPS } from '../src/policy/expression/account.ts'
import { compilePolicy } from '../src/policy/policy.ts'
import { createExchange } from '../test/helpers/policy-exchange.ts'
import { cpuUs } from './processor-time.ts'
import { median, printTable, progress } from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 7)
const REQUESTS = 4
const WARM_UP = 2
/** Requests of the base operation: each runs five ordinary rules. */
const BASE_REQUESTS = 500
/** Most that a stopped policy takes on a quiet machine, in ms and in base operations. */
const MOST_MS = 6
const MOST_RATIO = 1_000

const N = "lists.range(int(req.headers['x-n'][0]))"
const TEXT = 'The quick brown fox jumps over it. '.repeat(60)
/** The request says how long each takes, so no check can refuse them. */
const CASES: Readonly<Record<string, string>> = {
  digests: `${N}.map(x, hash.md5('a')) != []`,
  numbers: `${N}.map(x, x * 3 + 1).exists(x, x < 0) || true`,
  texts: `${N}.exists(x, 'item ' + string(x) == req.host) || true`,
  patterns: `${N}.exists(x, req.headers['x-t'][0].matches('(?i)badbot|crawler')) || true`,
  lists: `${N}.map(x, [x, x]).size() > 0`,
  JSON: `${N}.exists(x, json.decode('{"a":[1,2,3]}') == {}) || true`,
  'upper case': `${N}.exists(x, req.headers['x-t'][0].upper() == '') || true`,
}

const policyOf = (expression: string) =>
  compilePolicy(
    {
      on_http_request: Array.from({ length: 40 }, () => ({
        expressions: Array(20).fill(expression),
        actions: [{ type: 'add-headers', config: { headers: { 'x-a': 'b' } } }],
      })),
    },
    { clock: systemClock, log: createLogger('silent') },
  )

interface Stopped {
  readonly name: string
  readonly once: () => Promise<PolicyExchange>
  readonly us: number[]
  readonly ratios: number[]
  steps: number
}

const stopped = Object.entries(CASES).map(([name, expression]): Stopped => {
  const policy = policyOf(expression)
  const once = async () => {
    const exchange = createExchange({ headers: ['x-n', '200', 'x-t', TEXT] })
    const outcome = await policy.onHttpRequest(exchange)
    if (!exchange.account.isOverspent) throw new Error(`${name} is not stopped: ${outcome.kind}`)
    return exchange
  }
  return { name, once, us: [], ratios: [], steps: 0 }
})

const fiveRules = compilePolicy(
  {
    on_http_request: [
      "req.url.path.startsWith('/admin')",
      "req.method == 'DELETE' || req.method == 'PUT'",
      "getReqHeader('user-agent').exists(v, v.matches('(?i)badbot'))",
      "!('host' in req.headers)",
      "req.host == 'other.example'",
    ].map((expression) => ({ expressions: [expression], actions: [{ type: 'deny' }] })),
  },
  { clock: systemClock, log: createLogger('silent') },
)
async function baseUs(): Promise<number> {
  const since = cpuUs()
  for (let n = 0; n < BASE_REQUESTS; n += 1) await fiveRules.onHttpRequest(createExchange({}))
  return (cpuUs() - since) / BASE_REQUESTS
}

const bases: number[] = []
for (let round = -WARM_UP; round < ROUNDS; round += 1) {
  progress(`round ${Math.max(0, round + 1)} of ${ROUNDS}`)
  for (const policy of stopped) {
    const base = await baseUs()
    const since = cpuUs()
    for (let n = 0; n < REQUESTS; n += 1) policy.steps = (await policy.once()).account.spent
    const us = (cpuUs() - since) / REQUESTS
    if (round < 0) continue
    bases.push(base)
    policy.us.push(us)
    policy.ratios.push(us / base)
  }
}
progress('')

const rows = stopped
  .map(({ name, us, ratios, steps }) => {
    return { name, ms: median(us) / 1_000, ratio: median(ratios), steps }
  })
  .sort((a, b) => b.ratio - a.ratio)
printTable(
  ['policy', 'ms', 'ratio', 'steps', 'ns/step'],
  rows.map(({ name, ms, ratio, steps }) => [
    name,
    ms.toFixed(2),
    ratio.toFixed(0),
    steps.toFixed(0),
    ((ms * 1_000_000) / steps).toFixed(0),
  ]),
)
const base = median(bases).toFixed(0)
const dear = rows.filter(({ ms, ratio }) => ms > MOST_MS && ratio > MOST_RATIO)
console.log(`\nThe base operation, a request with five rules, takes ${base} us.`)
console.log(`The budget is ${MAX_STEPS} steps.`)
console.log(`${dear.length} take more than ${MOST_MS} ms and ${MOST_RATIO} base operations.`)
process.exitCode = dear.length > 0 ? 1 : 0
