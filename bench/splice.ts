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
  h2load,
  LARGE_BYTES,
  type Load,
  median,
  printTable,
  processUs,
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

/** A way for requests, and what each round measured of it. */
interface Way {
  readonly name: string
  /** What it is held against. */
  readonly base: Way | undefined
  readonly pid: number
  load(connections: number): Promise<Pick<Load, 'requestsPerSecond' | 'errors'> & Partial<Load>>
  readonly rates: Map<number, number[]>
  readonly costsUs: Map<number, number[]>
  readonly p99Ms: Map<number, number[]>
}

/** A way for files, and the megabytes per second of each round. */
interface FileWay {
  readonly name: string
  readonly host: string
  readonly url: string
  readonly uploadHost: string
  readonly uploadUrl: string
  readonly down: number[]
  readonly up: number[]
}

requirePrograms({ nginx: 'nginx-light', wrk: 'wrk', curl: 'curl', h2load: 'nghttp2-client' })
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

/** Each request has a path of its own. */
const PATHS = join(scratchFolder(), 'paths.lua')
writeFileSync(
  PATHS,
  'local n = 0\nrequest = function() n = n + 1; return wrk.format("GET", "/" .. n) end\n',
)

const children: ChildProcess[] = []
const { pid: barePid, urls } = await startBare([nginx, sinkPort])
const [bareUrl = '', bareUploads = ''] = urls
const site = await startSite()
const { ingress_http: ingress, ingress_https: ingressTls } = site.ready
const gatewayPid = site.gateway.pid

const counted = () => new Map<number, number[]>(CONNECTIONS.map((count) => [count, []]))
const way = (name: string, base: Way | undefined, pid: number, load: Way['load']): Way => {
  return { ...{ name, base, pid, load }, rates: counted(), costsUs: counted(), p99Ms: counted() }
}
const bare = way('bare splice', undefined, barePid, (count) =>
  wrk(bareUrl, 'bare.localhost', count, SECONDS),
)
const barePaths = way('bare splice, differing paths', undefined, barePid, (count) =>
  wrk(bareUrl, 'bare.localhost', count, SECONDS, PATHS),
)
const open = way('tunnel', bare, gatewayPid, (count) => wrk(ingress, OPEN, count, SECONDS))
const ways = [
  bare,
  barePaths,
  open,
  way('tunnel, differing paths', barePaths, gatewayPid, (count) =>
    wrk(ingress, OPEN, count, SECONDS, PATHS),
  ),
  way('tunnel, default policy', open, gatewayPid, (count) => wrk(ingress, POLICED, count, SECONDS)),
  way('tunnel, HTTPS', open, gatewayPid, (count) =>
    h2load(ingressTls, OPEN, SECONDS, [`-c${count}`, '--h1']),
  ),
  way('tunnel, HTTP/2, up to 50 streams a connection', open, gatewayPid, (count) =>
    h2load(ingressTls, OPEN, SECONDS, [`-c${Math.ceil(count / 50)}`, `-m${Math.min(50, count)}`]),
  ),
]
const files = (name: string, host: string, url: string, uploadHost: string, uploadUrl: string) => {
  return { name, host, url, uploadHost, uploadUrl, down: [], up: [] } satisfies FileWay
}
const bareFiles: FileWay = files(
  ...(['bare splice', 'bare.localhost', bareUrl, 'bare.localhost', bareUploads] as const),
)
const fileWays: FileWay[] = [
  bareFiles,
  files('tunnel', OPEN, ingress, UPLOADS, ingress),
  files('tunnel, default policy', POLICED, ingress, UPLOADS, ingress),
]

for (let round = 0; round <= ROUNDS; round += 1) {
  // The first round warms the compilers up and is not counted; who comes second finds more warm.
  const isCounted = round > 0
  const label = isCounted ? `round ${round} of ${ROUNDS}` : 'warm-up'
  for (const each of round % 2 === 0 ? ways : ways.toReversed()) {
    progress(`${label}: ${each.name}`)
    for (const count of CONNECTIONS) await loadOnce(each, count, isCounted)
  }
  for (const each of round % 2 === 0 ? fileWays : fileWays.toReversed()) {
    progress(`${label}: files, ${each.name}`)
    for (let warm = 0; !isCounted && warm < WARM_FILES; warm += 1) await moveFile(each)
    const { down, up } = await moveFile(each)
    if (!isCounted) continue
    each.down.push(down)
    each.up.push(up)
  }
}
progress('')

