// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { eventually } from '../../../helpers/eventually.ts'
import { RawAgent } from '../../../helpers/raw-agent.ts'
import { connectSdk, sdkCode, startGateway } from '../../../helpers/running-gateway.ts'
import { somePorts } from '../../../helpers/some-ports.ts'
import { bindTcp, readAll, startTcpService, visit } from '../../../helpers/tcp-site.ts'
import { bindTls, startTlsService, visitTls } from '../../../helpers/tls-site.ts'

/** Greets as an SSH server does, then answers with what it hears. */
const greet = (name: string) => (socket: Socket) => {
  socket.write(`SSH-2.0-${name}\r\n`)
  socket.on('data', (chunk) => socket.write(chunk))
  socket.on('end', () => socket.end())
}
const forward = (url: string, more: object = {}) => ({
  type: 'forward-internal',
  config: { url, ...more },
})
const rules = (...actions: object[]) => JSON.stringify({ on_tcp_connect: [{ actions }] })

async function startSite(ports = 16) {
  const tcpListen = somePorts(ports)
  const running = await startGateway({ tcpListen })
  const { registry, issuer, registrar, cloudEndpoints } = running.gateway.parts
  const accountOf = async (name: string) => {
    const { id: ownerId } = await issuer.createBotUser({ name })
    await registrar.reserve({ domain: `*.${name}.test`, ownerId })
    const { authtoken } = await issuer.createCredential({ ownerId })
    const session = await connectSdk(running, { authtoken })
    /** An endpoint without a device. */
    const make = (url: string, trafficPolicy: string, more: object = {}) =>
      cloudEndpoints.create({ url, trafficPolicy, ownerId, ...more }, { isGranted: true })
    return { ownerId, session, authtoken, make }
  }
  const address = (at = 0) => `127.0.0.1:${tcpListen.first + at}`
  return { running, registry, tcpListen, accountOf, address }
}

/** What the service says first; `broken` when nobody does. */
const greetingOf = (socket: Socket) =>
  new Promise<string>((resolve) => {
    socket.once('data', (chunk) => resolve(chunk.toString().trim()))
    socket.once('close', () => resolve('broken'))
  })

