import { createServer as createHttpServer } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { AgentOptions } from '../../../src/agent/agent.ts'
import { statusView, verdictOf } from '../../../src/api/status-view.ts'
import { tunnelStatusView } from '../../../src/api/tunnel-view.ts'
import { agentChecks } from '../../../src/cli/doctor/agent-checks.ts'
import {
  afterRequest,
  answerAfter,
  listen,
  serve,
  serveTlsOnly,
} from '../../chaos/faulty-services.ts'
import { specOf } from '../../helpers/agent-in-folder.ts'
import { type AgentOnGateway, agentOnGateway } from '../../helpers/agent-on-gateway.ts'
import { eventually } from '../../helpers/eventually.ts'

const STORAGE = {
  ...{ fault: undefined, problem: undefined, healing: undefined, losses: [] },
  ...{ lossProblem: undefined, lastBackupAt: undefined, putAside: [] },
}

/** Answers of the agent, as the doctor gets them. */
function seen({ agent }: AgentOnGateway) {
  return {
    status: statusView(agent.status(), STORAGE),
    tunnels: agent.list().map((it) => tunnelStatusView(it, agent.policyInForce(it))),
  }
}

const headlineOf = ({ agent }: AgentOnGateway) => verdictOf(agent.status(), STORAGE).headline

async function started(change: Partial<AgentOptions> = {}): Promise<AgentOnGateway> {
  const on = await agentOnGateway(change)
  await on.agent.start()
  return on
}

/** The finding of the doctor about the only service. */
async function examined(on: AgentOnGateway) {
  const findings = await agentChecks(seen(on))
  return findings.find(({ check }) => check.startsWith('upstream '))
}

/** A port where nothing listens any more. */
async function freedPort(): Promise<number> {
  const server = createHttpServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as { port: number }
  await new Promise((resolve) => server.close(resolve))
  return port
}

interface ServiceFault {
  /** Starts the faulty service. */
  readonly start: () => Promise<number>
  readonly upstream?: object
  /** Status after a visitor has come; undefined: the service works. */
  readonly headline: RegExp
  readonly detail: RegExp
  /** Undefined: nothing has to be done. */
  readonly remedy?: RegExp
  /** Does what the remedy says; the tunnel then works. */
  readonly mend?: (on: AgentOnGateway, port: number) => Promise<unknown>
}

const hello = (port = 0) =>
  new Promise<number>((resolve) => {
    const server = createHttpServer((_, response) => response.end('hello'))
    onTestFinished(() => void server.close().closeAllConnections())
    server.listen(port, '127.0.0.1', () => resolve((server.address() as { port: number }).port))
  })

const forwardTo = (on: AgentOnGateway, target: string, upstream = {}) =>
  on.agent.replace('a.site.test', { ...specOf('a', target), upstream })

const elsewhere = async (on: AgentOnGateway) => forwardTo(on, `localhost:${await hello()}`)

