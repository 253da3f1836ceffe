import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { AgentEndpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { publicRequest } from '../../../helpers/public-request.ts'
import {
  bind,
  connectSdk,
  GATEWAY_DEFAULTS,
  type RunningGateway,
  sdkCode,
  startGateway,
} from '../../../helpers/running-gateway.ts'
import { somePorts } from '../../../helpers/some-ports.ts'
import { addressOf, bindTcp, readAll, startTcpService, visit } from '../../../helpers/tcp-site.ts'

const echo = (socket: Socket) => socket.pipe(socket)
const endpointAt = ({ gateway }: RunningGateway, address: string) =>
  gateway.parts.registry.match(address, 'tcp') as AgentEndpoint
const MIB = 1_048_576

describe('a TCP endpoint of the SDK', () => {
  it('is refused with what to do where the gateway has no ports', async () => {
    const session = await connectSdk(await startGateway())
    const error = await bindTcp(session).catch((reason: Error) => reason)
    expect(String(error)).toMatch(/GATEWAY_TCP_LISTEN.*ERR_NGROK_332/s)
  })

  it('has the address that it asks for, or any of the range, and is closed with it', async () => {
    const tcpListen = somePorts()
    const running = await startGateway({ tcpListen })
    const session = await connectSdk(running)
    const { port } = await startTcpService(echo)
    const address = `127.0.0.1:${tcpListen.first + 3}`
    const asked = await bindTcp(session, { address, to: port })
    expect(asked.url()).toBe(`tcp://${address}`)
    const drawn = await bindTcp(session, { to: port })
    const other = addressOf(drawn)
    expect(other).not.toBe(address)
    expect(Number(other.split(':')[1])).toBeGreaterThanOrEqual(tcpListen.first)
    expect(Number(other.split(':')[1])).toBeLessThanOrEqual(tcpListen.last)
    for (const at of [address, other]) {
      const visitor = visit(at)
      visitor.end(`to ${at}`)
      expect(await readAll(visitor)).toBe(`to ${at}`)
    }
    await drawn.close()
    await eventually(async () => {
      expect(await readAll(visit(other))).toBe('broken')
    })
  })

  it('has no port before its policy is compiled, and none when that is refused', async () => {
    const tcpListen = somePorts()
    const running = await startGateway({ tcpListen })
    const session = await connectSdk(running)
    const address = `127.0.0.1:${tcpListen.first}`
    const policy = { on_http_request: [{ actions: [{ type: 'deny' }] }] }
    expect(await sdkCode(bindTcp(session, { address, policy }))).toBe('ERR_NGROK_9026')
    const outcome = await new Promise((resolve) => {
      const socket = connect(tcpListen.first, '127.0.0.1', () => resolve('listens'))
      socket.on('error', ({ code }: NodeJS.ErrnoException) => resolve(code))
      socket.on('connect', () => socket.destroy())
    })
    expect(outcome).toBe('ECONNREFUSED')
  })

  it.each([
    ['127.0.0.1:1', 'ERR_NGROK_301'],
    ['elsewhere.test:20000', 'ERR_NGROK_301'],
    ['nonsense', 'ERR_NGROK_301'],
  ])('cannot have %s', async (address, code) => {
    const session = await connectSdk(await startGateway({ tcpListen: somePorts() }))
    expect(await sdkCode(bindTcp(session, { address }))).toBe(code)
  })

  it('cannot have an address of somebody else, online or away', async () => {
    const tcpListen = somePorts()
    const running = await startGateway({ tcpListen })
    const address = `127.0.0.1:${tcpListen.first}`
    const first = await connectSdk(running, { metadata: '{"device_id":"a"}' })
    await bindTcp(first, { address })
    const { issuer, sessions } = running.gateway.parts
    const { id: ownerId } = await issuer.createBotUser({ name: 'stranger' })
    const { authtoken } = await issuer.createCredential({ ownerId })
    const stranger = await connectSdk(running, { authtoken })
    expect(await sdkCode(bindTcp(stranger, { address }))).toBe('ERR_NGROK_334')
    for (const session of [...sessions.all()]) {
      if (session.identity.deviceId === 'a') session.end('away')
    }
    expect(await sdkCode(bindTcp(stranger, { address }))).toBe('ERR_NGROK_334')
  })

  it('is at a port that no other program has, if the gateway chooses it', async () => {
    const tcpListen = somePorts(4)
    const { host, first, last } = tcpListen
    const free = first + 2
    const others = [first, first + 1, last].map((port) => createServer().listen(port, host))
    await Promise.all(others.map((other) => once(other, 'listening')))
    onTestFinished(() => others.forEach((other) => void other.close()))
    const session = await connectSdk(await startGateway({ tcpListen }))
    expect(await sdkCode(bindTcp(session, { address: `${host}:${last}` }))).toBe('ERR_NGROK_334')
    expect(addressOf(await bindTcp(session))).toBe(`${host}:${free}`)
    expect(await sdkCode(bindTcp(session))).toBe('ERR_NGROK_15013')
  })

  it('is refused with the reason, and can be asked for again, if no port of the host can be opened', async () => {
    // An address of documentation (RFC 5737), which no machine has.
    const session = await connectSdk(
      await startGateway({ tcpListen: { ...somePorts(4), host: '192.0.2.1' } }),
    )
    for (let turn = 0; turn < 6; turn += 1) {
      const error = await bindTcp(session).catch((reason: Error) => reason)
      expect(String(error)).toMatch(/this machine does not have the address.*ERR_NGROK_334/s)
    }
  })

  it('is refused for now, if other programs have more ports than one bind tries', async () => {
    const tcpListen = somePorts(40)
    const { host, first } = tcpListen
    const others = Array.from({ length: 40 }, (_, step) =>
      createServer().listen(first + step, host),
    )
    await Promise.all(others.map((other) => once(other, 'listening')))
    onTestFinished(() => others.forEach((other) => void other.close()))
    const session = await connectSdk(await startGateway({ tcpListen }))
    expect(await sdkCode(bindTcp(session))).toBe('ERR_NGROK_334')
  })

  it('follows the rules of the authtoken, by host and port', async () => {
    const tcpListen = somePorts()
    const running = await startGateway({ tcpListen })
    const { first } = tcpListen
    const acl = [`bind:127.0.0.1:${first + 5}`]
    const { authtoken } = await running.gateway.parts.issuer.createCredential({ acl })
    const session = await connectSdk(running, { authtoken })
    const other = bindTcp(session, { address: `127.0.0.1:${first + 6}` })
    expect(await sdkCode(other)).toBe('ERR_NGROK_316')
    expect(addressOf(await bindTcp(session))).toBe(`127.0.0.1:${first + 5}`)
    expect(await sdkCode(bindTcp(session))).toBe('ERR_NGROK_15013')
  })

  it('is refused with the rule that is missing, if the authtoken has none for addresses', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const acl = ['bind:*.site.test']
    const { authtoken } = await running.gateway.parts.issuer.createCredential({ acl })
    const session = await connectSdk(running, { authtoken })
    const error = await bindTcp(session).catch((reason: Error) => reason)
    expect(String(error)).toMatch(
      /has no ACL rule for a TCP address\. The rule bind:127\.0\.0\.1:\* .*ERR_NGROK_316/s,
    )
  })

  it('carries bytes both ways intact', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    const { port } = await startTcpService(echo)
    const address = addressOf(await bindTcp(session, { to: port }))
    const visitor = visit(address)
    const [sent, received] = [createHash('sha256'), createHash('sha256')]
    let bytes = 0
    visitor.on('data', (chunk) => {
      received.update(chunk)
      bytes += chunk.length
    })
    const ended = once(visitor, 'end')
    for (let part = 0; part < 32; part += 1) {
      const chunk = randomBytes(MIB)
      sent.update(chunk)
      if (!visitor.write(chunk)) await once(visitor, 'drain')
    }
    visitor.end()
    await ended
    expect(bytes).toBe(32 * MIB)
    expect(received.digest('hex')).toBe(sent.digest('hex'))
    await eventually(() => {
      const { traffic, streams } = endpointAt(running, address)
      expect([traffic.active, streams.holding.held]).toEqual([0, 0])
      expect([traffic.requests, traffic.bytesIn, traffic.bytesOut]).toEqual([1, 32 * MIB, 32 * MIB])
    })
  })

  it('keeps a connection half-open, whichever side ends first', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    // Ends before it reads, and answers nobody after that.
    const talker = await startTcpService((socket) => socket.end('all I have to say'))
    const first = visit(addressOf(await bindTcp(session, { to: talker.port })))
    expect(await readAll(first)).toBe('all I have to say')
    first.end('and all I have')
    await eventually(async () => expect(talker.sockets).toHaveLength(1))
    expect(await readAll(talker.sockets[0] as Socket)).toBe('and all I have')
    // Says nothing before it has read to the end.
    const listener = await startTcpService((socket) => {
      void readAll(socket).then((text) => socket.end(`heard ${text}`))
    })
    const second = visit(addressOf(await bindTcp(session, { to: listener.port })))
    second.end('this')
    expect(await readAll(second)).toBe('heard this')
  })

  it('is closed for a visitor whose service takes no connection, and that is counted', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    const { port, server } = await startTcpService(echo)
    server.close()
    await once(server, 'close')
    const address = addressOf(await bindTcp(session, { to: port }))
    const visitor = visit(address)
    expect(await readAll(visitor)).toBe('')
    visitor.end()
    await eventually(() => {
      const { traffic, streams } = endpointAt(running, address)
      expect(traffic.outcomes.counts).toMatchObject({ unreachable: 1, answered: 0 })
      expect(traffic.errors.get('ERR_NGROK_8012')).toBe(1)
      expect(streams.holding.held).toBe(0)
    })
  })

  it('holds visitors back until a slow device takes what they send', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    const { port, sockets } = await startTcpService((socket) => {
      socket.pause()
      socket.on('end', () => socket.end())
    })
    const address = addressOf(await bindTcp(session, { to: port }))
    const visitor = visit(address)
    const chunk = Buffer.alloc(MIB)
    let [written, counted] = [0, -1]
    const pump = () => {
      while (written < 256) {
        written += 1
        if (!visitor.write(chunk)) return
      }
    }
    visitor.on('drain', pump)
    pump()
    const { traffic } = endpointAt(running, address)
    await eventually(() => {
      const before = counted
      counted = traffic.bytesIn
      expect(counted).toBeGreaterThan(0)
      expect(counted).toBe(before)
    })
    expect(counted).toBeLessThan(64 * MIB)
    visitor.destroy()
    sockets[0]?.resume()
    await eventually(() => expect(traffic.active).toBe(0))
  })

  it('closes a connection that is silent for too long', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({
      clock,
      tcpListen: somePorts(),
      timeouts: { ...GATEWAY_DEFAULTS.timeouts, tcpIdleMs: 5_000 },
    })
    const session = await connectSdk(running)
    const { port } = await startTcpService(echo)
    const visitor = visit(addressOf(await bindTcp(session, { to: port })))
    visitor.write('hello')
    expect(String((await once(visitor, 'data'))[0])).toBe('hello')
    await clock.advance(4_000)
    const rest = readAll(visitor)
    expect(visitor.destroyed).toBe(false)
    await clock.advance(3_000)
    expect(await rest).toBe('broken')
  })
})

