/**
 * A gateway with 10,000 credentials: its lists, what it takes to let an agent in, and what 2,000
 * connected agents cost. Gateway, agents and the client of the API are a process each.
 */
import { readFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Program } from '../test/helpers/program.ts'
import type { GatewayReady } from '../test/helpers/site.ts'
import { CrowdProcess } from './crowd-process.ts'
import { fillGateway } from './filled-gateway.ts'
import { ManagementClient } from './management-client.ts'
import {
  cpuMs,
  median,
  printTable,
  progress,
  quantile,
  residentMb,
  scratchFolder,
} from './tools.ts'

const CREDENTIALS = 10_000
const SESSIONS = 2_000
const CONNECTIONS = 300
const WARMUP_CONNECTIONS = 50
const WALKS = 5
const FILTERED_WALKS = 3
/** 80 requests each a second. */
const API_KEYS = 30
const DOMAIN = 'site.localhost'
/** For the engine to give memory back, and for whoever connected to calm down. */
const QUIET_MS = 10_000
const IDLE_MS = 20_000
const PATIENCE_MS = 180_000
/** What a process opens beside the connections of the agents. */
const SPARE_FILES = 200

requireOpenFiles(SESSIONS + SPARE_FILES)
setTimeout(() => {
  console.error(`Not done within ${PATIENCE_MS / 1_000} s: the benchmark gives up.`)
  process.exit(1)
}, PATIENCE_MS).unref()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))

const [loadBefore = 0] = loadavg()
const folder = scratchFolder()
const dataDir = join(folder, 'gateway')
const { devices, apiKeys, writeMs } = await fillGateway(dataDir, {
  devices: CREDENTIALS,
  apiKeys: API_KEYS,
  domain: DOMAIN,
})
let gateway = startGateway()
process.on('exit', () => gateway.child.kill('SIGKILL'))
const ready = await gateway.ready<GatewayReady>()
const crowd = new CrowdProcess(ready.agent_listen, ready.ca_cert)
process.on('exit', () => crowd.end())
const client = new ManagementClient(ready.management_api, apiKeys)

const rows: string[][] = []
const ms = (value: number) => `${value.toFixed(1)} ms`
const mb = (value: number) => `${value.toFixed(0)} MB`
function report(what: string, values: readonly number[], aim = ''): void {
  rows.push([what, ms(median(values)), ms(quantile(values, 0.99)), aim])
}

report(`GET /credentials, 100 of ${CREDENTIALS}`, await timeWalks('credentials'), '20 ms')
const filters = [
  ['all match', 'obj.acl.size() > 0'],
  ['one matches', 'obj.description == "device 17 of site 0"'],
] as const
for (const [which, filter] of filters) {
  const query = `&filter=${encodeURIComponent(filter)}`
  const pageMs = await timeWalks('credentials', query, FILTERED_WALKS)
  report(`the same with a filter that ${which}`, pageMs)
}

progress(`${CONNECTIONS} connections of agents, one after the other`)
const timed = await crowd.obey({
  kind: 'time-connections',
  devices: devices.slice(0, WARMUP_CONNECTIONS + CONNECTIONS),
})
report('TLS handshake of an agent', timed.handshakeMs?.slice(WARMUP_CONNECTIONS) ?? [])
report('Auth of an agent', timed.authMs?.slice(WARMUP_CONNECTIONS) ?? [], '5 ms')

await sleep(QUIET_MS)
const emptyMb = residentMb(gateway.pid)
progress(`connecting ${SESSIONS} agents`)
const connectingSince = cpuMs(gateway.pid)
const { connectedMs = Number.NaN } = await crowd.obey({
  kind: 'connect',
  devices: devices.slice(0, SESSIONS),
})
const connectCpuMs = (cpuMs(gateway.pid) - connectingSince) / SESSIONS

progress(`${SESSIONS} agents are online, nothing happens`)
await sleep(QUIET_MS)
const idleSince = cpuMs(gateway.pid)
await sleep(IDLE_MS)
const idleShare = (cpuMs(gateway.pid) - idleSince) / IDLE_MS
const fullMb = residentMb(gateway.pid)
for (const collection of ['tunnel_sessions', 'endpoints']) {
  report(`GET /${collection}, 100 of ${SESSIONS}`, await timeWalks(collection))
}
client.close()

progress('restarting the gateway')
await gateway.end()
gateway = startGateway({ GATEWAY_AGENT_LISTEN: ready.agent_listen })
await gateway.ready<GatewayReady>()
const listeningAt = Date.now()
const { onlineAt = [] } = await crowd.obey({ kind: 'await-all' })
const backMs = onlineAt.map((at) => Math.max(0, at - listeningAt))
report('an agent back after a restart of the gateway', backMs)
progress('')

const [loadAfter = 0] = loadavg()
printTable(['what', 'median', 'p99', 'aim'], rows)
console.log()
printTable(
  ['what', 'measured', 'aim'],
  [
    ['a credential written, on disk', ms(writeMs), ''],
    [`resident memory with ${CREDENTIALS} credentials, after the lists`, mb(emptyMb), ''],
    [`resident memory with ${SESSIONS} agents online, too`, mb(fullMb), '400 MB'],
    [`${SESSIONS} agents connect and bind, 20 at a time`, ms(connectedMs), ''],
    ['gateway CPU for each of them', ms(connectCpuMs), ''],
    ['gateway CPU with all of them idle', `${(idleShare * 100).toFixed(1)} %`, ''],
    [`${SESSIONS} agents back after a restart of the gateway`, ms(Math.max(...backMs)), ''],
  ],
)
console.log(
  `\nLoad of the machine: ${loadBefore.toFixed(1)} before, ${loadAfter.toFixed(1)} after.`,
)
crowd.end()
await gateway.end()
process.exit(0)

function requireOpenFiles(count: number): void {
  const limits = readFileSync('/proc/self/limits', 'utf8')
  const limit = Number(/Max open files\s+(\d+)/.exec(limits)?.[1])
  if (limit >= count) return
  console.error(
    `A process may open ${limit} files here and the benchmark needs ${count}: ulimit -n ${count}`,
  )
  process.exit(1)
}

function startGateway(more: Readonly<Record<string, string>> = {}): Program {
  return new Program({
    args: ['gateway', '--json'],
    cwd: folder,
    env: {
      GATEWAY_DATA_DIR: dataDir,
      GATEWAY_RESERVED_DOMAIN: `*.${DOMAIN}`,
      LOG_LEVEL: 'warn',
      ...more,
    },
  })
}

/** Milliseconds of every page in some walks through a list, after one that is not counted. */
async function timeWalks(collection: string, query = '', walks = WALKS): Promise<number[]> {
  progress(`GET /${collection} ${decodeURIComponent(query)}`)
  await client.walk(collection, query)
  const pageMs: number[] = []
  for (let walk = 0; walk < walks; walk += 1) {
    pageMs.push(...(await client.walk(collection, query)))
  }
  return pageMs
}
