/**
 * `npm run test:fleet [-- devices]`: a gateway, a fleet of agents with their real APIs, a fifth of them
 * down, and the commands of a fleet manager; a row for each bar, and 1 when one is not met.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { parse } from 'dotenv'
import type { Agent } from '../../src/agent/agent.ts'
import { systemClock } from '../../src/base/clock.ts'
import { Closer } from '../../src/base/closer.ts'
import { createLogger, LogTail } from '../../src/base/logger.ts'

import { parseConfig } from '../../src/config.ts'
import { startDaemon } from '../../src/daemon.ts'
import { FREE_PORTS, Program, runProgram } from '../helpers/program.ts'
import type { GatewayReady } from '../helpers/site.ts'

const COUNT = Number(process.argv[2] ?? 50)
const DOWN = Math.ceil(COUNT / 5)
const log = createLogger('silent')
const folder = mkdtempSync(join(tmpdir(), 'device-agent-fleet-'))
const fleetPath = join(folder, 'fleet.yaml')
const names = Array.from({ length: COUNT }, (_, n) => `cam${String(n + 1).padStart(3, '0')}`)

interface Report {
  readonly devices: readonly {
    readonly name: string
    readonly state: string
    readonly problem: string | null
  }[]
}

let failures = 0
function row(what: string, measured: string, bar: string, isMet: boolean): void {
  if (!isMet) failures += 1
  process.stdout.write(`| ${what} | ${measured} | ${bar} | ${isMet ? 'met' : 'NOT MET'} |\n`)
}

/** A device of the fleet, in this process: the agent with its API, its own tunnel and the real SDK. */
class Device {
  readonly name: string
  readonly #ingress: string
  #closer: Closer | undefined
  agent: Agent | undefined

  constructor(name: string, ingress: string) {
    this.name = name
    this.#ingress = ingress
  }

  async start(): Promise<void> {
    const settings = parse(readFileSync(join(folder, 'devices', `${this.name}.env`)))
    const { agent: config } = parseConfig({
      ...settings,
      AGENT_LISTEN: FREE_PORTS.AGENT_LISTEN,
      AGENT_DATA_DIR: join(folder, 'data', this.name),
      SVC_INGRESS_ADDR: this.#ingress,
    })
    this.#closer = new Closer(log)
    const daemon = await startDaemon(
      {
        config,
        version: '0',
        log,
        logTail: new LogTail(),
        examine: async () => [],
        clock: systemClock,
      },
      this.#closer,
    )
    this.agent = daemon.agent
    await until(() => daemon.agent.status().ownEndpoint?.state === 'online')
  }

  async stop(): Promise<void> {
    await this.#closer?.close()
    this.agent = undefined
  }

  /** Where its one tunnel leads. */
  get target(): string | undefined {
    return this.agent?.list()[0]?.spec.forwardsTo
  }
}