describe('on_tcp_connect of a TCP endpoint', () => {
  const deny = { actions: [{ type: 'deny' }] }
  it.each([
    ['deny', [deny], 'broken'],
    ['deny for others', [{ ...deny, expressions: ["conn.client_ip != '127.0.0.1'"] }], 'hello'],
    [
      'restrict-ips',
      [{ actions: [{ type: 'restrict-ips', config: { deny: ['127.0.0.0/8'] } }] }],
      'broken',
    ],
    [
      'variables',
      [
        { actions: [{ type: 'set-vars', config: { vars: [{ host: `\${endpoint.host}` }] } }] },
        { ...deny, expressions: ["vars.host == '127.0.0.1' && endpoint.protocol == 'tcp'"] },
      ],
      'broken',
    ],
  ])('obeys %s before the device is asked', async (_name, on_tcp_connect, expected) => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    const { port, sockets } = await startTcpService(echo)
    const address = addressOf(await bindTcp(session, { to: port, policy: { on_tcp_connect } }))
    const visitor = visit(address)
    visitor.end('hello')
    expect(await readAll(visitor)).toBe(expected)
    expect(sockets).toHaveLength(expected === 'hello' ? 1 : 0)
    expect(endpointAt(running, address).traffic.refused).toBe(expected === 'hello' ? 0 : 1)
  })

  it('limits the rate of connections', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    const { port } = await startTcpService(echo)
    const config = {
      name: 'two an hour',
      algorithm: 'sliding_window',
      capacity: 2,
      rate: '1h',
      bucket_key: ['conn.client_ip'],
    }
    const policy = { on_tcp_connect: [{ actions: [{ type: 'rate-limit', config }] }] }
    const address = addressOf(await bindTcp(session, { to: port, policy }))
    const answers: string[] = []
    for (let at = 0; at < 3; at += 1) {
      const visitor = visit(address)
      visitor.end('hello')
      answers.push(await readAll(visitor))
    }
    expect(answers).toEqual(['hello', 'hello', 'broken'])
  })

  it.each([
    [{ on_http_request: [deny] }, /on_http_request: A TCP or TLS endpoint has no HTTP requests/],
    [{ on_http_response: [{ actions: [{ type: 'log', config: { metadata: {} } }] }] }, /2230/],
    [
      {
        on_tcp_connect: [
          { actions: [{ type: 'forward-internal', config: { url: 'https://a.internal' } }] },
        ],
      },
      /can forward only to tcp:\/\/ and tls:\/\//,
    ],
  ])('is refused for what nobody can do to a connection: %j', async (policy, message) => {
    const session = await connectSdk(await startGateway({ tcpListen: somePorts() }))
    const error = await bindTcp(session, { policy }).catch((reason: Error) => reason)
    expect(String(error)).toMatch(message)
  })
})

