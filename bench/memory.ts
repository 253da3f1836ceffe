/** What gateway and agent keep of a machine's memory, started as their units start them. */
import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { MAIN } from '../test/helpers/program.ts'
import { Site } from '../test/helpers/site.ts'
import { unitProgram } from '../test/helpers/unit-program.ts'
import {
  median,
  printTable,
  progress,
  requirePrograms,
  scratchFolder,
  startNginx,
  wrk,
} from './tools.ts'

const USAGE = `Usage: npm run bench:memory -- [--program FOLDER] [--plain] [--tunnels N] [--starts N]

Resident and anonymous memory of an agent with one session and of a gateway: idle, with many
tunnels, and after 50 connections. Idle means that nothing happened for 15 s.

  --program FOLDER  also an unpacked package (npm run package -- --only tar), on the Node in it
  --plain           without the flags and the environment of the units
  --tunnels N       how many tunnels are made (1000)
  --starts N        how often the agent is started, to see how long that takes (7)
`
/** V8 gives memory back when nothing happened for some seconds. */
const QUIET_MS = 15_000
const LOAD_SECONDS = 5
const CONNECTIONS = 50

const { values } = parseArgs({
  options: {
    program: { type: 'string' },
    plain: { type: 'boolean', default: false },
    tunnels: { type: 'string', default: '1000' },
    starts: { type: 'string', default: '7' },
    help: { type: 'boolean', short: 'h', default: false },
  },
})
if (values.help) {
  process.stdout.write(USAGE)
  process.exit(0)
}
const tunnels = Number(values.tunnels)

interface Memory {
  readonly residentMb: number
  readonly anonymousMb: number
}

async function quietMemory(pid: number): Promise<Memory> {
  await new Promise((done) => setTimeout(done, QUIET_MS))
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const mb = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1_024
  return { residentMb: mb('VmRSS'), anonymousMb: mb('RssAnon') }
}

requirePrograms({ nginx: 'nginx-light', wrk: 'wrk' })
const upstream = await startNginx()
const rows: string[][] = []

async function measure(name: string, node: string, main: string): Promise<void> {
  const note = (what: string, { residentMb, anonymousMb }: Memory) =>
    rows.push([name, what, `${residentMb.toFixed(1)} MB`, `${anonymousMb.toFixed(1)} MB`, ''])
  const started = (unit: 'device-agent' | 'device-gateway') =>
    values.plain
      ? { command: [node, main] as const }
      : unitProgram(unit, node, main, scratchFolder())
  const site = await Site.start(
    scratchFolder(),
    { AGENT_DOMAIN: 'own.site.localhost' },
    { gateway: started('device-gateway'), agent: started('device-agent') },
  )
  progress(`${name}: start times`)
  const starts: number[] = []
  for (let start = 0; start < Number(values.starts); start += 1) {
    starts.push(await site.restartAgent())
  }
  rows.push([name, 'run listening, median', '', '', `${median(starts).toFixed(0)} ms`])

  progress(`${name}: idle`)
  const [agent, gateway] = await Promise.all([
    quietMemory(site.agent.pid),
    quietMemory(site.gateway.pid),
  ])
  note('agent idle, one session', agent)
  note('gateway idle, one device', gateway)

  progress(`${name}: ${CONNECTIONS} connections`)
  const host = 'load.site.localhost'
  await site.create(host, upstream, { on_http_request: [], on_http_response: [] })
  const { requestsPerSecond } = await wrk(site.ready.ingress_http, host, CONNECTIONS, LOAD_SECONDS)
  const loaded = await quietMemory(site.gateway.pid)
  note(`gateway after ${(requestsPerSecond * LOAD_SECONDS).toFixed(0)} requests`, loaded)

  progress(`${name}: ${tunnels} tunnels`)
  const all = Array.from({ length: tunnels }, (_, index) => ({
    protocol: 'http',
    forwards_to: `localhost:${upstream}`,
    domain: `device${index}.site.localhost`,
  }))
  const answer = await site.call('PUT', '/tunnels', all)
  if (!answer.ok) throw new Error(`PUT /tunnels: ${answer.status} ${await answer.text()}`)
  await answer.arrayBuffer()
  await site.online(tunnels)
  note(`agent, ${tunnels} tunnels made`, await quietMemory(site.agent.pid))
  await site.restartAgent()
  await site.online(tunnels)
  note(`agent, ${tunnels} tunnels restored`, await quietMemory(site.agent.pid))
  await site.stop()
}

await measure(`Node ${process.versions.node}`, process.execPath, MAIN)
if (values.program !== undefined) {
  const library = resolve(values.program, 'lib')
  const node = join(library, 'bin/node')
  if (!existsSync(node)) throw new Error(`${values.program} is not an unpacked package`)
  await measure('package', node, join(library, 'dist/main.js'))
}
progress('')
printTable(['on', 'what', 'resident', 'anonymous', 'time'], rows)
process.exit(0)