async function until(isSo: () => boolean): Promise<void> {
  const giveUpAt = performance.now() + 120_000
  while (!isSo()) {
    if (performance.now() > giveUpAt) throw new Error('it did not come to that in two minutes')
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

async function fleet(...args: string[]) {
  const begin = performance.now()
  const { code, stdout, stderr } = await runProgram({
    args: ['fleet', ...args, '--json'],
    cwd: folder,
  })
  if (stdout === '') throw new Error(stderr)
  const { devices } = JSON.parse(stdout) as Report
  const count = (state: string) => devices.filter((it) => it.state === state).length
  const states = [...new Set(devices.map(({ state }) => state))].sort()
  const seconds = ((performance.now() - begin) / 1_000).toFixed(1)
  const problems = devices.flatMap(({ name, problem }) =>
    problem ? [`${name}: ${problem}\n`] : [],
  )
  process.stderr.write(problems.join(''))
  const shown = `exit ${code}: ${states.map((it) => `${count(it)} ${it}`).join(', ')}; ${seconds} s`
  return { code, count, shown, devices }
}

function writeFleet(ready: GatewayReady, port: number): void {
  writeFileSync(
    fleetPath,
    `version: 1
devices: devices/fleet-devices.jsonl
connect: { address: ${new URL(ready.ingress_https).host}, ca: ${ready.ca_cert} }
vars: { port: ${port} }
sets:
  cameras:
    tags: [camera]
    tunnels:
      - domain: view.{site}
        forwards_to: localhost:{port}
`,
  )
}

interface Provisioning {
  readonly names: readonly string[]
  readonly output: string
  /** Bar; undefined where there is none. */
  readonly withinS?: number
}

async function provision(
  ready: GatewayReady,
  { names, output, withinS = Number.POSITIVE_INFINITY }: Provisioning,
): Promise<void> {
  writeFileSync(join(folder, 'list.txt'), `${names.join('\n')}\n`)
  const begin = performance.now()
  const { code, stderr } = await runProgram({
    args: [
      ...['provision', '--list', 'list.txt', '--output', output, '--tag', 'camera'],
      ...['--domain', '*.{name}.site.localhost', '--json'],
    ],
    cwd: folder,
    env: {
      GATEWAY_DATA_DIR: join(folder, 'gateway'),
      GATEWAY_API_LISTEN: new URL(ready.management_api).host,
      GATEWAY_AGENT_LISTEN: ready.agent_listen,
    },
  })
  const seconds = (performance.now() - begin) / 1_000
  const bar = withinS < Number.POSITIVE_INFINITY ? `exit 0, under ${withinS} s` : 'exit 0'
  const isMet = code === 0 && seconds < withinS
  row(`provision ${names.length} devices`, `exit ${code}; ${seconds.toFixed(1)} s`, bar, isMet)
  if (code !== 0) throw new Error(stderr)
}

async function trial(): Promise<void> {
  const gateway = new Program({
    args: ['gateway', '--json'],
    cwd: folder,
    env: { GATEWAY_DATA_DIR: join(folder, 'gateway'), LOG_LEVEL: 'error' },
  })
  const ready = await gateway.ready<GatewayReady>()
  await provision(ready, { names, output: 'devices' })
  const ingress = new URL(ready.ingress_https).host
  const devices = names.map((name) => new Device(name, ingress))
  const [up, down] = [devices.slice(DOWN), devices.slice(0, DOWN)]
  try {
    for (const device of up) await device.start()
    writeFleet(ready, 8_001)
    const plan = await fleet('plan', fleetPath)
    row(`plan, ${DOWN} of ${COUNT} down`, plan.shown, 'exit 3', plan.code === 3)
    const first = await fleet('apply', fleetPath)
    row(
      'first apply',
      first.shown,
      `${up.length} applied, ${DOWN} offline, exit 3`,
      first.count('applied') === up.length && first.count('offline') === DOWN && first.code === 3,
    )
    const second = await fleet('apply', fleetPath)
    const isSame = second.count('same') === up.length && second.count('offline') === DOWN
    row('second apply', second.shown, 'changes nothing', isSame && second.code === 3)

    const waiting = fleet('apply', fleetPath, '--wait', '5m')
    for (const device of down) await device.start()
    const third = await waiting
    const isAll = third.count('applied') === DOWN && third.count('same') === up.length
    row(
      'apply --wait, the others come back',
      third.shown,
      'they follow, exit 0',
      isAll && third.code === 0,
    )

    writeFleet(ready, 8_002)
    const killed = new Program({
      args: ['fleet', 'apply', fleetPath, '--parallel', '2'],
      cwd: folder,
    })
    const done = () => devices.filter(({ target }) => target === 'localhost:8002')
    await until(() => done().length >= Math.ceil(COUNT / 5))
    await killed.end('SIGKILL')
    // What a device has begun, it ends.
    await new Promise((resolve) => setTimeout(resolve, 1_000))
    const before = done().length
    const last = await fleet('apply', fleetPath)
    row(
      `apply, killed after ${before} of ${COUNT}, and again`,
      last.shown,
      `${before} same, ${COUNT - before} applied, exit 0`,
      last.count('same') === before && last.count('applied') === COUNT - before && last.code === 0,
    )
    const end = await fleet('plan', fleetPath)
    row('plan', end.shown, 'nothing to do, exit 0', end.count('same') === COUNT && end.code === 0)
    await Promise.all(devices.map((device) => device.stop()))
    const thousand = Array.from({ length: 1_000 }, (_, n) => `press${n}`)
    await provision(ready, { names: thousand, output: 'thousand', withinS: 60 })
  } finally {
    await Promise.all(devices.map((device) => device.stop()))
    await gateway.end()
  }
}

process.stdout.write('| trial | measured | bar | |\n|---|---|---|---|\n')
try {
  await trial()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
process.exit(failures === 0 ? 0 : 1)
