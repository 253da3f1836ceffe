/**
 * Breaks the agent's link again and again, and looks at what that leaves behind in its process:
 * descriptors and memory. `BENCH_CYCLES=200` gives the turns.
 */
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseListenAddress } from '../src/base/listen-address.ts'
import { startEchoUpstream } from '../test/helpers/echo-upstream.ts'
import { Site } from '../test/helpers/site.ts'
import { printTable, progress, residentMb, scratchFolder } from './tools.ts'

const CYCLES = Number(process.env.BENCH_CYCLES ?? 200)
/** The allocators of engine and SDK take what they need in the first turns. */
const WARMUP = 20
const TUNNELS = 3

/** Stands between agent and gateway, and breaks what goes through it. */
const links = new Set<Socket>()
const proxy = createServer({ noDelay: true }, (agent) => {
  const service = connect(gateway)
  links.add(agent)
  agent.once('close', () => links.delete(agent))
  for (const socket of [agent, service]) socket.on('error', () => {})
  agent.pipe(service).once('close', () => agent.destroy())
  service.pipe(agent).once('close', () => service.destroy())
})

const upstream = await startEchoUpstream()
const site = await Site.start(scratchFolder())
const gateway = parseListenAddress(site.ready.agent_listen) ?? { host: '', port: 0 }
proxy.listen(0, '127.0.0.1')
await once(proxy, 'listening')
const { port } = proxy.address() as AddressInfo
await site.restartAgent('SIGTERM', { SVC_SERVER_ADDR: `127.0.0.1:${port}` })
for (let index = 0; index < TUNNELS; index += 1) {
  await site.create(`device${index}.site.localhost`, upstream.port)
}
await site.online(TUNNELS)

const linkSince = async () => {
  const answer = await site.call('GET', '/status')
  const { link } = (await answer.json()) as { link: { state: string; since: string } }
  return link.state === 'up' ? link.since : undefined
}
const descriptors = () => readdirSync(`/proc/${site.agent.pid}/fd`).length

async function breakLink(turn: number): Promise<void> {
  const before = await linkSince()
  for (const link of links) {
    if (turn % 2 === 0) link.destroy()
    else link.resetAndDestroy()
  }
  for (let now = before; now === undefined || now === before; now = await linkSince()) {
    await sleep(10)
  }
}

const rows: string[][] = []
async function report(turn: number): Promise<void> {
  await sleep(1_000)
  rows.push([String(turn), residentMb(site.agent.pid).toFixed(1), String(descriptors())])
}

for (let turn = 1; turn <= WARMUP; turn += 1) await breakLink(turn)
await report(0)
for (let turn = 1; turn <= CYCLES; turn += 1) {
  await breakLink(turn)
  progress(`turn ${turn} of ${CYCLES}`)
  if (turn % Math.ceil(CYCLES / 4) === 0) await report(turn)
}
progress('')
await site.online(TUNNELS)
printTable(['link cycles', 'agent RSS MB', 'descriptors'], rows)
await site.stop()
proxy.close()
await upstream.close()
process.exit(0)
