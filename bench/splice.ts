/**
 * Tunnels of the gateway beside a bare splice through the same SDK, one stream for each connection
 * and no HTTP: the floor of this design. In turns within one run; the ratios count.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { MAIN } from '../test/helpers/program.ts'
import { Site } from '../test/helpers/site.ts'
import { unitProgram } from '../test/helpers/unit-program.ts'
import {
  download,
  LARGE_BYTES,
  median,
  printTable,
  progress,
  requirePrograms,
  scratchFolder,
  startNginx,
  upload,
  wrk,
} from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 5)
const SECONDS = 2
/** Moved before the first that counts: a file takes a quarter of a second, and compilers several. */
const WARM_FILES = 8
const CONNECTIONS = [1, 50, 200]
const OPEN = 'open.site.localhost'
const POLICED = 'policed.site.localhost'
const UPLOADS = 'uploads.site.localhost'
/** The default policy, which nobody exceeds here. */
const POLICY = readFileSync(join(import.meta.dirname, '../default-policy.json'), 'utf8').replace(
  '"capacity": 600',
  '"capacity": 2000000000',
)
const WITHOUT_POLICY = { on_http_request: [], on_http_response: [] }

type Unit = 'device-agent' | 'device-gateway'

interface Route {
  readonly name: string
  readonly host: string
  readonly url: string
  readonly uploadUrl: string
  readonly rates: Map<number, number[]>
  readonly p99: number[]
  readonly downloads: number[]
  readonly uploads: number[]
}

requirePrograms({ nginx: 'nginx-light', wrk: 'wrk', curl: 'curl' })
const nginx = await startNginx()
const sink = createServer((request, response) => {
  let bytes = 0
  request.on('data', ({ length }: Buffer) => {
    bytes += length
  })
  request.on('end', () => response.end(String(bytes)))
}).listen(0, '127.0.0.1')
await once(sink, 'listening')
const sinkPort = (sink.address() as AddressInfo).port
const file = join(scratchFolder(), 'large')
writeFileSync(file, Buffer.alloc(LARGE_BYTES, 'x'))

const children: ChildProcess[] = []
const [bareUrl = '', bareUploads = ''] = await startBare([nginx, sinkPort])
const site = await startSite()
const { ingress_http: ingress } = site.ready
const route = (name: string, host: string, url: string, uploadUrl: string): Route => ({
  name,
  host,
  url,
  uploadUrl,
  rates: new Map(CONNECTIONS.map((count) => [count, []])),
  p99: [],
  downloads: [],
  uploads: [],
})
const bare = route('bare splice', 'bare.localhost', bareUrl, bareUploads)
const open = route('tunnel', OPEN, ingress, ingress)
const policed = route('tunnel, default policy', POLICED, ingress, ingress)
const routes = [bare, open, policed]

for (let round = 0; round <= ROUNDS; round += 1) {
  // The first round warms the compilers up and is not counted; who comes second finds more warm.
  for (const each of round % 2 === 0 ? routes : routes.toReversed()) {
    progress(`${round === 0 ? 'warm-up' : `round ${round} of ${ROUNDS}`}: ${each.name}`)
    for (const count of CONNECTIONS) {
      const load = await wrk(each.url, each.host, count, SECONDS)
      if (load.errors > 0) throw new Error(`${each.name}: ${load.errors} errors`)
      if (round === 0) continue
      each.rates.get(count)?.push(load.requestsPerSecond)
      if (count === 50) each.p99.push(load.p99Ms)
    }
    for (let warm = 0; round === 0 && warm < WARM_FILES; warm += 1) await moveFile(each)
    const { down, up } = await moveFile(each)
    if (round === 0) continue
    each.downloads.push(down)
    each.uploads.push(up)
  }
}
progress('')

async function moveFile({ url, host, uploadUrl }: Route): Promise<{ down: number; up: number }> {
  const down = await download(`${url}/large`, host)
  return { down, up: await upload(uploadUrl, uploadUrl === bareUploads ? host : UPLOADS, file) }
}

