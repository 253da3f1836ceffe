import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import type { TunnelBody } from './device.ts'
import { Program, type ProgramOptions } from './program.ts'
import { type PublicResponse, publicRequest } from './public-request.ts'
import { lastingAddress } from './some-ports.ts'

/** The line that `gateway --json` prints. */
export interface GatewayReady {
  readonly agent_listen: string
  readonly ingress_http: string
  readonly ingress_https: string
  readonly ca_cert: string
  readonly reserved_domain: string
  readonly authtoken_file: string
  readonly management_api: string
  readonly api_key_file: string
}

/** The line that `run --json` prints. */
export interface RunReady {
  readonly agent_api: string
}

export const SITE_API_TOKEN = 'site-token-of-at-least-20'

/** What the two programs of a site are started as, see `ProgramOptions`, and settings of one alone. */
export interface SitePrograms {
  readonly gateway?: SiteProgram
  readonly agent?: SiteProgram
}
export type SiteProgram = Pick<ProgramOptions, 'command' | 'env'>

/** A gateway and an agent in a process each, as on a site: the agent may die, the gateway stays. */
export class Site {
  readonly ready: GatewayReady
  readonly #folder: string
  readonly #env: Readonly<Record<string, string>>
  readonly #programs: SitePrograms
  #gateway: Program
  #agent: Program
  #api: RunReady
  readonly #authtoken: string

  private constructor(
    folder: string,
    env: Readonly<Record<string, string>>,
    programs: SitePrograms,
    gateway: readonly [Program, GatewayReady],
    agent: readonly [Program, RunReady],
  ) {
    this.#folder = folder
    this.#env = env
    this.#programs = programs
    ;[this.#gateway, this.ready] = gateway
    ;[this.#agent, this.#api] = agent
    this.#authtoken = readFileSync(this.ready.authtoken_file, 'utf8').trim()
  }

  static async start(
    folder: string,
    env: Readonly<Record<string, string>> = {},
    programs: SitePrograms = {},
  ): Promise<Site> {
    const gateway = spawnGateway(folder, { ...lastingListeners(), ...env }, programs.gateway)
    const ready = await gateway.ready<GatewayReady>()
    const agent = startAgent(folder, ready, env, programs.agent)
    const api = await agent.ready<RunReady>()
    return new Site(folder, env, programs, [gateway, ready], [agent, api])
  }

  get gateway(): Program {
    return this.#gateway
  }

  get agent(): Program {
    return this.#agent
  }

  /** Where the agent's API listens. */
  get agentApi(): string {
    return this.#api.agent_api
  }

  call(method: string, path: string, body?: unknown): Promise<Response> {
    return fetch(`${this.#api.agent_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${SITE_API_TOKEN}`,
        'content-type': 'application/json',
        // The agent closes idle connections, and a busy test may notice too late.
        connection: 'close',
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  /** Asks for a tunnel; the caller looks at the answer. */
  create(domain: string, port: number, policy?: unknown): Promise<Response> {
    const spec = { protocol: 'http', forwards_to: `localhost:${port}`, domain }
    return this.call('POST', '/tunnels', policy === undefined ? spec : { ...spec, policy })
  }

  /** A call to the gateway's management API. */
  manage(method: string, path: string, body?: unknown): Promise<Response> {
    const key = readFileSync(this.ready.api_key_file, 'utf8').trim()
    return fetch(`${this.ready.management_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        'content-type': 'application/json',
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  async list(): Promise<TunnelBody[]> {
    return (await this.call('GET', '/tunnels')).json() as Promise<TunnelBody[]>
  }

  /** Resolves when at least `count` tunnels are online. */
  async online(count: number): Promise<void> {
    for (;;) {
      const answer = await this.call('GET', '/status')
      const { tunnels } = (await answer.json()) as { tunnels: { online: number } }
      if (tunnels.online >= count) return
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  /** A visitor's request over plain HTTP. */
  visit(host: string, path = '/'): Promise<PublicResponse> {
    return publicRequest({ ingress: this.ready.ingress_http, host, path })
  }

  /** The plain authtoken that the gateway made for this site. */
  get authtoken(): string {
    return this.#authtoken
  }

  /** Starts the agent anew; resolves when its API listens, with the milliseconds that took. */
  async startAgent(env: Readonly<Record<string, string>> = {}): Promise<number> {
    const startedAt = performance.now()
    const both = { ...this.#env, ...env }
    this.#agent = startAgent(this.#folder, this.ready, both, this.#programs.agent)
    this.#api = await this.#agent.ready<RunReady>()
    return performance.now() - startedAt
  }

  /** Starts the gateway anew, where devices, visitors and its owner already look for it. */
  async startGateway(): Promise<void> {
    const env = {
      ...this.#env,
      GATEWAY_AGENT_LISTEN: this.ready.agent_listen,
      GATEWAY_HTTP_LISTEN: new URL(this.ready.ingress_http).host,
      GATEWAY_HTTPS_LISTEN: new URL(this.ready.ingress_https).host,
      GATEWAY_API_LISTEN: new URL(this.ready.management_api).host,
    }
    this.#gateway = spawnGateway(this.#folder, env, this.#programs.gateway)
    await this.#gateway.ready<GatewayReady>()
  }

  async restartAgent(
    signal: NodeJS.Signals = 'SIGTERM',
    env: Readonly<Record<string, string>> = {},
  ): Promise<number> {
    await this.#agent.end(signal)
    return this.startAgent(env)
  }

  async stop(): Promise<void> {
    await this.#agent.end()
    await this.#gateway.end()
  }
}

/** A gateway that is started again finds them free. */
const lastingListeners = () =>
  Object.fromEntries(
    ['AGENT', 'HTTP', 'HTTPS', 'API'].map((name) => [
      `GATEWAY_${name}_LISTEN`,
      formatListenAddress(lastingAddress()),
    ]),
  )

function spawnGateway(
  folder: string,
  env: Readonly<Record<string, string>>,
  own: SiteProgram = {},
): Program {
  return new Program({
    args: ['gateway', '--json'],
    command: own.command,
    cwd: folder,
    env: { GATEWAY_DATA_DIR: join(folder, 'gateway'), LOG_LEVEL: 'warn', ...env, ...own.env },
  })
}

function startAgent(
  folder: string,
  ready: GatewayReady,
  env: Readonly<Record<string, string>>,
  own: SiteProgram = {},
): Program {
  return new Program({
    args: ['run', '--json'],
    command: own.command,
    cwd: folder,
    env: {
      AGENT_DATA_DIR: join(folder, 'agent'),
      AGENT_API_TOKEN: SITE_API_TOKEN,
      SVC_AUTHTOKEN_FILE: ready.authtoken_file,
      SVC_SERVER_ADDR: ready.agent_listen,
      SVC_CA_CERT: ready.ca_cert,
      LOG_LEVEL: 'warn',
      ...env,
      ...own.env,
    },
  })
}
