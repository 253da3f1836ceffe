import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer, get } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Agent, AgentOptions } from '../../src/agent/agent.ts'
import type { Condition } from '../../src/agent/condition.ts'
import { NgrokConnector } from '../../src/agent/ngrok-connector.ts'
import { PROBE_PATH } from '../../src/agent/probes/self-probe.ts'
import { agentInFolder, FAST_TIMINGS, linkUp, specOf } from '../helpers/agent-in-folder.ts'
import {
  type AgentOnGateway,
  agentOnGateway,
  startedOnGateway,
} from '../helpers/agent-on-gateway.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'
import { eventually } from '../helpers/eventually.ts'
import { Program } from '../helpers/program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import type { GatewayReady } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'
import {
  afterRequest,
  answerAfter,
  fullBacklog,
  listen,
  serve,
  serveHalfBody,
  serveTlsOnly,
} from './faulty-services.ts'

/** With a second to answer, and checks that only connect. */
const UPSTREAM = { health: 'tcp', timeout: 1 } as const

const CUT = 'cut off'

type Fault = readonly [what: string, start: () => Promise<number>, visitor: unknown, state: string]

const SERVICES: readonly Fault[] = [
  [
    'answers',
    () => listen(createHttpServer((_, response) => response.end('hello'))),
    'hello',
    'up',
  ],
  ['answers 500', () => listen(createHttpServer((_, it) => it.writeHead(500).end())), 500, 'up'],
  ['is not there', async () => 1, 502, 'down'],
  ['closes each connection', () => serve((socket) => socket.destroy()), 502, 'garbage'],
  ['closes after a request', afterRequest(''), 502, 'garbage'],
  ['resets each connection', () => serve((socket) => socket.resetAndDestroy()), 502, 'garbage'],
  ['speaks first', () => serve((socket) => socket.write('SSH-2.0-x\r\n')), 502, 'garbage'],
  ['answers garbage', afterRequest('\0\0\0 not HTTP\r\n\r\n'), 502, 'garbage'],
  ['breaks its head off', afterRequest('HTTP/1.1 200 OK\r\nContent-'), 502, 'garbage'],
  ['speaks TLS alone', serveTlsOnly, 502, 'wrong_protocol'],
  ['hangs', () => serve((socket) => socket.resume()), 504, 'slow'],
  ['takes longer than its time', () => answerAfter(3_000), 504, 'slow'],
  ['breaks its body off', serveHalfBody, CUT, 'garbage'],
  ['has no room for connections', fullBacklog, 504, 'down'],
]

const CONDITIONS: Record<string, Condition> = {
  up: 'working',
  down: 'service_down',
  garbage: 'service_down',
  wrong_protocol: 'service_down',
  slow: 'service_slow',
}

const VERDICTS: Record<string, RegExp> = {
  up: /^The tunnel works\.$/,
  down: /^The tunnel does not work\. localhost:\d+ refuses connections\.$/,
  garbage: /^The tunnel does not work\. localhost:\d+ sends no valid HTTP\.$/,
  wrong_protocol: /^The tunnel does not work\. Wrong protocol: localhost:\d+ speaks TLS\.$/,
  slow: /^The tunnel does not work\. localhost:\d+ does not answer in time\.$/,
}

