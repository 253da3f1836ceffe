import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it, onTestFinished } from 'vitest'
import type { ServiceCommand } from '../../src/agent/connector.ts'
import { NgrokConnector, type NgrokConnectorOptions } from '../../src/agent/ngrok-connector.ts'
import { ProblemError } from '../../src/agent/problem.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { Secret } from '../../src/base/secret.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { describeConnector } from './connector-contract.ts'

async function setUp(options: Partial<NgrokConnectorOptions> = {}) {
  const running = await startGateway()
  const { gateway, addresses, authtoken } = running
  const proxy = await ChaosProxy.start(addresses.agent)
  const connector = new NgrokConnector({ version: '0', log: captureLog().log, ...options })
  const { registry, sessions } = gateway.parts
  return {
    ...running,
    proxy,
    connector,
    authtoken,
    serverAddr: formatListenAddress(proxy.address).replace('127.0.0.1', 'localhost'),
    caCert: readFileSync(addresses.caCertPath, 'utf8'),
    domains: ['a.site.test', 'b.site.test'] as const,
    online: () => [...registry.all()].map(({ host }) => host),
    cut: () => proxy.cut(),
    command: async (command: ServiceCommand) => {
      for (const session of sessions.all()) await session.command(command)
    },
    drop: (domain: string) => {
      for (const session of sessions.all()) {
        for (const endpoint of session.endpoints()) {
          if (endpoint.host === domain) session.stopTunnel(endpoint, 300, 'credential revoked')
        }
      }
    },
  }
}

describeConnector('the real SDK', setUp)

async function connect(subject: Awaited<ReturnType<typeof setUp>>) {
  const lost: string[] = []
  const beats: number[] = []
  const { connector, authtoken, serverAddr, caCert } = subject
  const session = await connector.connect({
    authtoken,
    serverAddr,
    caCert,
    metadata: '{"device_id":"dev_1","instance":"process-1"}',
    onLost: ({ detail }) => lost.push(detail),
    onHeartbeat: (latencyMs) => beats.push(latencyMs),
    onCommand: () => {},
    onDuplicate: () => {},
  })
  onTestFinished(() => session.close())
  return { session, lost, beats }
}

const endpoint = (domain: string, dialUrl: string) => ({
  domain,
  dialUrl,
  forwardsTo: 'here',
  policy: undefined,
  onDropped: () => {},
})

async function serve(at: number | string, host?: string): Promise<number> {
  const server = createServer((_request, response) => response.end('hello from the device'))
  await new Promise<void>((resolve) => {
    if (typeof at === 'string') server.listen(at, resolve)
    else server.listen(at, host, resolve)
  })
  onTestFinished(() => void server.close().closeAllConnections())
  const address = server.address()
  return typeof address === 'string' ? 0 : (address as AddressInfo).port
}

it('forwards to a port, to an IPv6 address and to a unix socket', async () => {
  const subject = await setUp()
  const { session } = await connect(subject)
  const ingress = `http://${formatListenAddress(subject.addresses.http)}`
  const socket = join(temporaryFolder(), 'api.sock')
  await serve(socket)
  const targets = {
    'a.site.test': `http://localhost:${await serve(0, '127.0.0.1')}`,
    'b.site.test': `http://[::1]:${await serve(0, '::1')}`,
    'c.site.test': `unix:${socket}`,
  }
  for (const [host, dialUrl] of Object.entries(targets)) {
    await session.open(endpoint(host, dialUrl))
    expect((await publicRequest({ ingress, host })).text, host).toBe('hello from the device')
  }
})

it.each(['localhost:80', 'ftp://localhost', 'javascript:x', ''])(
  'does not hand %j to the SDK',
  async (dialUrl) => {
    const { session } = await connect(await setUp())
    await expect(session.open(endpoint('a.site.test', dialUrl))).rejects.toThrow(
      /^cannot forward to/,
    )
  },
)

it('names the device and the agent to the service', async () => {
  const subject = await setUp({ version: '1.2.3' })
  await connect(subject)
  const [session] = subject.gateway.parts.sessions.all()
  expect(session?.identity).toMatchObject({ deviceId: 'dev_1', agentVersion: '1.2.3' })
})

it('hears heartbeats, and their absence on a link that went silent', async () => {
  const subject = await setUp({ heartbeat: { intervalS: 1, toleranceS: 1 } })
  const { session, lost, beats } = await connect(subject)
  await session.open(endpoint('a.site.test', 'http://localhost:9'))
  await eventually(() => expect(beats.length).toBeGreaterThan(0))
  subject.proxy.blackHole('both')
  await eventually(() => expect(lost).toEqual(['no heartbeat for 2 s']))
  await session.close()
})

