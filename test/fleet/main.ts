/**
 * `npm run test:fleet [-- devices [faults]]`: a gateway, a fleet of agents with their real APIs, a fifth of
 * them down, and the commands of a fleet manager; a row for each bar, and 1 when one is not met. At the end,
 * agents with faults, and the output of the commands. `faults`: only this part.
 */
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
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
const IS_ONLY_FAULTS = process.argv[3] === 'faults'
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

  /** With its API, or as an agent of another version, whose API is the server at that port. */
  async start(otherPort?: number): Promise<void> {
    const settings = parse(readFileSync(join(folder, 'devices', `${this.name}.env`)))
    const { AGENT_DOMAIN: agentDomain = '', ...others } = settings
    const { agent: config } = parseConfig({
      ...(otherPort === undefined ? settings : others),
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
    if (otherPort === undefined) {
      await until(() => daemon.agent.status().ownEndpoint?.state === 'online')
      return
    }
    const forwardsTo = `localhost:${otherPort}`
    const policy = { on_http_request: [] }
    await daemon.agent.create({ protocol: 'http', domain: agentDomain, forwardsTo, policy })
    const own = () => daemon.agent.list().find(({ spec }) => spec.domain === agentDomain)
    await until(() => own()?.status.state === 'online')
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

/** The same command for people, with what they see. */
async function shown(ready: GatewayReady, ...args: string[]) {
  const { code, stdout, stderr } = await runProgram({
    args: ['fleet', ...args],
    cwd: folder,
    env: {
      GATEWAY_DATA_DIR: join(folder, 'gateway'),
      GATEWAY_API_LISTEN: new URL(ready.management_api).host,
    },
  })
  const output = `${stdout}${stderr}`.replaceAll(`${folder}/`, '')
  const command = `$ device-agent fleet ${args.join(' ').replaceAll(`${folder}/`, '')}`
  process.stdout.write(`\n${command}\n${output}exit code ${code}\n\n`)
  return { code, output, lines: output.split('\n').length }
}

/** Changes the entries of the list, as a person with an editor would. */
function changeList(changes: Readonly<Record<string, object>>): void {
  const path = join(folder, 'devices', 'fleet-devices.jsonl')
  const entries = readFileSync(path, 'utf8').trimEnd().split('\n')
  const lines = entries.map((line) => {
    const entry = JSON.parse(line) as { name: string }
    return JSON.stringify({ ...entry, ...changes[entry.name] })
  })
  writeFileSync(path, `${lines.join('\n')}\n`)
}

/** Five are offline; one each has a wrong token, a wrong tag, a bad policy and another version. */
async function faults(ready: GatewayReady, devices: readonly Device[]): Promise<void> {
  const [token, tag, policy, version, ...others] = devices.slice().reverse() as [
    ...[Device, Device, Device, Device],
    ...Device[],
  ]
  const offline = others.slice(-5)
  const older = createServer((_request, response) => {
    response.writeHead(404, { 'content-type': 'application/problem+json' })
    response.end(JSON.stringify({ code: 'not-found', detail: 'Nothing is here.' }))
  })
  older.listen(0, '127.0.0.1')
  await once(older, 'listening')
  try {
    await version.stop()
    await version.start((older.address() as AddressInfo).port)
    for (const device of offline) await device.stop()
    changeList({
      [token.name]: { api_token: 'dvt_wrong' },
      [tag.name]: { tags: ['camra'] },
      [policy.name]: { tags: ['camera', 'strict'] },
    })
    writeFleet(ready, 8_003)
    const good = readFileSync(fleetPath, 'utf8')
    const strict = `  strict:
    tags: [strict]
    tunnels:
      - domain: strict.{site}
        forwards_to: 1
        policy: bad
policies:
  bad: { on_http_request: [{ actions: [{ type: denny }] }] }
`
    writeFileSync(fleetPath, good.replace('[camera]', '[camear]').replace('{port}', '{prot}'))
    const wrong = await shown(ready, 'plan', fleetPath)
    row('plan, mistakes in the file', `exit ${wrong.code}`, 'exit 1', wrong.code === 1)
    writeFileSync(fleetPath, `${good}${strict}`)
    const plan = await shown(ready, 'plan', fleetPath)
    const apply = await shown(ready, 'apply', fleetPath)
    const status = await shown(ready, 'status', fleetPath)
    const all = [plan, apply, status]
    const most = Math.max(...all.map(({ lines }) => lines))
    row('lines of output', `${most}`, 'under 30', most < 30)
    row(
      'exit codes with faults',
      all.map(({ code }) => code).join(', '),
      'all 1',
      all.every(({ code }) => code === 1),
    )
    const isQuiet = !all.some(({ output }) => output.includes('Warning'))
    row('warnings of Node', isQuiet ? 'none' : 'some', 'none', isQuiet)
    const { devices: reports } = await fleet('plan', fleetPath)
    const states = ['offline', 'failed', 'unmanaged', 'same'].map(
      (state) => reports.filter((it) => it.state === state).length,
    )
    const expected = [5, 3, 1, COUNT - 9]
    row(
      'offline, failed, in no set, same',
      states.join(', '),
      expected.join(', '),
      states.join() === expected.join(),
    )
  } finally {
    older.close()
  }
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
    for (const device of IS_ONLY_FAULTS ? devices : up) await device.start()
    if (IS_ONLY_FAULTS) {
      await faults(ready, devices)
      return
    }
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
    await faults(ready, devices)
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
