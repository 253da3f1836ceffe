import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { createServer as createTlsServer } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import { PROBE_PATH } from '../../src/agent/probes/self-probe.ts'
import { specOf } from '../helpers/agent-in-folder.ts'
import {
  type AgentOnGateway,
  agentOnGateway,
  startedOnGateway,
} from '../helpers/agent-on-gateway.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'
import { eventually } from '../helpers/eventually.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

/** With a second to answer, and checks that only connect. */
const UPSTREAM = { health: 'tcp', timeout: 1 } as const

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => sockets.add(socket.on('error', () => {})))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return (server.address() as AddressInfo).port
}

const serve = (onSocket: (socket: Socket) => void) => listen(createServer(onSocket))
const afterRequest = (text: string) => () =>
  serve((socket) => void socket.once('data', () => socket.end(text)))

async function serveTlsOnly(): Promise<number> {
  const { certPem, keyPem } = await createTlsFixture()
  const server = createTlsServer({ cert: certPem, key: keyPem }, (socket) => socket.end('secret'))
  server.on('tlsClientError', () => {})
  return listen(server)
}

async function closedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

type Fault = readonly [what: string, start: () => Promise<number>, visitor: unknown, state: string]

const SERVICES: readonly Fault[] = [
  [
    'answers',
    () => listen(createHttpServer((_, response) => response.end('hello'))),
    'hello',
    'up',
  ],
  ['answers 500', () => listen(createHttpServer((_, it) => it.writeHead(500).end())), 500, 'up'],
  ['is not there', closedPort, 502, 'down'],
  ['closes each connection', () => serve((socket) => socket.destroy()), 502, 'garbage'],
  ['closes after a request', afterRequest(''), 502, 'garbage'],
  ['resets each connection', () => serve((socket) => socket.resetAndDestroy()), 502, 'garbage'],
  ['speaks first', () => serve((socket) => socket.write('SSH-2.0-x\r\n')), 502, 'garbage'],
  ['answers garbage', afterRequest('\0\0\0 not HTTP\r\n\r\n'), 502, 'garbage'],
  ['breaks its head off', afterRequest('HTTP/1.1 200 OK\r\nContent-'), 502, 'garbage'],
  ['speaks TLS alone', serveTlsOnly, 502, 'garbage'],
  ['hangs', () => serve((socket) => socket.resume()), 504, 'slow'],
]

const VERDICTS: Record<string, RegExp> = {
  up: /^the tunnel is online$/,
  down: /no answer from localhost:\d+: start what belongs there/,
  garbage: /no valid HTTP from localhost:\d+: check what runs there/,
  slow: /visitors wait in vain for localhost:\d+: look at what hangs there/,
}

describe('a service behind a tunnel that is online', () => {
  it.each(SERVICES)(
    '%s: visitor and agent learn the same',
    async (_what, start, visitor, state) => {
      const on = await startedOnGateway({ upstream: UPSTREAM })
      await on.agent.create(specOf('a', `localhost:${await start()}`))
      await eventually(() => expect(on.states()).toEqual(['online']))
      expect(await on.visit('a')).toBe(visitor)
      await eventually(() => {
        const [tunnel] = on.agent.list()
        expect(tunnel?.status).toMatchObject({ state: 'online', upstream: state })
        if (state !== 'down') expect(tunnel?.status.visitors).toBeDefined()
        expect(on.agent.status().verdict).toMatch(VERDICTS[state] ?? /^$/)
        const trouble = state === 'up' ? [undefined, undefined] : ['upstream', expect.any(String)]
        expect([tunnel?.status.reason, tunnel?.status.remedy]).toEqual(trouble)
      })
      expect(on.agent.status().link.state).toBe('up')
    },
  )

  it('has the time that its tunnel gives it, beside another tunnel that gives it less', async () => {
    let open = () => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    const port = await listen(
      createHttpServer((_request, response) => void gate.then(() => response.end('hello'))),
    )
    const on = await startedOnGateway({ upstream: { health: 'off', timeout: 600 } })
    await on.agent.create({ ...specOf('a', `localhost:${port}`), upstream: { timeout: 1 } })
    await on.agent.create(specOf('b', `localhost:${port}`))
    await eventually(() => expect(on.states()).toEqual(['online', 'online']))
    const patient = on.visit('b')
    expect(await on.visit('a')).toBe(504)
    await eventually(() => {
      const { remedy = '' } = on.agent.list()[0]?.status ?? {}
      expect(remedy).toContain('give it more than 1 s with upstream.timeout')
    })
    open()
    expect(await patient).toBe('hello')
  })

  it('that fails the check of its tunnel is told to be unhealthy, and not to be away', async () => {
    const port = await listen(
      createHttpServer((_request, response) => response.writeHead(503).end('starting')),
    )
    const on = await startedOnGateway()
    const spec = specOf('a', `localhost:${port}`)
    await on.agent.create({ ...spec, upstream: { health: '/alive' } })
    await eventually(() => {
      const [status] = on.agent.list().map((tunnel) => tunnel.status)
      expect(status).toMatchObject({ state: 'online', upstream: 'down', reason: 'upstream' })
      expect(status?.lastError).toContain('or answers /alive with an error')
      expect(on.agent.status().verdict).toContain(`no healthy answer from localhost:${port}`)
    })
    await on.agent.replace(spec.domain, { ...spec, upstream: { health: 'tcp' } })
    await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('up'))
  })

  it('is well again as soon as a visitor gets an answer', async () => {
    let isSick = true
    const port = await listen(
      createHttpServer((_request, response) => {
        if (isSick) response.socket?.end('garbage\r\n\r\n')
        else response.end('hello')
      }),
    )
    const on = await startedOnGateway({ upstream: UPSTREAM })
    await on.agent.create(specOf('a', `localhost:${port}`))
    await eventually(() => expect(on.states()).toEqual(['online']))
    await on.visit('a')
    await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('garbage'))
    isSick = false
    expect(await on.visit('a')).toBe('hello')
    await eventually(() => {
      const status = on.agent.list()[0]?.status
      expect([status?.upstream, status?.visitors?.state]).toEqual(['up', 'answered'])
    })
  })
})

