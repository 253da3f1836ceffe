import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StatusView } from '../../src/api/status-view.ts'
import { FREE_PORTS, Program, type ProgramOptions } from '../helpers/program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { type GatewayReady, type RunReady, SITE_API_TOKEN } from '../helpers/site.ts'
import { ActivatedGateway } from './activated-gateway.ts'
import { until } from './until.ts'
import { Visitors, type VisitorsOptions, type Visits } from './visitors.ts'

const PIECES = 50
const PIECE = Buffer.alloc(8_192, 'device')
/** So that a download takes five seconds. */
const PIECE_EVERY_MS = 100
/** The management API takes 120 requests a minute of a key. */
const MANAGE_EVERY_MS = 1_500

const SHIPPED = JSON.parse(
  readFileSync(new URL('../../default-policy.json', import.meta.url), 'utf8'),
) as { on_http_request: unknown[] }

/** Digest of what `/download` answers. */
const DOWNLOAD = createHash('sha256')
  .update(Buffer.concat(Array<Buffer>(PIECES).fill(PIECE)))
  .digest('hex')

export interface AlwaysOnOptions {
  readonly folder: string
  readonly agentEnv?: Readonly<Record<string, string>>
  readonly gatewayEnv?: Readonly<Record<string, string>>
  /** Paths of the programs, whose files a test may replace; the built program unless given. */
  readonly programs?: { readonly agent: string; readonly gateway: string }
}

/**
 * A gateway that is activated by sockets, an agent, a process each, and a service in this one.
 * Tunnels are created without a policy, so the default policy stands before them.
 */
export class AlwaysOnSite {
  readonly #options: AlwaysOnOptions
  readonly gateway: ActivatedGateway
  readonly #service: Server
  #agent: Program
  #api: RunReady

