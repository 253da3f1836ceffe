/**
 * Three gateways on one PostgreSQL: a request through a neighbour beside one that is served where it
 * comes in, in turns within one run; then 10,000 names of 2,000 agents, what they keep and write, and
 * how soon all of them are served again when one gateway is killed. Ends with 1 when an aim is missed.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { Agent, get } from 'node:http'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { formatListenAddress } from '../src/base/listen-address.ts'
import { type TrialNode, TrialSite } from '../test/cluster/trial-site.ts'
import { hasPostgres, TestPostgres } from '../test/helpers/postgres.ts'
import { Program } from '../test/helpers/program.ts'
import { type RunReady, SITE_API_TOKEN } from '../test/helpers/site.ts'
import type { SiteCrowd } from './site-crowd.ts'
import {
  cpuMs,
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
const CONNECTIONS = 16
const HOST = 'bench.site.localhost'
const AGENTS = Number(process.env.BENCH_AGENTS ?? 2_000)
const NAMES_EACH = 5
const AUTHTOKENS = 40
const VISITORS = 50
const QUIET_MS = 10_000
const IDLE_MS = 20_000
const AIMS = { cpuRatio: 1.8, addedMs: 1, againS: 10, mb: 300, writes: 2 }

if (!hasPostgres) {
  console.error('The benchmark needs PostgreSQL: apt-get install postgresql')
  process.exit(1)
}
requirePrograms({ nginx: 'nginx-light', wrk: 'wrk' })
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
const [loadBefore = 0] = loadavg()
const folder = scratchFolder()
const postgres = await TestPostgres.start({ syncs: true })
const site = await TrialSite.start(folder, postgres, { isDirect: true })
const [first, second] = site.nodes
if (!first || !second) throw new Error('there are no gateways')
const rows: string[][] = []
let isMet = true
function report(what: string, measured: string, aim: string, isGood: boolean): void {
  isMet &&= isGood
  rows.push([what, measured, aim, isGood ? 'met' : 'MISSED'])
}

await measureHop()
const crowd = await connectCrowd()
await measureIdle()
await measureKill()
progress('')
crowd.kill('SIGKILL')
await site.stop()
await postgres.remove()
printTable(['what', 'measured', 'aim', ''], rows)
const [loadAfter = 0] = loadavg()
console.log(
  `\nLoad of the machine: ${loadBefore.toFixed(1)} before, ${loadAfter.toFixed(1)} after.`,
)
process.exit(isMet ? 0 : 1)

/** A device at the first gateway, visited there and at the second. */
async function measureHop(): Promise<void> {
  const nginx = await startNginx()
  const agent = new Program({
    args: ['run', '--json'],
    cwd: folder,
    env: {
      ...{ AGENT_DATA_DIR: join(folder, 'agent'), AGENT_API_TOKEN: SITE_API_TOKEN },
      ...{ SVC_AUTHTOKEN: site.authtoken, SVC_CA_CERT: site.caPath, LOG_LEVEL: 'error' },
      SVC_SERVER_ADDR: formatListenAddress((first as TrialNode).agents),
    },
  })
  const { agent_api } = await agent.ready<RunReady>()
  const made = await fetch(`${agent_api}/tunnels`, {
    method: 'POST',
    headers: { authorization: `Bearer ${SITE_API_TOKEN}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      ...{ protocol: 'http', forwards_to: `localhost:${nginx}`, domain: HOST },
      policy: { on_http_request: [], on_http_response: [] },
    }),
  })
  if (!made.ok) throw new Error(await made.text())
  const routes = [first, second].map((node) => ({
    url: `http://${formatListenAddress((node as TrialNode).http)}`,
    ...{ cpuUs: [] as number[], p50Ms: [] as number[], oneP50Ms: [] as number[] },
  }))
  const [local, hop] = routes as [(typeof routes)[0], (typeof routes)[0]]
  let errors = 0
  await sleep(2_000)
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const each of routes) {
      progress(`${round === 0 ? 'warm-up' : `round ${round} of ${ROUNDS}`}: ${each.url}`)
      const before = gatewaysCpuMs()
      const many = await wrk(each.url, HOST, CONNECTIONS, SECONDS)
      const us = ((gatewaysCpuMs() - before) * 1_000) / (many.requestsPerSecond * SECONDS)
      const one = await wrk(each.url, HOST, 1, 1)
      errors += many.errors + one.errors
      // The first round warms the compilers up and is not counted.
      if (round === 0) continue
      each.cpuUs.push(us)
      each.p50Ms.push(many.p50Ms)
      each.oneP50Ms.push(one.p50Ms)
    }
  }
  const ratio = median(hop.cpuUs) / median(local.cpuUs)
  const words = `${median(local.cpuUs).toFixed(1)} us here, ${median(hop.cpuUs).toFixed(1)} us there: ${ratio.toFixed(2)} x`
  report('processor time of a request, all gateways', words, '<= 1.8 x', ratio <= AIMS.cpuRatio)
  for (const [connections, which] of [
    [1, 'oneP50Ms'],
    [CONNECTIONS, 'p50Ms'],
  ] as const) {
    const [here, there] = [median(local[which]), median(hop[which])]
    report(
      `p50 of a request, ${connections} at a time`,
      `${here.toFixed(2)} ms here, ${there.toFixed(2)} ms there: ${(there - here).toFixed(2)} ms more`,
      '<= 1 ms more',
      there - here <= AIMS.addedMs,
    )
  }
  report('requests that failed', String(errors), '0', errors === 0)
  await agent.end('SIGKILL')
}

