import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { Closer } from '../../src/base/closer.ts'
import { formatListenAddress, type ListenAddress } from '../../src/base/listen-address.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createService } from '../always-on/always-on-site.ts'
import { FREE_PORTS, MAIN, Program, type ProgramOptions } from '../helpers/program.ts'
import { type RunReady, SITE_API_TOKEN } from '../helpers/site.ts'
import { linksTo, type TrialNode, type TrialSite } from './trial-site.ts'

/** Twenty agents start meanwhile, on a machine that may be busy. */
const START_MS = 60_000
/** Agents with a limit, without one, and of the build that an upgrade replaces; sessions of the vendor's SDK alone. */
const LIMITED = 3
const PLAIN = 10
const UPGRADED = 3
const FOREIGN = 4
/** Processes that start together. */
const AT_ONCE = 4

export const LIMIT = { capacity: 20, windowMs: 60_000 }
const FOREIGN_DEVICES = join(import.meta.dirname, 'foreign-devices.ts')

export interface TrialHost {
  readonly host: string
  readonly kind: 'plain' | 'limited' | 'foreign' | 'cloud'
  /** At most `LIMIT` come through. */
  readonly isLimited: boolean
}

const limit = {
  type: 'rate-limit',
  config: {
    ...{ name: 'few', algorithm: 'sliding_window', capacity: LIMIT.capacity },
    ...{ rate: `${LIMIT.windowMs / 1_000}s`, bucket_key: ['req.host'] },
  },
}

/** Its answers name the endpoint that they came through. */
export const policyOf = (isLimited: boolean, ...more: object[]) => ({
  on_http_request: [{ actions: [...(isLimited ? [limit] : []), ...more] }].filter(
    ({ actions }) => actions.length > 0,
  ),
  on_http_response: [
    {
      actions: [{ type: 'add-headers', config: { headers: { 'x-endpoint': `\${endpoint.id}` } } }],
    },
  ],
})

/** An agent in a process of its own, as on a device: the SDK opens the sessions of a process one by one. */
interface OwnDevice {
  readonly name: string
  readonly isLimited: boolean
  readonly isUpgraded: boolean
}

export interface DevicesOptions {
  readonly site: TrialSite
  readonly folder: string
  /** Where an SDK with one address connects. */
  readonly balancer: ListenAddress
  /** Program of the agents that an upgrade replaces. */
  readonly main?: string
}

/** Twenty agents, each with a name, and what they lead to; and two names that lead to no device. */
export class Devices {
  readonly #options: DevicesOptions
  readonly #closer = new Closer(createLogger('silent'))
  readonly hosts: TrialHost[] = []
  /** Agents that an upgrade replaces. */
  readonly #upgraded: { program: Program; readonly options: ProgramOptions }[] = []

  private constructor(options: DevicesOptions) {
    this.#options = options
  }

  /** Has to be stopped. */
  static async start(options: DevicesOptions): Promise<Devices> {
    const devices = new Devices(options)
    try {
      await devices.#start()
      return devices
    } catch (error) {
      await devices.stop()
      throw error
    }
  }

  stop(): Promise<void> {
    return this.#closer.close()
  }

  /** Restarts agents of an earlier build with the built program of this tree. */
  async upgrade(): Promise<void> {
    for (const process of this.#upgraded) {
      await process.program.end('SIGTERM')
      process.program = new Program(process.options)
      await process.program.ready<RunReady>()
    }
  }

