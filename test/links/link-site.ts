import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StatusView } from '../../src/api/status-view.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { ActivatedGateway } from '../always-on/activated-gateway.ts'
import { Visitors } from '../always-on/visitors.ts'
import { MAIN, Program } from '../helpers/program.ts'
import { type RunReady, SITE_API_TOKEN } from '../helpers/site.ts'
import type { Rig } from './rig.ts'

const NO_RULES = { on_http_request: [], on_http_response: [] }
const AT_ONCE = 8
/** A status of 1,000 tunnels takes the agent some milliseconds. */
const STATUS_EVERY_MS = 200

interface Answer {
  readonly status: number
  readonly text: string
}

/** A port of a listener, as `http://0.0.0.0:8080` and `10.77.0.1:4443` have it. */
export const portOf = (listener: string) => Number(listener.slice(listener.lastIndexOf(':') + 1))

/** A gateway on this side of the links; an agent and its service at the device's end. */
export class LinkSite {
  readonly gateway: ActivatedGateway
  readonly rig: Rig
  readonly service: LinkService
  readonly #folder: string
  readonly #server: string
  readonly #agentEnv: Readonly<Record<string, string>>
  #agent: Program

  private constructor(
    rig: Rig,
    folder: string,
    gateway: ActivatedGateway,
    service: LinkService,
    server: string,
    agentEnv: Readonly<Record<string, string>>,
  ) {
    this.rig = rig
    this.#folder = folder
    this.gateway = gateway
    this.service = service
    this.#server = server
    this.#agentEnv = agentEnv
    this.#agent = this.#spawnAgent()
  }

  static async start(
    rig: Rig,
    agentEnv: Readonly<Record<string, string>> = {},
    gatewayEnv: Readonly<Record<string, string>> = {},
  ): Promise<LinkSite> {
    const folder = mkdtempSync(join(tmpdir(), 'device-agent-links-'))
    const gateway = await ActivatedGateway.start(folder, gatewayEnv, [
      rig.hostFor('device'),
      // Elsewhere the plain listener redirects to HTTPS.
      '127.0.0.1',
      '0.0.0.0',
      '127.0.0.1',
    ])
    const listener = {
      host: rig.hostFor('device'),
      port: portOf(gateway.ready.agent_listen),
    }
    const server = formatListenAddress(await rig.across('device', listener))
    const service = await startService(rig.commandAt('device', serviceProgram('0.0.0.0')))
    const site = new LinkSite(rig, folder, gateway, service, server, agentEnv)
    await site.#agent.ready<RunReady>()
    return site
  }

  /** Such as `t3.site.localhost`. */
  host(index: number): string {
    return `t${index}.site.localhost`
  }

  hosts(count: number): string[] {
    return Array.from({ length: count }, (_, index) => this.host(index))
  }

  get agentPid(): number {
    return this.#agent.pid
  }