describe('forward-internal in on_tcp_connect', () => {
  it('leads a tcp:// cloud endpoint to the internal endpoint of a device', async () => {
    const { accountOf, address, registry } = await startSite()
    const { session, make } = await accountOf('house')
    const { port } = await startTcpService(greet('device'))
    const listener = await bindTcp(session, { address: 'ssh.internal:22', to: port })
    expect(listener.url()).toBe('tcp://ssh.internal:22')
    const front = await make(`tcp://${address()}`, rules(forward('tcp://ssh.internal:22')))
    expect(front).toMatchObject({ url: `tcp://${address()}`, protocol: 'tcp' })
    const visitor = visit(address())
    expect(await greetingOf(visitor)).toBe('SSH-2.0-device')
    const rest = readAll(visitor)
    visitor.end('x'.repeat(300_000))
    expect(await rest).toHaveLength(300_000)
    const [device] = [...registry.all()].filter(({ type }) => type === 'agent')
    for (const { traffic } of [front, device ?? front]) {
      await eventually(() =>
        expect(traffic).toMatchObject({ requests: 1, active: 0, refused: 0, bytesIn: 300_000 }),
      )
    }
  })

  it('chooses by the port, and knows no way for the others', async () => {
    const { accountOf, address, tcpListen } = await startSite()
    const { session, make } = await accountOf('house')
    for (const [at, name] of ['first', 'second'].entries()) {
      const { port } = await startTcpService(greet(name))
      await bindTcp(session, { address: `p${tcpListen.first + at}.internal:22`, to: port })
    }
    const policy = rules(forward('tcp://p${conn.server_port}.internal:22'))
    for (const at of [0, 1, 2]) await make(`tcp://${address(at)}`, policy)
    expect(await greetingOf(visit(address(0)))).toBe('SSH-2.0-first')
    expect(await greetingOf(visit(address(1)))).toBe('SSH-2.0-second')
    expect(await greetingOf(visit(address(2)))).toBe('broken')
  })

  it('runs the policy of the internal endpoint, too', async () => {
    const { accountOf, address } = await startSite()
    const { session, make } = await accountOf('house')
    const { port, sockets } = await startTcpService(greet('device'))
    const policy = { on_tcp_connect: [{ actions: [{ type: 'deny' }] }] }
    await bindTcp(session, { address: 'ssh.internal:22', to: port, policy })
    const front = await make(`tcp://${address()}`, rules(forward('tcp://ssh.internal:22')))
    expect(await greetingOf(visit(address()))).toBe('broken')
    expect(sockets).toHaveLength(0)
    expect(front.traffic).toMatchObject({ requests: 1, refused: 1 })
  })

  it('goes on through internal cloud endpoints, and ends loops', async () => {
    const { accountOf, address } = await startSite()
    const { session, make } = await accountOf('house')
    const { port } = await startTcpService(greet('device'))
    await bindTcp(session, { address: 'ssh.internal:22', to: port })
    const hop = await make('tcp://hop.internal:9', rules(forward('tcp://ssh.internal:22')))
    expect(hop.url).toBe('tcp://hop.internal:9')
    await make(`tcp://${address()}`, rules(forward('tcp://hop.internal:9')))
    expect(await greetingOf(visit(address()))).toBe('SSH-2.0-device')
    const loop = await make('tcp://loop.internal:9', rules(forward('tcp://loop.internal:9')))
    await make(`tcp://${address(1)}`, rules(forward('tcp://loop.internal:9')))
    expect(await greetingOf(visit(address(1)))).toBe('broken')
    // As for requests: five endpoints hand it on, and the next one ends it.
    expect(loop.traffic).toMatchObject({ requests: 5, active: 0 })
  })

  it('goes on with on_error: continue when the endpoint is offline', async () => {
    const { accountOf, address } = await startSite()
    const { session, make } = await accountOf('house')
    const { port } = await startTcpService(greet('spare'))
    await bindTcp(session, { address: 'spare.internal:22', to: port })
    const first = forward('tcp://ssh.internal:22', { on_error: 'continue', binding: 'internal' })
    await make(`tcp://${address()}`, rules(first, forward('tcp://spare.internal:22')))
    expect(await greetingOf(visit(address()))).toBe('SSH-2.0-spare')
  })

  it('finds no internal endpoint of another account', async () => {
    const { accountOf, address } = await startSite()
    const [mine, theirs] = [await accountOf('mine'), await accountOf('theirs')]
    const { port, sockets } = await startTcpService(greet('theirs'))
    await bindTcp(theirs.session, { address: 'ssh.internal:22', to: port })
    await mine.make(`tcp://${address()}`, rules(forward('tcp://ssh.internal:22')))
    expect(await greetingOf(visit(address()))).toBe('broken')
    expect(sockets).toHaveLength(0)
    const own = await startTcpService(greet('mine'))
    await bindTcp(mine.session, { address: 'ssh.internal:22', to: own.port })
    expect(await greetingOf(visit(address()))).toBe('SSH-2.0-mine')
  })

  it('waits for a device that is coming back, without asking the policy again', async () => {
    const { accountOf, address, running } = await startSite()
    const { make, authtoken } = await accountOf('house')
    const bind = (agent: RawAgent) =>
      agent.rpc(1, {
        ...{ Id: '', Proto: 'tcp', ForwardsTo: 'localhost:1', Extra: { Metadata: '' } },
        Opts: { Addr: 'ssh.internal:22' },
      })
    const first = await RawAgent.connect(running)
    const { ClientId: clientId } = await first.auth(authtoken.reveal())
    expect((await bind(first)).Error ?? '').toBe('')
    const front = await make(`tcp://${address()}`, rules(forward('tcp://ssh.internal:22')))
    first.cut()
    await eventually(() =>
      expect([...running.gateway.parts.registry.allDisconnected()].map(({ host }) => host)).toEqual(
        ['ssh.internal:22'],
      ),
    )
    const visitor = visit(address())
    const greeting = greetingOf(visitor)
    await eventually(() => expect(running.gateway.parts.registry.held.size).toBe(1))
    const again = await RawAgent.connect(running, {
      onStream: (_, stream) => {
        stream.write(Buffer.from('SSH-2.0-back\r\n'))
      },
    })
    await again.auth(authtoken.reveal(), {}, String(clientId))
    expect((await bind(again)).Error ?? '').toBe('')
    expect(await greeting).toBe('SSH-2.0-back')
    expect(front.traffic.requests).toBe(1)
  })

  it('chooses among TLS services by the server name, without ending TLS', async () => {
    const { accountOf, running } = await startSite()
    const { session, make } = await accountOf('house')
    const { port, caPem } = await startTlsService((socket) => greet('inside')(socket))
    await bindTls(session, { domain: 'cam.internal', to: port })
    await make('tls://*.house.test', rules(forward("tls://${conn.tls.sni.split('.')[0]}.internal")))
    const checked = { ca: caPem, checkServerIdentity: () => undefined }
    const visitor = visitTls(running, 'cam.house.test', checked)
    expect(await greetingOf(visitor)).toBe('SSH-2.0-inside')
    expect(visitor.authorized).toBe(true)
    expect(await greetingOf(visitTls(running, 'none.house.test', checked))).toBe('broken')
  })

  it('ends TLS where the public or the internal endpoint says so', async () => {
    const { accountOf, running } = await startSite()
    const { session, make } = await accountOf('house')
    const { port } = await startTcpService(greet('plain'))
    const terms = { type: 'terminate-tls', config: {} }
    await bindTcp(session, { address: 'plain.internal:7', to: port })
    await make('tls://out.house.test', rules(terms, forward('tcp://plain.internal:7')))
    const policy = { on_tcp_connect: [{ actions: [terms] }] }
    await bindTls(session, { domain: 'in.internal', to: port, policy })
    await make('tls://in.house.test', rules(forward('tls://in.internal')))
    const ca = readFileSync(running.addresses.caCertPath)
    for (const host of ['out.house.test', 'in.house.test']) {
      expect(await greetingOf(visitTls(running, host, { ca }))).toBe('SSH-2.0-plain')
    }
  })

  it('is refused where requests would meet bytes', async () => {
    const { accountOf, address } = await startSite()
    const { make, session } = await accountOf('house')
    const connect = (url: string) => rules(forward(url))
    const request = JSON.stringify({
      on_http_request: [{ actions: [forward('tcp://ssh.internal:22')] }],
    })
    const tries: [url: string, policy: string, code: number][] = [
      [`tcp://${address()}`, connect('https://cam.internal'), 2205],
      ['tls://a.house.test', connect('http://cam.internal'), 2205],
      ['https://a.house.test', connect('tcp://ssh.internal:22'), 2205],
      ['https://a.house.test', request, 2204],
      [`tcp://${address()}`, connect('tcp://ssh.internal'), 2204],
      [`tcp://${address()}`, connect('tcp://ssh.example.com:22'), 2204],
    ]
    for (const [url, policy, code] of tries) {
      await expect(make(url, policy), `${url} ${policy}`).rejects.toMatchObject({ code })
    }
    expect(await sdkCode(bindTcp(session, { address: 'ssh.internal:0' }))).toBe('ERR_NGROK_9030')
    expect(await sdkCode(bindTcp(session, { address: '*.internal:22' }))).toBe('ERR_NGROK_326')
  })

  it('listens again for cloud endpoints after a restart, and no more once they are deleted', async () => {
    const { accountOf, address, running, tcpListen } = await startSite()
    const { make } = await accountOf('house')
    const { id } = await make(`tcp://${address()}`, rules(forward('tcp://ssh.internal:22')))
    await running.gateway.stop()
    const again = await startGateway({
      dataDir: running.dataDir,
      tcpListen,
      agentListen: running.addresses.agent,
    })
    const { registry, cloudEndpoints } = again.gateway.parts
    const front = registry.find(id)
    if (front?.type !== 'cloud') throw new Error('the endpoint is not there')
    await greetingOf(visit(address()))
    expect(front.traffic.requests).toBe(1)
    await cloudEndpoints.delete(front)
    await eventually(async () => {
      const socket = visit(address())
      const error = await new Promise((resolve) => {
        socket.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code))
        socket.once('connect', () => resolve('connected'))
      })
      expect(error).toBe('ECONNREFUSED')
    })
  })
})
