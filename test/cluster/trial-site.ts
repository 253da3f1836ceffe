import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatListenAddress, type ListenAddress } from '../../src/base/listen-address.ts'
import { until } from '../always-on/until.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'
import type { TestPostgres } from '../helpers/postgres.ts'
import { MAIN, Program, runProgram } from '../helpers/program.ts'
import type { GatewayReady } from '../helpers/site.ts'
import { lastingAddress } from '../helpers/some-ports.ts'
import { unitProgram } from '../helpers/unit-program.ts'
import { type PeerPlace, PeerWays } from './peer-ways.ts'

export const NODES = [0, 1, 2] as const
const READY_MS = 2_000

/** One of the gateways: a process that is started again where it was. */
export interface TrialNode {
  readonly number: number
  readonly http: ListenAddress
  readonly agents: ListenAddress
  readonly api: string
  /** The way of agents to it; undefined without proxies. */
  readonly links: ChaosProxy | undefined
  /** Its way to PostgreSQL. */
  readonly database: ChaosProxy
  readonly env: Readonly<Record<string, string>>
  program: Program
}

/** What a node answers to whoever manages it. */
export interface ManagementAnswer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: whoever asks knows what it is.
  readonly body: any
}

/** Three gateways in a process each, started as their unit starts them, and a PostgreSQL, with a proxy on every way between them. */
export class TrialSite {
  readonly postgres: TestPostgres
  readonly nodes: readonly TrialNode[]
  readonly ways: PeerWays
  readonly caPath: string
  readonly authtoken: string
  readonly #key: string

  private constructor(
    postgres: TestPostgres,
    nodes: readonly TrialNode[],
    ways: PeerWays,
    ready: GatewayReady,
  ) {
    this.postgres = postgres
    this.nodes = nodes
    this.ways = ways
    this.caPath = ready.ca_cert
    this.authtoken = readFileSync(ready.authtoken_file, 'utf8').trim()
    this.#key = readFileSync(ready.api_key_file, 'utf8').trim()
  }

  /** Has to be stopped. `isDirect`: without proxies, for what is timed. */
  static async start(
    folder: string,
    postgres: TestPostgres,
    { isDirect = false, roundTripMs = 0, main = MAIN } = {},
  ): Promise<TrialSite> {
    const { database, user, password, ...address } = await postgres.database()
    const passwordFile = join(folder, 'password')
    writeFileSync(passwordFile, password?.reveal() ?? '', { mode: 0o600 })
    const [http, https] = [lastingAddress().port, lastingAddress().port]
    const places: PeerPlace[] = NODES.map((at) => {
      const listen = { host: `127.0.0.${at + 1}`, port: lastingAddress().port }
      return { listen, address: isDirect ? listen : lastingAddress() }
    })
    const nodes: TrialNode[] = []
    const ways = await PeerWays.open(isDirect ? [] : places, (at) => nodes[at]?.program.pid ?? -1)
    ways.delayAlways(roundTripMs / 2)
    let first: GatewayReady | undefined
    for (const at of NODES) {
      const proxy = await ChaosProxy.open(address)
      proxy.delayAlways(roundTripMs / 2)
      const [host, agents, api] = [`127.0.0.${at + 1}`, lastingAddress(), lastingAddress()]
      const links = isDirect ? undefined : await ChaosProxy.open(agents)
      const { port } = isDirect ? address : proxy.address
      const place = places[at] as PeerPlace
      const env = {
        GATEWAY_DATABASE_URL: `postgres://${user}@127.0.0.1:${port}/${database}`,
        GATEWAY_DATABASE_PASSWORD_FILE: passwordFile,
        GATEWAY_PEER_LISTEN: formatListenAddress(place.listen),
        GATEWAY_PEER_ADDRESS: formatListenAddress(place.address),
        GATEWAY_AGENT_LISTEN: formatListenAddress(agents),
        GATEWAY_API_LISTEN: formatListenAddress(api),
        GATEWAY_HTTP_LISTEN: `${host}:${http}`,
        GATEWAY_HTTPS_LISTEN: `${host}:${https}`,
        GATEWAY_RESERVED_DOMAIN: '*.site.localhost',
        // A stop drains for half of it: longer than a download takes.
        GATEWAY_DRAIN_SECONDS: '30',
        GATEWAY_DATA_DIR: join(folder, `gateway-${at + 1}`),
        LOG_LEVEL: process.env.LOG_LEVEL ?? 'warn',
      }
      const joins = at === 0 ? {} : { GATEWAY_JOIN_TOKEN_FILE: await joinToken(folder, env, main) }
      const program = startProgram(folder, { ...env, ...joins }, main)
      nodes.push({
        ...{
          number: at + 1,
          http: { host, port: http },
          agents,
          links,
          database: proxy,
          env,
          program,
        },
        api: `http://${formatListenAddress(api)}`,
      })
      const ready = await program.ready<GatewayReady>()
      first ??= ready
    }
    if (!first) throw new Error('there are no nodes')
    return new TrialSite(postgres, nodes, ways, first)
  }

  /** Starts a node that has ended where it was, maybe with another build; resolves when it serves. */
  async startAgain(node: TrialNode, main = MAIN): Promise<void> {
    node.program = startProgram(node.env.GATEWAY_DATA_DIR ?? '', node.env, main)
    await node.program.ready()
    await until(`node ${node.number} ready`, () => isReady(node))
  }

  async manage(
    { api }: TrialNode,
    method: string,
    path: string,
    body?: object,
    { key = this.#key, withinMs = 10_000 } = {},
  ): Promise<ManagementAnswer> {
    const response = await fetch(`${api}${path}`, {
      method,
      signal: AbortSignal.timeout(withinMs),
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
  }

  async stop(): Promise<void> {
    await Promise.all(
      this.nodes.map(async ({ program, database, links }) => {
        program.child.kill('SIGCONT')
        await program.end('SIGKILL')
        await database.stop()
        await links?.stop()
      }),
    )
    await this.ways.stop()
  }
}

/** Where agents connect to a node. */
export const linksTo = ({ links, agents }: Pick<TrialNode, 'links' | 'agents'>): ListenAddress =>
  links?.address ?? agents

/** Whether a load balancer would send visitors there. */
export async function isReady({ api }: Pick<TrialNode, 'api'>): Promise<boolean> {
  const signal = AbortSignal.timeout(READY_MS)
  return fetch(`${api}/readyz`, { signal }).then(
    async (response) => {
      await response.text()
      return response.ok
    },
    () => false,
  )
}

function startProgram(
  folder: string,
  env: Readonly<Record<string, string>>,
  main: string,
): Program {
  const { command, env: ofUnit } = unitProgram('device-gateway', process.execPath, main)
  return new Program({
    ...{ command, args: ['gateway', '--json'], cwd: folder },
    env: { ...ofUnit, ...env },
  })
}

async function joinToken(
  folder: string,
  env: Readonly<Record<string, string>>,
  main: string,
): Promise<string> {
  const args = ['gateway', 'join-token', '--json']
  const { stdout, stderr } = await runProgram({ args, cwd: folder, env, main })
  if (stdout === '') throw new Error(stderr)
  const path = `${env.GATEWAY_DATA_DIR}-join-token`
  writeFileSync(path, JSON.parse(stdout).token, { mode: 0o600 })
  return path
}