  /** A call to the agent, through its local socket: the link is not in the way. */
  call(method: string, path: string, body?: unknown): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const request = httpRequest(
        {
          socketPath: join(this.#folder, 'agent', 'local.sock'),
          method,
          path,
          headers: { host: 'localhost', 'content-type': 'application/json' },
        },
        (response) => {
          let text = ''
          response.setEncoding('utf8')
          response.on('data', (piece: string) => {
            text += piece
          })
          response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
          response.on('error', reject)
        },
      )
      request.on('error', reject)
      request.end(body === undefined ? undefined : JSON.stringify(body))
    })
  }

  /** Asks for a tunnel, and does not wait for it. */
  async createTunnel(domain: string, port: number, more: object = {}): Promise<void> {
    const spec = { protocol: 'http', forwards_to: `localhost:${port}`, domain, policy: NO_RULES }
    const { status, text } = await this.call('POST', '/tunnels', { ...spec, ...more })
    if (status >= 300) throw new Error(`${status}: ${text}`)
  }

  /** Asks for tunnels to the device's service. */
  async createTunnels(count: number): Promise<void> {
    const left = this.hosts(count)
    const worker = async () => {
      for (let domain = left.shift(); domain !== undefined; domain = left.shift()) {
        await this.createTunnel(domain, this.service.port)
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, worker))
  }

  /** What the agent says of itself; undefined while it does not answer. */
  async status(): Promise<StatusView | undefined> {
    const answer = await this.call('GET', '/status').catch(() => undefined)
    return answer?.status === 200 ? (JSON.parse(answer.text) as StatusView) : undefined
  }

  async onlineCount(): Promise<number> {
    return (await this.status())?.tunnels.online ?? 0
  }

  /** Milliseconds until so many tunnels are online; undefined when they are not in time. */
  async untilOnline(count: number, withinMs: number): Promise<number | undefined> {
    const since = performance.now()
    while ((await this.onlineCount()) < count) {
      if (performance.now() - since > withinMs) return undefined
      await sleep(STATUS_EVERY_MS)
    }
    return performance.now() - since
  }

  /** Fifty short requests a second on this side, for the tunnels in an order of chance. */
  visitors(count: number): Visitors {
    const { ingress_http: ingress, ca_cert } = this.gateway.ready
    const hosts = this.hosts(count)
    for (let at = hosts.length - 1; at > 0; at -= 1) {
      const other = Math.floor(Math.random() * (at + 1))
      ;[hosts[at], hosts[other]] = [hosts[other] as string, hosts[at] as string]
    }
    return new Visitors({
      ingress,
      ca: readFileSync(ca_cert, 'utf8'),
      hosts,
      download: '',
      downloads: 0,
    })
  }

  async restartGateway(): Promise<void> {
    await this.gateway.end('SIGTERM')
    await this.gateway.startAgain()
  }

  async restartAgent(): Promise<void> {
    await this.#agent.end('SIGTERM')
    this.#agent = this.#spawnAgent()
    await this.#agent.ready<RunReady>()
  }

  async stop(): Promise<void> {
    await this.#agent.end('SIGKILL')
    await this.gateway.end('SIGKILL')
    await this.gateway.stop()
    await stopService(this.service)
    rmSync(this.#folder, { recursive: true, force: true })
  }

  #spawnAgent(): Program {
    const { authtoken_file, ca_cert } = this.gateway.ready
    return new Program({
      args: ['run', '--json'],
      command: this.rig.commandAt('device', [process.execPath, MAIN]),
      cwd: this.#folder,
      env: {
        AGENT_DATA_DIR: join(this.#folder, 'agent'),
        AGENT_API_TOKEN: SITE_API_TOKEN,
        SVC_AUTHTOKEN_FILE: authtoken_file,
        SVC_SERVER_ADDR: this.#server,
        SVC_CA_CERT: ca_cert,
        LOG_LEVEL: 'warn',
        ...this.#agentEnv,
      },
    })
  }
}

/** `device-service.ts`, listening at that host. */
export const serviceProgram = (host: string): [string, ...string[]] => [
  process.execPath,
  '--import',
  'tsx',
  join(import.meta.dirname, 'device-service.ts'),
  host,
]

export interface LinkService {
  readonly child: ChildProcess
  readonly port: number
  readonly grpcPort: number
}

/** Resolves when it listens. */
export async function startService([file, ...words]: [string, ...string[]]): Promise<LinkService> {
  const child = spawn(file, words, { stdio: ['pipe', 'pipe', 'inherit'] })
  const [line] = await once(child.stdout, 'data')
  const [port = 0, grpcPort = 0] = String(line).trim().split(' ').map(Number)
  return { child, port, grpcPort }
}

/** Resolves when it has ended. */
export async function stopService({ child }: LinkService): Promise<void> {
  const ended = once(child, 'exit')
  child.stdin?.end()
  await ended
}