const ratio = (of: number[], base: number[]) =>
  median(of.map((value, round) => value / (base[round] ?? 0))).toFixed(2)
printTable(
  [
    'route',
    ...CONNECTIONS.map((count) => `${count} conn. req/s`),
    'ratios',
    'p99 ms at 50',
    'down, up MB/s',
    'ratios',
  ],
  routes.map((each) => [
    each.name,
    ...CONNECTIONS.map((count) => median(each.rates.get(count) ?? []).toFixed(0)),
    CONNECTIONS.map((count) =>
      ratio(each.rates.get(count) ?? [], (each === policed ? open : bare).rates.get(count) ?? []),
    ).join(', '),
    median(each.p99).toFixed(2),
    `${median(each.downloads).toFixed(0)}, ${median(each.uploads).toFixed(0)}`,
    `${ratio(each.downloads, bare.downloads)}, ${ratio(each.uploads, bare.uploads)}`,
  ]),
)
console.log(
  '\nThe requests of the last row are held against the row above, the rest against the first.',
)
await site.stop()
for (const child of children) child.kill()

const shares: string[][] = []
for (const host of [OPEN, POLICED]) shares.push([host, await collectorShare(host)])
console.log()
printTable(['50 connections', 'collector'], shares)
process.exit(0)

/** One process with an endpoint for each port, as the gateway is: what it compiles is for all it does. */
async function startBare(ports: readonly number[]): Promise<string[]> {
  const folder = scratchFolder()
  const caFile = join(folder, 'ca.pem')
  const tokenFile = join(folder, 'token')
  writeFileSync(tokenFile, 'any')
  const said = await firstLine('device-gateway', 'bare-splice.ts', [caFile, String(ports.length)])
  const { agents, visitors } = JSON.parse(said) as { agents: string; visitors: number[] }
  const sdk = [agents, caFile, tokenFile, 'bare.localhost', ...ports.map(String)]
  await firstLine('device-agent', 'bare-sdk.ts', sdk)
  return visitors.map((port) => `http://127.0.0.1:${port}`)
}

/** With the flags of the unit that it is held against. */
async function firstLine(unit: Unit, script: string, words: readonly string[]): Promise<string> {
  const path = join(import.meta.dirname, script)
  const [node = '', ...rest] = unitProgram(unit, process.execPath, path).command ?? []
  const child = spawn(node, ['--import', 'tsx', ...rest, ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  process.once('exit', () => child.kill())
  const [line] = await once(child.stdout, 'data')
  return String(line)
}

async function startSite(env: Readonly<Record<string, string>> = {}): Promise<Site> {
  const asUnit = (unit: Unit) => unitProgram(unit, process.execPath, MAIN, scratchFolder())
  const gateway = asUnit('device-gateway')
  const started = await Site.start(
    scratchFolder(),
    {},
    { gateway: { ...gateway, env: { ...gateway.env, ...env } }, agent: asUnit('device-agent') },
  )
  await started.create(OPEN, nginx, WITHOUT_POLICY)
  await started.create(POLICED, nginx, JSON.parse(POLICY))
  await started.create(UPLOADS, sinkPort, WITHOUT_POLICY)
  await started.online(3)
  return started
}

/** What the collector took of the processor time of a gateway that does nothing else. */
async function collectorShare(host: string): Promise<string> {
  progress(`collector: ${host}`)
  const file = join(scratchFolder(), 'collector')
  const watched = await startSite({
    NODE_OPTIONS: `--import=${pathToFileURL(join(import.meta.dirname, 'collector.mjs'))}`,
    COLLECTOR_FILE: file,
  })
  await wrk(watched.ready.ingress_http, host, 50, 5 * SECONDS)
  const { pid } = watched.gateway
  await watched.stop()
  const { collectorMs, cpuMs } = JSON.parse(readFileSync(`${file}.${pid}`, 'utf8'))
  return `${((100 * collectorMs) / cpuMs).toFixed(1)} %`
}