async function loadOnce(each: Way, count: number, isCounted: boolean): Promise<void> {
  const before = processUs(each.pid)
  const load = await each.load(count)
  const us = processUs(each.pid) - before
  if (load.errors > 0) throw new Error(`${each.name}: ${load.errors} errors`)
  if (!isCounted) return
  each.rates.get(count)?.push(load.requestsPerSecond)
  each.costsUs.get(count)?.push(us / (load.requestsPerSecond * SECONDS))
  if (load.p99Ms !== undefined) each.p99Ms.get(count)?.push(load.p99Ms)
}

async function moveFile(each: FileWay): Promise<{ down: number; up: number }> {
  const down = await download(`${each.url}/large`, each.host)
  return { down, up: await upload(each.uploadUrl, each.uploadHost, file) }
}

const ratio = (of: readonly number[] = [], base: readonly number[] = []) =>
  median(of.map((value, round) => value / (base[round] ?? 0))).toFixed(2)
const medians = (values: Map<number, number[]>, digits: number) =>
  CONNECTIONS.map((count) => median(values.get(count) ?? []).toFixed(digits)).join(', ')
const ratios = (each: Way, what: 'rates' | 'costsUs') =>
  CONNECTIONS.map((count) => ratio(each[what].get(count), each.base?.[what].get(count))).join(', ')
printTable(
  ['way', 'of', 'req/s', 'ratio', 'gateway us/request', 'ratio', 'p99 ms'],
  ways.map((each) => [
    each.name,
    each.base?.name ?? '',
    medians(each.rates, 0),
    each.base ? ratios(each, 'rates') : '',
    medians(each.costsUs, 1),
    each.base ? ratios(each, 'costsUs') : '',
    each.p99Ms.get(1)?.length ? medians(each.p99Ms, 2) : '',
  ]),
)
console.log(`\nEach cell has the values for ${CONNECTIONS.join(', ')} connections.\n`)
printTable(
  ['files of 100 MiB', 'down, up MB/s', 'ratio to the bare splice'],
  fileWays.map(({ name, down, up }) => [
    name,
    `${median(down).toFixed(0)}, ${median(up).toFixed(0)}`,
    `${ratio(down, bareFiles.down)}, ${ratio(up, bareFiles.up)}`,
  ]),
)
await site.stop()
for (const child of children) child.kill()

const shares: string[][] = []
for (const host of [OPEN, POLICED]) shares.push([host, await collectorShare(host)])
console.log()
printTable(['50 connections', 'collector'], shares)
process.exit(0)

/** One process with an endpoint for each port, as the gateway is: what it compiles is for all it does. */
async function startBare(ports: readonly number[]): Promise<{ pid: number; urls: string[] }> {
  const folder = scratchFolder()
  const caFile = join(folder, 'ca.pem')
  const tokenFile = join(folder, 'token')
  writeFileSync(tokenFile, 'any')
  const words = [caFile, String(ports.length)]
  const { pid, line } = await firstLine('device-gateway', 'bare-splice.ts', words)
  const { agents, visitors } = JSON.parse(line) as { agents: string; visitors: number[] }
  const sdk = [agents, caFile, tokenFile, 'bare.localhost', ...ports.map(String)]
  await firstLine('device-agent', 'bare-sdk.ts', sdk)
  return { pid, urls: visitors.map((port) => `http://127.0.0.1:${port}`) }
}

/** With the flags of the unit that it is held against. */
async function firstLine(
  unit: Unit,
  script: string,
  words: readonly string[],
): Promise<{ pid: number; line: string }> {
  const path = join(import.meta.dirname, script)
  const [node = '', ...rest] = unitProgram(unit, process.execPath, path).command ?? []
  const child = spawn(node, ['--import', 'tsx', ...rest, ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  process.once('exit', () => child.kill())
  const [line] = await once(child.stdout, 'data')
  return { pid: child.pid ?? 0, line: String(line) }
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