  private constructor(
    options: AlwaysOnOptions,
    gateway: ActivatedGateway,
    service: Server,
    agent: readonly [Program, RunReady],
  ) {
    this.#options = options
    this.gateway = gateway
    this.#service = service
    ;[this.#agent, this.#api] = agent
  }

  static async start(options: AlwaysOnOptions): Promise<AlwaysOnSite> {
    const { folder, gatewayEnv, agentEnv, programs } = options
    writeFileSync(join(folder, 'default-policy.json'), JSON.stringify(policyOf(0)))
    const service = createService().listen(0, '127.0.0.1')
    await once(service, 'listening')
    const gateway = await ActivatedGateway.start(folder, gatewayEnv, undefined, programs?.gateway)
    const token = readFileSync(gateway.ready.authtoken_file, 'utf8')
    writeFileSync(join(folder, 'authtoken'), token, { mode: 0o600 })
    const agent = startAgent(folder, gateway.ready, agentEnv, programs?.agent)
    return new AlwaysOnSite(options, gateway, service, [agent, await agent.ready()])
  }

  get folder(): string {
    return this.#options.folder
  }

  get ready(): GatewayReady {
    return this.gateway.ready
  }

  get port(): number {
    return (this.#service.address() as AddressInfo).port
  }

  get agentPid(): number {
    return this.#agent.pid
  }

  /** Such as `t3.site.localhost`. */
  host(index: number): string {
    return `t${index}.site.localhost`
  }

  call(method: string, path: string, body?: unknown): Promise<Response> {
    return fetch(`${this.#api.agent_api}${path}`, {
      method,
      headers: { authorization: `Bearer ${SITE_API_TOKEN}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  /** A call to the gateway's management API. */
  async manage(method: string, path: string, body?: unknown): Promise<unknown> {
    const key = readFileSync(this.ready.api_key_file, 'utf8').trim()
    const answer = await fetch(`${this.ready.management_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        'content-type': 'application/json',
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  /** Brings tunnels online, and waits until they are. */
  async createTunnels(count: number): Promise<void> {
    for (let index = 0; index < count; index += 1) {
      const spec = {
        protocol: 'http',
        forwards_to: `localhost:${this.port}`,
        domain: this.host(index),
      }
      const answer = await this.call('POST', '/tunnels', spec)
      if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
    }
    await this.online(count)
  }

  /** What the agent says of itself; undefined while it does not answer. */
  async status(): Promise<StatusView | undefined> {
    const answer = await this.call('GET', '/status').catch(() => undefined)
    return (await answer?.json()) as StatusView | undefined
  }

  /** Resolves when so many tunnels are online. */
  async online(count: number): Promise<void> {
    await until(`${count} tunnels online`, async () => {
      return ((await this.status())?.tunnels.online ?? 0) >= count
    })
  }

  visitors(
    scheme: 'http' | 'https',
    hosts: readonly string[],
    more: Partial<VisitorsOptions> = {},
  ): Visitors {
    const { ingress_http, ingress_https, ca_cert } = this.ready
    return new Visitors({
      ingress: scheme === 'http' ? ingress_http : ingress_https,
      ca: readFileSync(ca_cert, 'utf8'),
      hosts,
      download: DOWNLOAD,
      ...more,
    })
  }

  async endAgent(signal: NodeJS.Signals): Promise<void> {
    await this.#agent.end(signal)
  }

  /** Starts the agent again after `endAgent`. */
  async startAgent(): Promise<void> {
    const { folder, agentEnv, programs } = this.#options
    this.#agent = startAgent(folder, this.ready, agentEnv, programs?.agent)
    this.#api = await this.#agent.ready<RunReady>()
  }

  async restartAgent(signal: NodeJS.Signals): Promise<void> {
    await this.endAgent(signal)
    await this.startAgent()
  }

  async restartGateway(): Promise<void> {
    await this.gateway.end('SIGTERM')
    await this.gateway.startAgain()
  }

  /** Another policy for a tunnel; the number makes it another. */
  async setPolicy(index: number, number: number): Promise<void> {
    const host = this.host(index)
    const spec = {
      protocol: 'http',
      forwards_to: `localhost:${this.port}`,
      domain: host,
      policy: policyOf(number),
    }
    const answer = await this.call('PUT', `/tunnels/${host}`, spec)
    if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
  }

  /** Another default policy, for all tunnels that were created without one. */
  setDefaultPolicy(number: number): void {
    writeFileSync(
      join(this.#options.folder, 'default-policy.json'),
      JSON.stringify(policyOf(number)),
    )
  }

  /** Resolves when a policy that was set is what visitors of a host come through. */
  async inForce(host: string, number: number): Promise<void> {
    const ingress = this.ready.ingress_http
    await until(`policy ${number} at ${host}`, async () => {
      const { headers } = await publicRequest({ ingress, host })
      return headers['x-number-seen'] === `${number}`
    })
  }

  /** A second token for the same device, which takes the first one's place. */
  async rotateToken(): Promise<void> {
    const { credentials } = (await this.manage('GET', '/credentials')) as {
      credentials: { id: string; owner_id: string; acl: string[]; created_at: string }[]
    }
    const newest = credentials.reduce((a, b) => (a.created_at > b.created_at ? a : b))
    const made = (await this.manage('POST', '/credentials', {
      owner_id: newest.owner_id,
      acl: newest.acl,
    })) as { id: string; token: string }
    const path = join(this.#options.folder, 'authtoken')
    writeFileSync(path, made.token, { mode: 0o600 })
    await until(
      'a session with the new token alone',
      async () => {
        const { tunnel_sessions: sessions } = (await this.manage('GET', '/tunnel_sessions')) as {
          tunnel_sessions: { credential: { id: string } }[]
        }
        return sessions.length > 0 && sessions.every(({ credential }) => credential.id === made.id)
      },
      MANAGE_EVERY_MS,
    )
  }

  async stop(): Promise<void> {
    await this.#agent.end('SIGKILL')
    await this.gateway.end('SIGKILL')
    await this.gateway.stop()
    this.#service.closeAllConnections()
    this.#service.close()
  }
}

/** Runs something while visitors come, and answers what they got. */
export async function meanwhile(visitors: Visitors, act: () => Promise<void>): Promise<Visits> {
  visitors.start()
  await sleep(1_000)
  await act()
  await sleep(1_000)
  return visitors.stop()
}

/** The one that ships, and a header that tells which of them is in force. */
const policyOf = (number: number) => ({
  ...SHIPPED,
  on_http_request: [
    ...SHIPPED.on_http_request,
    { actions: [{ type: 'add-headers', config: { headers: { 'x-number': `${number}` } } }] },
  ],
})

/** `/download` takes five seconds, everything else is a word. */
export function createService(): Server {
  return createServer((request, response) => {
    if (request.url === '/download') void sendSlowly(response)
    else {
      response.setHeader('x-number-seen', request.headers['x-number'] ?? '')
      response.end('hello')
    }
  })
}

async function sendSlowly(response: ServerResponse): Promise<void> {
  response.setHeader('content-length', PIECES * PIECE.length)
  for (let piece = 0; piece < PIECES && !response.destroyed; piece += 1) {
    response.write(PIECE)
    await sleep(PIECE_EVERY_MS)
  }
  response.end()
}

/** `device-agent run` in a folder, with the authtoken that lies there. */
export function startAgent(
  folder: string,
  ready: GatewayReady,
  env: Readonly<Record<string, string>> = {},
  main?: string,
): Program {
  return new Program({ ...agentIn(folder, ready, env), ...(main !== undefined && { main }) })
}

function agentIn(
  folder: string,
  ready: GatewayReady,
  env: Readonly<Record<string, string>> = {},
): ProgramOptions {
  return {
    args: ['run', '--json'],
    cwd: folder,
    env: {
      ...FREE_PORTS,
      AGENT_DATA_DIR: join(folder, 'agent'),
      AGENT_API_TOKEN: SITE_API_TOKEN,
      SVC_AUTHTOKEN_FILE: join(folder, 'authtoken'),
      SVC_SERVER_ADDR: ready.agent_listen,
      SVC_CA_CERT: ready.ca_cert,
      LOG_LEVEL: 'warn',
      ...env,
    },
  }
}