describe('a service behind a tunnel that is online', () => {
  it.each(SERVICES)(
    '%s: visitor and agent learn the same',
    async (_what, start, visitor, state) => {
      const on = await startedOnGateway({ upstream: UPSTREAM })
      await on.agent.create(specOf('a', `localhost:${await start()}`))
      await eventually(() => expect(on.states()).toEqual(['online']))
      expect(await on.visit('a').catch(() => CUT)).toBe(visitor)
      await eventually(() => {
        const [tunnel] = on.agent.list()
        expect(tunnel?.status).toMatchObject({ state: 'online', upstream: state })
        expect(tunnel?.status.condition).toBe(CONDITIONS[state])
        if (state !== 'down') expect(tunnel?.status.visitors).toBeDefined()
        expect(on.agent.status().verdict).toMatch(VERDICTS[state] ?? /^$/)
        const trouble = state === 'up' ? [undefined, undefined] : ['upstream', expect.any(String)]
        expect([tunnel?.status.reason, tunnel?.status.remedy]).toEqual(trouble)
      })
      expect(on.agent.status().link.state).toBe('up')
    },
  )

  it('that takes long, and less than its time, is up', async () => {
    const on = await startedOnGateway({ upstream: { ...UPSTREAM, timeout: 60 } })
    await on.agent.create(specOf('a', `localhost:${await answerAfter(1_500)}`))
    await eventually(() => expect(on.states()).toEqual(['online']))
    expect(await on.visit('a')).toBe('hello')
    await eventually(() => {
      const status = on.agent.list()[0]?.status
      expect([status?.upstream, status?.visitors?.state]).toEqual(['up', 'answered'])
    })
    expect(on.agent.status().verdict).toMatch(VERDICTS.up ?? /^$/)
  })

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
      expect(remedy).toContain('raise upstream.timeout of the tunnel above 1 s')
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
      expect(status?.lastError).toContain('fails its health check (/alive)')
      expect(on.agent.status().verdict).toContain(
        `localhost:${port} fails its health check (/alive).`,
      )
    })
    await on.agent.replace(spec.domain, { ...spec, upstream: { health: 'tcp' } })
    await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('up'))
  })

  it('that stalls in its body is not called anything: a stream looks the same', async () => {
    const port = await listen(createHttpServer((_, response) => void response.write('half')))
    const on = await startedOnGateway({ upstream: UPSTREAM })
    await on.agent.create(specOf('a', `localhost:${port}`))
    await eventually(() => expect(on.states()).toEqual(['online']))
    const headers = { host: 'a.site.test' }
    const visitor = get({ host: '127.0.0.1', port: on.addresses.http.port, headers, agent: false })
    onTestFinished(() => void visitor.destroy())
    const [response] = await once(visitor, 'response')
    const [part] = await once(response, 'data')
    expect([response.statusCode, String(part)]).toEqual([200, 'half'])
    await eventually(() => {
      const status = on.agent.list()[0]?.status
      expect([status?.upstream, status?.visitors?.state]).toEqual(['up', 'answered'])
    })
    expect(on.agent.status().verdict).toMatch(VERDICTS.up ?? /^$/)
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

/** Whose link stays the same, however late a busy machine answers. */
const patient = (): Partial<AgentOptions> => ({
  connector: new NgrokConnector({
    version: '1.2.3',
    log: captureLog().log,
    heartbeat: { intervalS: 1, toleranceS: 60 },
  }),
  timings: { ...FAST_TIMINGS, probe: { ...FAST_TIMINGS.probe, echoMs: 60_000 } },
})

async function startSite(change: Partial<AgentOptions> = {}): Promise<Site> {
  const running = await startGateway()
  const street = await ChaosProxy.start(running.addresses.https)
  const socketPath = join(temporaryFolder(), 'api.sock')
  const own = { domain: 'agent.site.test', socketPath }
  const on = await agentOnGateway({ running, own, ingress: street.address, ...change })
  await serveProbe(socketPath, () => on.agent)
  await on.agent.start()
  await on.createTunnels('a')
  await eventually(() => expect(on.agent.status().ownEndpoint?.reachable).toBe('yes'))
  return { ...on, street }
}

/** Everything that this device opens from now on ends at a portal with a certificate of its own. */
async function enterPortal({ street }: Site): Promise<void> {
  const { certPem, keyPem } = await createTlsFixture()
  const portal = createHttpsServer({ cert: certPem, key: keyPem }, (_, response) => {
    response.end('log in')
  })
  portal.on('tlsClientError', () => {})
  street.retarget({ host: '127.0.0.1', port: await listen(portal) })
  street.cut()
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
  ['a portal answers the device in our place', enterPortal, ALONE, 'hello'],
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
    const site = await startSite(tunnel === ALONE ? patient() : {})
    const { since } = site.agent.status().link
    await strike(site)
    await eventually(() => expect(site.agent.list()[0]?.status).toMatchObject(tunnel))
    if (visitor !== undefined) expect(await site.visit('a')).toBe(visitor)
    const { link, ready, verdict } = site.agent.status()
    if (tunnel === ALONE) {
      expect(site.agent.list()[0]?.status.condition).toBe('unverified')
      expect([link, ready]).toMatchObject([{ state: 'up', since }, true])
      expect(verdict).toContain('This device cannot reach its public address')
    } else {
      expect(ready).toBe(false)
      expect(verdict).toMatch(/^The tunnel does not work\. \S/)
      expect(link.reason).toBe('network')
    }
  })

  it('names that this device alone cannot look up are no reason to call anything off', async () => {
    const running = await startGateway()
    const socketPath = join(temporaryFolder(), 'api.sock')
    // Without an ingress to connect to, the agent asks its resolver, who knows nothing below .test.
    const own = { domain: 'agent.site.test', socketPath }
    const on = await agentOnGateway({ running, own })
    await serveProbe(socketPath, () => on.agent)
    await on.agent.start()
    await on.createTunnels('a')
    await eventually(() => expect(on.agent.list()[0]?.status).toMatchObject(ALONE))
    expect(await on.visit('a')).toBe('hello')
    const { link, ready, verdict } = on.agent.status()
    expect([link.state, ready]).toEqual(['up', true])
    expect(verdict).toContain('The tunnel is online. This device cannot reach its public address')
  })

  it('a gateway that is frozen is no link, and one that has thawed is', async () => {
    const folder = temporaryFolder()
    const gateway = new Program({
      args: ['gateway', '--json'],
      cwd: folder,
      env: { GATEWAY_DATA_DIR: join(folder, 'gateway'), LOG_LEVEL: 'warn' },
    })
    onTestFinished(() => void gateway.child.kill('SIGKILL'))
    const ready = await gateway.ready<GatewayReady>()
    writeFileSync(join(folder, 'default-policy.json'), '{}')
    const agent = agentInFolder(folder, {
      connector: new NgrokConnector({
        version: '1.2.3',
        log: captureLog().log,
        heartbeat: { intervalS: 1, toleranceS: 1 },
        deadlines: { bindMs: 2_000, closeMs: 500 },
      }),
      authtoken: { files: [ready.authtoken_file], value: undefined },
      serverAddrs: [ready.agent_listen.replace('127.0.0.1', 'localhost')],
      caCert: readFileSync(ready.ca_cert, 'utf8'),
    })
    await agent.start()
    await linkUp(agent)
    const port = await listen(createHttpServer((_, response) => response.end('hello')))
    await agent.create({ ...specOf('a', `localhost:${port}`), domain: 'a.site.localhost' })
    await eventually(() => expect(agent.list()[0]?.status.state).toBe('online'))
    gateway.child.kill('SIGSTOP')
    await eventually(() => expect(agent.list()[0]?.status).toMatchObject(AWAY))
    expect(agent.status()).toMatchObject({
      ready: false,
      verdict: expect.stringMatching(/^The tunnel does not work\. \S/),
      link: { reason: 'network' },
    })
    gateway.child.kill('SIGCONT')
    await eventually(() => expect(agent.list()[0]?.status.state).toBe('online'))
    const visitor = { ingress: ready.ingress_http, host: 'a.site.localhost' }
    await eventually(async () => expect((await publicRequest(visitor)).text).toBe('hello'))
  })
})