describe('a TCP address whose device is away', () => {
  it('is its own when it comes back, and visitors wait for it', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const { port } = await startTcpService(echo)
    const metadata = '{"device_id":"press"}'
    const before = await connectSdk(running, { metadata })
    const address = addressOf(await bindTcp(before, { to: port }))
    const { sessions, registry } = running.gateway.parts
    for (const session of [...sessions.all()]) session.end('the link broke')
    const visitor = visit(address)
    visitor.end('are you there')
    await eventually(() => expect(registry.held.size).toBe(1))
    const other = await connectSdk(running, { metadata: '{"device_id":"other"}' })
    expect(addressOf(await bindTcp(other, { to: port }))).not.toBe(address)
    const again = await connectSdk(running, { metadata })
    expect(addressOf(await bindTcp(again, { to: port }))).toBe(address)
    expect(await readAll(visitor)).toBe('are you there')
    expect(registry.held.size).toBe(0)
  })

  it('is closed for who has waited as long as visitors wait', async () => {
    const running = await startGateway({ tcpListen: somePorts(), holdMs: 300 })
    const address = addressOf(await bindTcp(await connectSdk(running)))
    const { sessions, registry } = running.gateway.parts
    for (const session of [...sessions.all()]) session.end('the link broke')
    expect(await readAll(visit(address))).toBe('broken')
    expect(registry.held.size).toBe(0)
  })

  it('stays its own over a restart of the gateway', async () => {
    const tcpListen = somePorts()
    const running = await startGateway({ tcpListen })
    const { port } = await startTcpService(echo)
    const metadata = '{"device_id":"press"}'
    const address = addressOf(await bindTcp(await connectSdk(running, { metadata }), { to: port }))
    await running.gateway.stop()
    const { dataDir, authtoken } = running
    const next = await startGateway({ tcpListen, dataDir, authtoken })
    const visitor = visit(address)
    visitor.end('after a restart')
    await eventually(() => expect(next.gateway.parts.registry.held.size).toBe(1))
    const again = await connectSdk(next, { metadata })
    expect(addressOf(await bindTcp(again, { to: port }))).toBe(address)
    expect(await readAll(visitor)).toBe('after a restart')
  })
})

