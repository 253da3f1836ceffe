/**
 * How long after an outage of the service everything carries traffic again: 100 tunnels of the
 * agent, and one tunnel of the bare SDK beside them; then 1,000 tunnels over restarts of the gateway. `BENCH_OUTAGES=5,60` gives the outages in
 * seconds; without `BENCH_BARE=0` the bare SDK is waited for, up to three minutes.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startEchoUpstream } from '../test/helpers/echo-upstream.ts'
import { Site } from '../test/helpers/site.ts'
import { median, printTable, progress, residentMb, scratchFolder } from './tools.ts'

const TUNNELS = 100
const MANY = 1_000
const RESTARTS = 5
const BARE_HOST = 'bare.site.localhost'
const BARE_PATIENCE_MS = 180_000
const outages = (process.env.BENCH_OUTAGES ?? '5,5,5,60').split(',').map(Number)
const isBareMeasured = process.env.BENCH_BARE !== '0'

const folder = scratchFolder()
const upstream = await startEchoUpstream()
const site = await Site.start(folder)
const hosts = Array.from({ length: TUNNELS }, (_, index) => `device${index}.site.localhost`)
for (const host of hosts) await site.create(host, upstream.port)

/** Milliseconds until every host answers 200, or undefined when the time is up. */
async function untilServed(names: readonly string[], patienceMs: number) {
  const startedAt = performance.now()
  const waiting = new Set(names)
  while (waiting.size > 0) {
    if (performance.now() - startedAt > patienceMs) return undefined
    await Promise.all(
      [...waiting].map(async (host) => {
        const isServed = await site.visit(host).then(
          ({ status }) => status === 200,
          () => false,
        )
        if (isServed) waiting.delete(host)
      }),
    )
    await sleep(20)
  }
  return performance.now() - startedAt
}

const rows: string[][] = []
const recoveries: number[] = []
for (const [index, seconds] of outages.entries()) {
  const withBare = isBareMeasured && index === 0
  const { agent_listen, ca_cert, authtoken_file } = site.ready
  const bare = withBare
    ? spawn(
        process.execPath,
        [
          '--import',
          'tsx',
          join(import.meta.dirname, 'bare-sdk.ts'),
          agent_listen,
          ca_cert,
          authtoken_file,
          BARE_HOST,
          String(upstream.port),
        ],
        { stdio: ['ignore', 'pipe', 'inherit'] },
      )
    : undefined
  if (bare?.stdout) await once(bare.stdout, 'data')

  progress(`outage ${index + 1} of ${outages.length}: ${seconds} s`)
  await site.gateway.end('SIGKILL')
  await sleep(seconds * 1_000)
  await site.startGateway()
  const agentMs = await untilServed(hosts, 60_000)
  if (agentMs === undefined) throw new Error('the agent did not come back within a minute')
  recoveries.push(agentMs)
  const bareMs = bare && (await untilServed([BARE_HOST], BARE_PATIENCE_MS))
  bare?.kill('SIGKILL')
  const bareText = bareMs === undefined ? 'not within 3 min' : `${(bareMs / 1_000).toFixed(1)} s`
  rows.push([`${seconds} s`, `${(agentMs / 1_000).toFixed(2)} s`, withBare ? bareText : ''])
}

progress(`creating ${MANY} tunnels`)
for (let index = TUNNELS; index < MANY; index += 1) {
  const host = `device${index}.site.localhost`
  await site.create(host, upstream.port)
  hosts.push(host)
}
const restarts: number[] = []
for (let restart = 1; restart <= RESTARTS; restart += 1) {
  progress(`restart ${restart} of ${RESTARTS} with ${MANY} tunnels`)
  await site.gateway.end()
  await site.startGateway()
  // A thousand visitors who ask again and again would be most of what is measured.
  const startedAt = performance.now()
  await site.online(MANY)
  restarts.push(performance.now() - startedAt)
  if ((await untilServed(hosts, 60_000)) === undefined) throw new Error('a tunnel is not served')
}
progress('')
printTable(['outage', `agent, ${TUNNELS} tunnels`, 'bare SDK, 1 tunnel'], rows)
console.log(
  `\nAgent: median ${(median(recoveries) / 1_000).toFixed(2)} s, worst ${(Math.max(...recoveries) / 1_000).toFixed(2)} s;` +
    ` memory ${residentMb(site.agent.pid).toFixed(0)} MB.`,
)
console.log(
  `${MANY} tunnels over a restart of the gateway: median ${(median(restarts) / 1_000).toFixed(2)} s,` +
    ` worst ${(Math.max(...restarts) / 1_000).toFixed(2)} s.`,
)
await site.stop()
await upstream.close()
process.exit(0)