it('takes a bind without an answer for the end of the session', async () => {
  const subject = await setUp({ deadlines: { bindMs: 300, closeMs: 300 } })
  const { session, lost } = await connect(subject)
  subject.proxy.blackHole('down')
  await expect(session.open(endpoint('a.site.test', 'http://localhost:9'))).rejects.toThrow()
  expect(lost).toEqual([expect.stringMatching(/^opening an endpoint took longer than \d+ ms$/)])
  await session.close()
})

it('opens the names first that visitors wait for at our gateway', async () => {
  const subject = await setUp({ isMetered: true })
  const { connector, authtoken, serverAddr, caCert, addresses, gateway } = subject
  const ingress = `http://${formatListenAddress(addresses.http)}`
  const dialUrl = `http://localhost:${await serve(0, '127.0.0.1')}`
  const { registry, sessions } = gateway.parts
  const notices: string[] = []
  const connectAgain = async () => {
    const session = await connector.connect({
      ...{ authtoken, serverAddr, caCert },
      metadata: '{"device_id":"dev_1","instance":"process-1","tells_complete":true}',
      onLost: () => {},
      onHeartbeat: () => {},
      onCommand: () => {},
      onDuplicate: () => {},
      onNotice: (text) => notices.push(text),
    })
    onTestFinished(() => session.close())
    return session
  }
  const names = Array.from({ length: 20 }, (_, n) => `t${n}.site.test`)
  const awaited = 't19.site.test'
  const before = await connectAgain()
  await Promise.all(names.map((name) => before.open(endpoint(name, dialUrl))))
  for (const session of [...sessions.all()]) session.end('the connection was lost')
  const visit = publicRequest({ ingress, host: awaited })
  await eventually(() => expect(registry.held.size).toBe(1))
  const after = await connectAgain()
  await after.open(endpoint('t0.site.test', dialUrl))
  await eventually(() => expect(notices.join()).toContain(awaited))
  const opened: string[] = []
  const rest = names.slice(1).map(async (name) => {
    await after.open(endpoint(name, dialUrl))
    opened.push(name)
  })
  await Promise.all(rest)
  expect((await visit).text).toBe('hello from the device')
  // Two were on their way.
  expect(opened.indexOf(awaited)).toBeLessThanOrEqual(2)
})

it('opens many endpoints on several connections of one session to our gateway, which end as one', async () => {
  const warnings: Error[] = []
  const onWarning = (warning: Error) => warnings.push(warning)
  process.on('warning', onWarning)
  onTestFinished(() => void process.off('warning', onWarning))
  const subject = await setUp()
  const { sessions } = subject.gateway.parts
  subject.proxy.delay(20)
  const { session, lost } = await connect(subject)
  const hosts = Array.from({ length: 60 }, (_, n) => `t${n}.site.test`)
  const opened = await Promise.all(
    hosts.map((host) => session.open(endpoint(host, 'http://localhost:9'))),
  )
  expect(sessions.size).toBeGreaterThan(1)
  expect(subject.online().sort()).toEqual([...hosts].sort())
  // Each is closed on the connection that it was opened on.
  await Promise.all(opened.slice(0, 20).map((listener) => listener.close()))
  await eventually(() => expect(subject.online()).toHaveLength(40))
  subject.proxy.delay(0)
  expect(await session.drain(1_000)).toBe(true)
  await eventually(() => expect(subject.online()).toEqual([]))
  const [one] = sessions.all()
  one?.end('one of them breaks')
  await eventually(() => expect(lost).toHaveLength(1))
  expect(session.isAlive).toBe(false)
  // Node warns of many listeners as of a leak; a device with 60 tunnels has as many.
  expect(warnings.filter(({ name }) => name === 'MaxListenersExceededWarning')).toEqual([])
})

it('replaces endpoints on their connections, so that none of these loses all its endpoints', async () => {
  const subject = await setUp()
  const { sessions } = subject.gateway.parts
  subject.proxy.delay(20)
  const { session, lost } = await connect(subject)
  const hosts = Array.from({ length: 60 }, (_, n) => `t${n}.site.test`)
  const open = (host: string) => session.open(endpoint(host, 'http://localhost:9'))
  const opened = await Promise.all(hosts.map(open))
  subject.proxy.delay(0)
  const before = sessions.size
  expect(before).toBeGreaterThan(1)
  for (const round of [1, 2]) {
    for (const [at, host] of hosts.entries()) {
      const replaced = opened[at]
      opened[at] = await open(host)
      await replaced?.close()
    }
    expect([round, lost, sessions.size]).toEqual([round, [], before])
  }
  expect(subject.online().sort()).toEqual([...hosts].sort())
})