describe('greedy visitors of a TCP endpoint', () => {
  it('leave streams for others, and give them back', async () => {
    const running = await startGateway({ tcpListen: somePorts(), leastRate: 0 })
    const session = await connectSdk(running)
    const { port } = await startTcpService(echo)
    const address = addressOf(await bindTcp(session, { to: port }))
    const { streams, traffic } = endpointAt(running, address)
    const greedy: Socket[] = []
    for (let at = 0; at < 460; at += 1) {
      const socket = visit(address)
      socket.write('x')
      greedy.push(socket)
    }
    await eventually(() => expect(streams.holding.held + streams.holding.waiting).toBe(460))
    expect(streams.slots.available).toBe(streams.slots.reserved)
    const own = session.httpEndpoint().domain('agent.site.test')
    await own.listenAndForward(`http://127.0.0.1:${port}`)
    const answer = await publicRequest({
      ingress: `http://127.0.0.1:${running.addresses.http.port}`,
      host: 'agent.site.test',
    }).catch((error: Error) => error)
    // An echo is no HTTP response: the request has been to the device and back.
    expect(JSON.stringify(answer)).toMatch(/3004|502/)
    for (const socket of greedy) socket.destroy()
    await eventually(() => expect([traffic.active, streams.holding.held]).toEqual([0, 0]))
  })
})

describe('an HTTP endpoint beside it', () => {
  it('may have the same name with another scheme', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    await bind(session, 'cam.site.test')
    const plain = await session.httpEndpoint().scheme('http').domain('cam.site.test').listen()
    expect(plain.url()).toMatch(/^http:\/\/cam\.site\.test/)
    const { registry } = running.gateway.parts
    expect(registry.match('cam.site.test', 'http')?.protocol).toBe('http')
    expect(registry.match('cam.site.test', 'https')?.protocol).toBe('https')
  })
})
