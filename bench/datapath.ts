/**
 * Requests through ingress, tunnel and the real SDK, beside a plain Node reverse proxy without any
 * tunnel, in turns within one run: only the ratios say something on a shared machine.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { Site } from '../test/helpers/site.ts'
import {
  cpuMs,
  download,
  median,
  printTable,
  progress,
  requirePrograms,
  residentMb,
  scratchFolder,
  startNginx,
  wrk,
} from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 5)
const SECONDS = 2
const HOST = 'bench.site.localhost'

interface Route {
  readonly name: string
  readonly url: string
  readonly many: number[]
  readonly manyP50: number[]
  readonly manyP99: number[]
  readonly one: number[]
  readonly downloads: number[]
  errors: number
}

const route = (name: string, url: string): Route => ({
  name,
  url,
  many: [],
  manyP50: [],
  manyP99: [],
  one: [],
  downloads: [],
  errors: 0,
})

requirePrograms({ nginx: 'nginx-light', wrk: 'wrk', curl: 'curl' })
const nginx = await startNginx()
const proxy = spawn(process.execPath, [
  '--import',
  'tsx',
  join(import.meta.dirname, 'plain-proxy.ts'),
  String(nginx),
])
const [proxyPort] = await once(proxy.stdout, 'data')
const site = await Site.start(scratchFolder())
await site.create(HOST, nginx, { on_http_request: [], on_http_response: [] })
await site.online(1)

const direct = route('nginx itself', `http://127.0.0.1:${nginx}`)
const plain = route('plain Node proxy, no tunnel', `http://127.0.0.1:${String(proxyPort).trim()}`)
const ours = route('ingress, tunnel and SDK', site.ready.ingress_http)
const routes = [direct, plain, ours]

let gatewayUs = 0
let agentUs = 0
for (let round = 0; round <= ROUNDS; round += 1) {
  // The first round warms the compilers up and is not counted.
  const isWarmup = round === 0
  for (const each of routes) {
    progress(`${isWarmup ? 'warm-up' : `round ${round} of ${ROUNDS}`}: ${each.name}`)
    const before = [cpuMs(site.gateway.pid), cpuMs(site.agent.pid)] as const
    const many = await wrk(each.url, HOST, 50, SECONDS)
    const requests = many.requestsPerSecond * SECONDS
    if (each === ours) {
      gatewayUs = ((cpuMs(site.gateway.pid) - before[0]) * 1_000) / requests
      agentUs = ((cpuMs(site.agent.pid) - before[1]) * 1_000) / requests
    }
    const one = await wrk(each.url, HOST, 1, 1)
    const speed = await download(`${each.url}/large`, HOST)
    each.errors += many.errors + one.errors
    if (isWarmup) continue
    each.many.push(many.requestsPerSecond)
    each.manyP50.push(many.p50Ms)
    each.manyP99.push(many.p99Ms)
    each.one.push(one.requestsPerSecond)
    each.downloads.push(speed)
  }
}
progress('')

const ratio = (values: number[], base: number[]) => (median(values) / median(base)).toFixed(2)
printTable(
  [
    'route',
    '50 conn. req/s',
    'ratio',
    'p50 ms',
    'p99 ms',
    '1 conn. req/s',
    'ratio',
    '100 MiB MB/s',
    'errors',
  ],
  routes.map((each) => [
    each.name,
    median(each.many).toFixed(0),
    ratio(each.many, plain.many),
    median(each.manyP50).toFixed(2),
    median(each.manyP99).toFixed(2),
    median(each.one).toFixed(0),
    ratio(each.one, plain.one),
    median(each.downloads).toFixed(0),
    String(each.errors),
  ]),
)
console.log(
  `\nProcessor time per request: gateway ${gatewayUs.toFixed(1)} us, agent ${agentUs.toFixed(1)} us.` +
    ` Memory after the load: gateway ${residentMb(site.gateway.pid).toFixed(0)} MB,` +
    ` agent ${residentMb(site.agent.pid).toFixed(0)} MB.`,
)
await site.stop()
proxy.kill()
process.exit(0)