const SERVICE_FAULTS: Record<string, ServiceFault> = {
  'nothing listens': {
    start: freedPort,
    headline: /localhost:\d+ refuses connections\.$/,
    detail: /^connection refused, nothing is listening$/,
    remedy: /^Start the service, or forward to the port that it uses\.$/,
    mend: (_on, port) => hello(port),
  },
  'the tunnel leads to another port': {
    start: freedPort,
    headline: /localhost:\d+ refuses connections\.$/,
    detail: /^connection refused/,
    remedy: /forward to the port that it uses/,
    mend: elsewhere,
  },
  'the service speaks TLS': {
    start: serveTlsOnly,
    headline: /localhost:\d+ sends no valid HTTP\.$/,
    detail: /^the service speaks TLS, and the tunnel forwards plain HTTP$/,
    remedy: /^Forward to https:\/\/localhost:\d+\.$/,
  },
  'the service needs five seconds': {
    start: () => answerAfter(5_000),
    headline: /^The tunnel works\.$/,
    detail: /^answers 200 after \d+ ms$/,
  },
  'the service hangs': {
    start: () => serve(() => {}),
    upstream: { timeout: 1 },
    headline: /localhost:\d+ does not answer in time\.$/,
    detail: /^accepts the connection, but does not answer within 1 s$/,
    remedy: /Restart the service if it hangs.*raise upstream\.timeout of the tunnel \(1 s\)/,
    mend: elsewhere,
  },
  'the service is no web service': {
    start: afterRequest('SSH-2.0-OpenSSH\r\n'),
    headline: /localhost:\d+ sends no valid HTTP\.$/,
    detail: /^the upstream does not answer with HTTP$/,
    remedy: /^Forward to the port of the web service/,
    mend: elsewhere,
  },
  'the service closes each connection': {
    start: () => serve((socket) => void socket.once('data', () => socket.end())),
    headline: /localhost:\d+ sends no valid HTTP\.$/,
    detail: /^closes the connection without an answer$/,
    remedy: /^Check the log of the service/,
    mend: elsewhere,
  },
  'the service wants a login': {
    start: () => listen(createHttpServer((_, response) => response.writeHead(401).end())),
    headline: /^The tunnel works\.$/,
    detail: /^answers 401 after \d+ ms$/,
  },
  'the health check gets an error': {
    start: () => listen(createHttpServer((_, response) => response.writeHead(503).end())),
    upstream: { health: '/alive' },
    headline: /localhost:\d+ fails its health check \(\/alive\)\.$/,
    detail: /^answers 503 after \d+ ms$/,
    mend: elsewhere,
  },
}

describe('a fault of the service', () => {
  it.each(Object.entries(SERVICE_FAULTS))('%s', async (_, fault) => {
    const on = await started()
    const port = await fault.start()
    const { upstream = {}, headline, detail, remedy, mend } = fault
    await on.agent.create({ ...specOf('a', `localhost:${port}`), upstream })
    await eventually(() => expect(on.states()).toEqual(['online']))
    // Some faults show to visitors alone.
    await on.visit('a').catch(() => {})
    await eventually(() => expect(headlineOf(on)).toMatch(headline))
    const finding = await examined(on)
    expect(finding?.detail).toMatch(detail)
    if (remedy) expect(finding?.remedy).toMatch(remedy)
    else expect(finding?.remedy).toBeNull()
    if (!mend) return
    await mend(on, port)
    await eventually(async () => {
      expect(await on.visit('a')).toBe('hello')
      expect(headlineOf(on)).toBe('The tunnel works.')
    })
    expect((await examined(on))?.outcome).toBe('good')
  })
})

interface LinkFault {
  readonly change: () => Partial<AgentOptions> | Promise<Partial<AgentOptions>>
  readonly headline: RegExp
  readonly remedy: RegExp
}

const LINK_FAULTS: Record<string, LinkFault> = {
  'the CA certificate is not set': {
    change: () => ({ caCert: undefined }),
    headline: /^No tunnels\. The service has a certificate of an unknown CA/,
    remedy: /^Copy ca\.pem of the gateway to the device, and set SVC_CA_CERT to its path\./,
  },
  'the name of the gateway is unknown': {
    change: () => ({ serverAddrs: ['gateway.invalid:4443'] }),
    headline: /^No tunnels\. gateway\.invalid cannot be resolved by DNS/,
    remedy: /DNS server of the device/,
  },
  'nothing listens at the gateway': {
    change: async () => ({ serverAddrs: [`localhost:${await freedPort()}`] }),
    headline: /^No tunnels\. localhost:\d+ refuses connections\.$/,
    remedy: /^Check that the service runs, its address in SVC_SERVER_ADDR/,
  },
}

describe('a fault of the link', () => {
  it.each(Object.entries(LINK_FAULTS))('%s', async (_, { change, headline, remedy }) => {
    const on = await started(await change())
    await eventually(() => expect(headlineOf(on)).toMatch(headline))
    const [first] = seen(on).status.advice
    expect(first?.remedy).toMatch(remedy)
    const link = (await agentChecks(seen(on))).find(({ check }) => check === 'link')
    expect(link).toMatchObject({ outcome: 'bad', remedy: expect.stringMatching(remedy) })
  })
})