  async #start(): Promise<void> {
    const { site } = this.#options
    const service = createService().listen(0, '127.0.0.1')
    this.#closer.own('service', service, () => {
      service.closeAllConnections()
      service.close()
    })
    await once(service, 'listening')
    const { port } = service.address() as { port: number }
    const nodes = (first: number) =>
      site.nodes.map((_, at) => site.nodes[(first + at) % site.nodes.length] as TrialNode)
    await this.#createCloud()
    await this.#startForeign(port)
    // A few at a time, because the gateways start with them.
    const devices = [...this.#ownDevices().entries()]
    for (let at = 0; at < devices.length; at += AT_ONCE) {
      const some = devices.slice(at, at + AT_ONCE)
      await Promise.all(some.map(([n, device]) => this.#startProcess(device, nodes(n), port)))
    }
  }

  #settings(name: string, nodes: readonly TrialNode[]): Record<string, string> {
    const { site, folder } = this.#options
    return {
      ...{ AGENT_DATA_DIR: join(folder, name), AGENT_API_TOKEN: SITE_API_TOKEN },
      AGENT_LISTEN: FREE_PORTS.AGENT_LISTEN,
      SVC_SERVER_ADDR: nodes.map((node) => formatListenAddress(linksTo(node))).join(),
      ...{ SVC_CA_CERT: site.caPath, SVC_AUTHTOKEN: site.authtoken },
    }
  }

  #ownDevices(): OwnDevice[] {
    const named = (count: number, prefix: string, more: Omit<OwnDevice, 'name'>) =>
      Array.from({ length: count }, (_, n) => ({ name: `${prefix}${n + 1}`, ...more }))
    return [
      ...named(LIMITED, 'few', { isLimited: true, isUpgraded: false }),
      ...named(PLAIN, 'cam', { isLimited: false, isUpgraded: false }),
      ...named(UPGRADED, 'press', { isLimited: false, isUpgraded: true }),
    ]
  }

  /** A process that runs until the end; resolves when it is ready. */
  async #startScript(path: string, settings: unknown): Promise<void> {
    const file = join(this.#options.folder, `${basename(path, '.ts')}.json`)
    writeFileSync(file, JSON.stringify(settings), { mode: 0o600 })
    const args = ['--import', 'tsx', path, file]
    const program = new Program({ command: [process.execPath], args })
    this.#closer.own(path, program, (it) => it.end('SIGKILL').then(() => {}))
    await program.ready()
  }

  async #startProcess(device: OwnDevice, nodes: readonly TrialNode[], port: number) {
    const { name, isLimited, isUpgraded } = device
    const { folder, main = MAIN } = this.#options
    const env = { ...this.#settings(name, nodes), LOG_LEVEL: 'error' }
    const options = { args: ['run', '--json'], cwd: folder, env }
    const process = { program: new Program({ ...options, ...(isUpgraded && { main }) }), options }
    if (isUpgraded) this.#upgraded.push(process)
    this.#closer.own(name, process, (it) => it.program.end('SIGKILL').then(() => {}))
    const { agent_api } = await process.program.ready<RunReady>()
    const host = `${name}.site.localhost`
    const answer = await fetch(`${agent_api}/tunnels`, {
      method: 'POST',
      headers: { authorization: `Bearer ${SITE_API_TOKEN}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        ...{ protocol: 'http', forwards_to: `localhost:${port}`, domain: host },
        policy: policyOf(isLimited),
      }),
    })
    if (!answer.ok) throw new Error(await answer.text())
    this.hosts.push({ host, kind: isLimited ? 'limited' : 'plain', isLimited })
  }

  async #startForeign(port: number): Promise<void> {
    const { site, balancer } = this.#options
    const hosts = Array.from({ length: FOREIGN }, (_, n) => `foreign${n + 1}.site.localhost`)
    await this.#startScript(FOREIGN_DEVICES, {
      ...{ server: formatListenAddress(balancer).replace('127.0.0.1', 'localhost'), hosts, port },
      ...{ authtoken: site.authtoken, ca: readFileSync(site.caPath, 'utf8') },
      policy: JSON.stringify(policyOf(false)),
    })
    this.hosts.push(...hosts.map((host) => ({ host, kind: 'foreign', isLimited: false }) as const))
  }

  async #createCloud(): Promise<void> {
    const { site } = this.#options
    const [node] = site.nodes
    if (!node) throw new Error('there are no nodes')
    for (const isLimited of [false, true]) {
      const host = `cloud${isLimited ? '-few' : ''}.site.localhost`
      const answer = { type: 'custom-response', config: { status_code: 200, body: 'cloud' } }
      const { on_http_request } = policyOf(isLimited, answer)
      const traffic_policy = JSON.stringify({ on_http_request })
      const body = { url: `https://${host}`, type: 'cloud', traffic_policy }
      const made = await site.manage(node, 'POST', '/endpoints', body, { withinMs: START_MS })
      if (made.status !== 201) throw new Error(JSON.stringify(made.body))
      this.hosts.push({ host, kind: 'cloud', isLimited })
    }
  }
}