function gatewaysCpuMs(): number {
  return site.nodes.reduce((sum, { program }) => sum + cpuMs(program.pid), 0)
}

async function connectCrowd(): Promise<ChildProcess> {
  progress(`connecting ${AGENTS} agents, ${AGENTS * NAMES_EACH} names`)
  const settings: SiteCrowd = {
    servers: site.nodes.map(({ agents }) => formatListenAddress(agents)),
    ca: readFileSync(site.caPath, 'utf8'),
    authtokens: await createAuthtokens(),
    devices: Array.from({ length: AGENTS }, (_, device) => namesOf(device)),
  }
  const path = join(folder, 'crowd.json')
  writeFileSync(path, JSON.stringify(settings), { mode: 0o600 })
  const script = join(import.meta.dirname, 'site-crowd.ts')
  const child = spawn(process.execPath, ['--import', 'tsx', script, path], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  process.once('exit', () => child.kill('SIGKILL'))
  const since = performance.now()
  const ended = once(child, 'exit').then(() => Promise.reject(new Error('the agents ended')))
  ended.catch(() => {})
  await Promise.race([once(child, 'message'), ended])
  const seconds = (performance.now() - since) / 1_000
  rows.push([
    `${AGENTS} agents connect and bind ${NAMES_EACH} names each`,
    `${seconds.toFixed(1)} s`,
    '',
    '',
  ])
  return child
}

async function createAuthtokens(): Promise<string[]> {
  const node = first as TrialNode
  const { body } = await site.manage(node, 'GET', '/credentials')
  const [{ owner_id, acl }] = body.credentials
  const made: string[] = []
  for (let n = 0; n < AUTHTOKENS; n += 1) {
    const { status, body: one } = await site.manage(node, 'POST', '/credentials', { owner_id, acl })
    if (status !== 201) throw new Error(JSON.stringify(one))
    made.push(one.token)
  }
  return made
}

/** The names of a device; they begin at the gateways in turn. */
function namesOf(device: number): string[] {
  return Array.from({ length: NAMES_EACH }, (_, n) => `d${device}n${n}.site.localhost`)
}

async function measureIdle(): Promise<void> {
  progress('nothing happens')
  // What PostgreSQL writes of its own accord after so many new rows is none of the gateways' writing.
  await postgres.query('ALTER SYSTEM SET autovacuum = off')
  await postgres.query('SELECT pg_reload_conf()')
  await postgres.query('CHECKPOINT')
  await sleep(QUIET_MS)
  const before = await written()
  await sleep(IDLE_MS)
  const after = await written()
  const perNode = (many: number) => many / (IDLE_MS / 1_000) / site.nodes.length
  const rowsWritten = perNode(after.rows - before.rows)
  const walBytes = perNode(after.walBytes - before.walBytes)
  report(
    'rows written a second and gateway, idle',
    `${rowsWritten.toFixed(2)}, ${walBytes.toFixed(0)} bytes of the log`,
    '< 2',
    rowsWritten < AIMS.writes,
  )
  const mb = Math.max(...site.nodes.map(({ program }) => residentMb(program.pid)))
  report('resident memory, the largest gateway', `${mb.toFixed(0)} MB`, '< 300 MB', mb < AIMS.mb)
}

/** What PostgreSQL has written since its start, of all databases of this run. */
async function written(): Promise<{ readonly rows: number; readonly walBytes: number }> {
  const [row] = await postgres.query(
    `SELECT sum(tup_inserted + tup_updated + tup_deleted)::float8 AS rows,
       pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 AS wal
     FROM pg_stat_database WHERE datname LIKE 'test_%'`,
  )
  return { rows: Number(row?.rows), walBytes: Number(row?.wal) }
}

/** Kills the first gateway, and visits all names that were there at the second one. */
async function measureKill(): Promise<void> {
  const names = Array.from({ length: AGENTS }, (_, device) => device)
    .filter((device) => device % site.nodes.length === 0)
    .flatMap(namesOf)
  const agent = new Agent({ keepAlive: true, maxSockets: VISITORS })
  await sweep(names, agent)
  progress(`${names.length} names lose their gateway`)
  const killedAt = performance.now()
  await (first as TrialNode).program.end('SIGKILL')
  const { tries } = await sweep(names, agent)
  const seconds = (performance.now() - killedAt) / 1_000
  report(
    `${names.length} names are all served again after their gateway was killed`,
    `${seconds.toFixed(1)} s, ${tries} asked again`,
    '< 10 s',
    seconds < AIMS.againS,
  )
  agent.destroy()
}

/** Visits each name at the second gateway until it is served. */
async function sweep(names: readonly string[], agent: Agent): Promise<{ readonly tries: number }> {
  const { host, port } = (second as TrialNode).http
  const waiting = [...names]
  let tries = 0
  const visit = (name: string) =>
    new Promise<boolean>((resolve) => {
      const request = get({ host, port, agent, headers: { host: name } }, (response) => {
        response.resume()
        response.once('end', () => resolve(response.statusCode === 200))
      })
      request.once('error', () => resolve(false))
      request.setTimeout(30_000, () => request.destroy())
    })
  const visitor = async () => {
    for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
      while (!(await visit(name))) {
        tries += 1
        await sleep(50)
      }
    }
  }
  await Promise.all(Array.from({ length: VISITORS }, visitor))
  return { tries }
}
