/** What policies cost: the rules by themselves, a compile, and requests through a real gateway. */
import { systemClock } from '../src/base/clock.ts'
import { createLogger } from '../src/base/logger.ts'
import { HeaderList } from '../src/policy/exchange/header-list.ts'
import { PolicyExchange } from '../src/policy/exchange/policy-exchange.ts'
import { compilePolicy } from '../src/policy/policy.ts'
import { Site } from '../test/helpers/site.ts'
import { cpuUs } from './processor-time.ts'
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
  const startedAt = cpuUs()
  for (let call = 0; call < calls; call += 1) void policy.onHttpRequest(createExchange())
  if (round > 0) perRequestUs.push((cpuUs() - startedAt) / calls)
}

function createExchange(): PolicyExchange {
  return new PolicyExchange({
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
      clientTarget: '/api/v1/users/42?verbose=1',
      host: 'h',
      scheme: 'https',
      httpVersion: '1.1',
      headers: new HeaderList(['Host', 'h', 'Accept', '*/*', 'User-Agent', 'wrk/4.2.0']),
      receivedAt: 0,
      bodyReceivedAt: 0,
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
  const startedAt = cpuUs()
  compilePolicy(text, options)
  compileMs.push((cpuUs() - startedAt) / 1_000)
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