it('lets the connections of a session end one by one when another session has taken its place', async () => {
  const subject = await setUp()
  const { sessions } = subject.gateway.parts
  subject.proxy.delay(20)
  const { session, lost } = await connect(subject)
  const hosts = Array.from({ length: 60 }, (_, n) => `t${n}.site.test`)
  await Promise.all(hosts.map((host) => session.open(endpoint(host, 'http://localhost:9'))))
  subject.proxy.delay(0)
  const all = [...sessions.all()]
  expect(all.length).toBeGreaterThan(1)
  session.retire()
  const last = all.pop()
  for (const each of all) each.end('superseded')
  await eventually(() => expect(sessions.size).toBe(1))
  expect([lost, session.isAlive]).toEqual([[], true])
  last?.end('superseded')
  await eventually(() => expect(lost).toHaveLength(1))
})

it('closes an endpoint that opens only while the session is being closed', async () => {
  const subject = await setUp()
  const { session } = await connect(subject)
  await session.open(endpoint('a.site.test', 'http://localhost:9'))
  subject.proxy.delay(300)
  const opening = session.open(endpoint('b.site.test', 'http://localhost:9')).catch(() => {})
  // It is open at the service, whose answer is on its way.
  await eventually(() => expect(subject.online()).toContain('b.site.test'))
  await session.close()
  await opening
  await eventually(() => expect(subject.online()).toEqual([]))
  // Without an unbind it would have gone with the session, after 25 s without heartbeats.
  expect(subject.gateway.parts.sessions.size).toBe(1)
})

it('gives up all binds at once when the session dies under them', async () => {
  const subject = await setUp({ deadlines: { bindMs: 2_000, closeMs: 300 } })
  const { session } = await connect(subject)
  subject.proxy.blackHole('down')
  const startedAt = performance.now()
  const binds = Array.from({ length: 40 }, (_, n) =>
    session.open(endpoint(`t${n}.site.test`, 'http://localhost:9')),
  )
  const outcomes = await Promise.allSettled(binds)
  expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['rejected']))
  // One after the other they would take 40 deadlines, 80 s.
  expect(performance.now() - startedAt).toBeLessThan(40_000)
})

it.each([
  ['nobody listens', { serverAddr: 'localhost:1' }, 'network'],
  ['the CA is another one', { caCert: undefined }, 'tls'],
])('throws a problem when %s', async (_name, change, reason) => {
  const subject = await setUp()
  const error = await connect({ ...subject, ...change } as typeof subject).catch((e) => e)
  expect(error).toBeInstanceOf(ProblemError)
  expect(error.problem).toMatchObject({ reason, permanent: false })
})

it('keeps nothing of connects that were refused, and connects after them', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const subject = await setUp()
  const { connector, serverAddr, caCert } = subject
  const kept: WeakRef<object>[] = []
  const refuse = async () => {
    const onCommand = () => {}
    kept.push(new WeakRef(onCommand))
    const request = { serverAddr, caCert, metadata: '{"device_id":"dev_2"}', onCommand }
    const handlers = { onLost: () => {}, onHeartbeat: () => {}, onDuplicate: () => {} }
    const authtoken = new Secret('wrong')
    await connector.connect({ ...request, ...handlers, authtoken }).catch(() => {})
  }
  for (let time = 0; time < 5; time += 1) await refuse()
  await connect(subject)
  const [session] = subject.gateway.parts.sessions.all()
  expect(session?.identity).toMatchObject({ deviceId: 'dev_1', instance: 'process-1' })
  await eventually(() => {
    collect()
    expect(kept.filter((it) => it.deref() !== undefined)).toEqual([])
  })
})

it('never shows the token, whatever the service says', async () => {
  const subject = await setUp()
  const authtoken = new Secret('canary-token')
  const error = await connect({ ...subject, authtoken }).catch((e) => e)
  expect(error).toBeInstanceOf(ProblemError)
  expect(`${error.stack}${JSON.stringify(error.problem)}`).not.toContain('canary')
})

it('says which version of the SDK it is', () => {
  const connector = new NgrokConnector({ version: '0', log: captureLog().log })
  const manifest = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'))
  expect(connector.sdkVersion).toBe(manifest.dependencies['@ngrok/ngrok'])
})