/** Serves what the agent's API serves to the probe, on a unix socket. */
async function serveProbe(path: string, agent: () => Agent): Promise<void> {
  const server = createHttpServer((request, response) => {
    const answer = agent().answerProbe(request.url?.slice(PROBE_PATH.length + 1) ?? '')
    response.writeHead(answer === undefined ? 404 : 200).end(answer)
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  onTestFinished(() => void server.close().closeAllConnections())
}

interface Site extends AgentOnGateway {
  /** Between this device and the ingress; visitors do not come by. */
  readonly street: ChaosProxy
}

async function startSite(): Promise<Site> {
  const running = await startGateway()
  const street = await ChaosProxy.start(running.addresses.https)
  const socketPath = join(temporaryFolder(), 'api.sock')
  const own = { domain: 'agent.site.test', socketPath }
  const on = await agentOnGateway({ running, own, ingress: street.address })
  await serveProbe(socketPath, () => on.agent)
  await on.agent.start()
  await on.createTunnels('a')
  await eventually(() => expect(on.agent.status().ownEndpoint?.reachable).toBe('yes'))
  return { ...on, street }
}

type WayFault = readonly [
  what: string,
  strike: (site: Site) => unknown,
  tunnel: object,
  visitor: unknown,
]

const ALONE = { state: 'online', reachable: 'unverified' }
const AWAY = { state: 'waiting', reason: 'network' }

const WAYS: readonly WayFault[] = [
  [
    'answers do not come back to the device',
    ({ street }) => street.blackHole('down'),
    ALONE,
    'hello',
  ],
  ['what the device asks gets lost', ({ street }) => street.blackHole('up'), ALONE, 'hello'],
  ['the device is refused', ({ street }) => street.refuse(), ALONE, 'hello'],
  ['nothing comes down the link', ({ proxy }) => proxy.blackHole('down'), AWAY, undefined],
  ['nothing goes up the link', ({ proxy }) => proxy.blackHole('up'), AWAY, undefined],
  [
    'the link is cut and no other can be made',
    ({ proxy }) => {
      proxy.refuse()
      proxy.cut()
    },
    AWAY,
    undefined,
  ],
  ['the gateway is gone', ({ gateway }) => gateway.stop(), AWAY, undefined],
]

describe('the way to the device', () => {
  it.each(WAYS)('%s', async (_what, strike, tunnel, visitor) => {
    const site = await startSite()
    const { since } = site.agent.status().link
    await strike(site)
    await eventually(() => expect(site.agent.list()[0]?.status).toMatchObject(tunnel))
    if (visitor !== undefined) expect(await site.visit('a')).toBe(visitor)
    const { link, ready, verdict } = site.agent.status()
    if (tunnel === ALONE) {
      expect([link, ready]).toMatchObject([{ state: 'up', since }, true])
      expect(verdict).toContain('unverified: this device does not reach agent.site.test itself')
    } else {
      expect(ready).toBe(false)
      expect(verdict).toMatch(/network/)
    }
  })
})
