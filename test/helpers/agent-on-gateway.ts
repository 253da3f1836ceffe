import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished } from 'vitest'
import type { Agent, AgentOptions } from '../../src/agent/agent.ts'
import { NgrokConnector } from '../../src/agent/ngrok-connector.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { Gateway, type GatewayOptions } from '../../src/gateway/gateway.ts'
import { agentInFolder, FAST_TIMINGS, linkUp, specOf } from './agent-in-folder.ts'
import { captureLog } from './captured-log.ts'
import { ChaosProxy } from './chaos-proxy.ts'
import { eventually } from './eventually.ts'
import { publicRequest } from './public-request.ts'
import { GATEWAY_DEFAULTS, type RunningGateway, startGateway } from './running-gateway.ts'
import { lastingAddress } from './some-ports.ts'
import { temporaryFolder } from './temporary-folder.ts'

export interface AgentOnGateway extends RunningGateway {
  readonly agent: Agent
  /** Between the SDK and the gateway. */
  readonly proxy: ChaosProxy
  readonly tokenPath: string
  /** The agent's data. */
  readonly folder: string
  /** Another agent on the same data, or on a copy in another folder; not started. */
  another(change?: { folder?: string } & Partial<AgentOptions>): Agent
  /** Everything that the agent logged. */
  readonly agentLog: () => string
  /** Stops the gateway and starts it again on the same ports, `pauseMs` later. */
  restartGateway(pauseMs?: number): Promise<Gateway>
  /** Creates tunnels `<name>.site.test` to a service that answers with `hello`. */
  createTunnels(...names: string[]): Promise<void>
  /** What a visitor of `<name>.site.test` gets: the body, or the status when it is not 200. */
  visit(name: string): Promise<string | number>
  states(): string[]
}

/** The agent with the real SDK, a chaos proxy, and a real gateway; the agent is not started. */
export async function agentOnGateway({
  running: given,
  gateway: ofGateway,
  ...change
}: Partial<AgentOptions> & {
  running?: RunningGateway
  gateway?: Partial<GatewayOptions>
} = {}): Promise<AgentOnGateway> {
  const lasting = {
    agentListen: lastingAddress(),
    httpListen: lastingAddress(),
    httpsListen: lastingAddress(),
  }
  const running = given ?? (await startGateway({ ...lasting, ...ofGateway }))
  const { addresses, authtoken, dataDir } = running
  const proxy = await ChaosProxy.start(addresses.agent)
  const folder = temporaryFolder()
  const tokenPath = join(folder, 'authtoken')
  writeFileSync(tokenPath, authtoken.reveal(), { mode: 0o600 })
  writeFileSync(join(folder, 'default-policy.json'), '{}')
  const captured = captureLog()
  const create = (dataFolder: string, special: Partial<AgentOptions> = {}) =>
    agentInFolder(dataFolder, {
      connector: new NgrokConnector({
        version: '1.2.3',
        log: captured.log,
        heartbeat: { intervalS: 1, toleranceS: 1 },
        deadlines: { bindMs: 30_000, closeMs: 500 },
      }),
      authtoken: { files: [tokenPath], value: undefined },
      serverAddrs: [formatListenAddress(proxy.address).replace('127.0.0.1', 'localhost')],
      caCert: readFileSync(addresses.caCertPath, 'utf8'),
      log: captured.log,
      // What is created is online when it is answered, however busy the machine is.
      timings: { ...FAST_TIMINGS, settleMs: 60_000 },
      ...change,
      ...special,
    })
  const agent = create(folder)
  let gateway = running.gateway
  return {
    ...running,
    agent,
    proxy,
    tokenPath,
    folder,
    another: ({ folder: other = folder, ...special } = {}) => create(other, special),
    agentLog: captured.text,
    restartGateway: async (pauseMs = 0) => {
      await gateway.stop()
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
      gateway = new Gateway({
        ...GATEWAY_DEFAULTS,
        dataDir,
        log: captureLog().log,
        ...ofGateway,
        agentListen: addresses.agent,
        httpListen: addresses.http,
        httpsListen: addresses.https,
      })
      onTestFinished(() => gateway.stop())
      await gateway.start()
      return gateway
    },
    createTunnels: async (...names) => {
      const port = await serveHello()
      for (const name of names) await agent.create(specOf(name, `localhost:${port}`))
    },
    visit: async (name) => {
      const ingress = `http://${formatListenAddress(addresses.http)}`
      const { status, text } = await publicRequest({ ingress, host: `${name}.site.test` })
      return status === 200 ? text : status
    },
    states: () => agent.list().map(({ status }) => status.state),
  }
}

async function serveHello(): Promise<number> {
  const server = createServer((_request, response) => response.end('hello'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close().closeAllConnections())
  return (server.address() as AddressInfo).port
}

/** Waits until every tunnel is online and a visitor gets through to it. */
export async function carriesTraffic(on: AgentOnGateway): Promise<void> {
  const domains = on.agent.list().map(({ spec }) => spec.domain)
  await eventually(async () => {
    expect(on.states().filter((state) => state !== 'online')).toEqual([])
    for (const domain of domains) {
      expect(await on.visit(domain.split('.')[0] ?? ''), domain).toBe('hello')
    }
  })
}

/** Waits until no tunnel is called online any more. */
export async function isDown(on: AgentOnGateway): Promise<void> {
  await eventually(() => expect(on.states()).not.toContain('online'))
}

/** The same, started, with its link up. */
export async function startedOnGateway(
  ...options: Parameters<typeof agentOnGateway>
): Promise<AgentOnGateway> {
  const on = await agentOnGateway(...options)
  await on.agent.start()
  await linkUp(on.agent)
  return on
}
