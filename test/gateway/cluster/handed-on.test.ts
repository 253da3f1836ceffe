import type { Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { connectSdk } from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { bindTcp, readAll, startTcpService, visit } from '../../helpers/tcp-site.ts'
import { bindTls, startTlsService, visitTls } from '../../helpers/tls-site.ts'

const echo = (socket: Socket) => {
  socket.on('data', (chunk) => socket.write(chunk))
  socket.on('end', () => socket.end())
}
const rules = (...actions: object[]) => JSON.stringify({ on_tcp_connect: [{ actions }] })
const forward = (url: string) => ({ type: 'forward-internal', config: { url } })
const END_TLS = { type: 'terminate-tls', config: {} }

describe.skipIf(!hasPostgres)('connections that a policy hands on to another gateway', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** Two gateways, each with TCP ports, and a device at the second. */
  async function startSite() {
    const cluster = GatewayCluster.open(await postgres.database())
    const { first, last } = somePorts(16)
    const middle = first + 8
    const one = await cluster.start({
      tcpListen: { host: '127.0.0.1', first, last: middle - 1 },
    })
    const two = await cluster.start({
      authtoken: one.authtoken,
      tcpListen: { host: '127.0.0.1', first: middle, last },
    })
    const { issuer, registrar } = one.gateway.parts
    const { id: ownerId } = await issuer.createBotUser({ name: 'house' })
    await registrar.reserve({ domain: '*.house.test', ownerId })
    const { authtoken, credential } = await issuer.createCredential({ ownerId })
    await eventually(() => expect(two.gateway.parts.credentials.get(credential.id)).toBeDefined())
    const session = await connectSdk(two, { authtoken })
    const make = (url: string, trafficPolicy: string) =>
      one.gateway.parts.cloudEndpoints.create({ url, trafficPolicy, ownerId }, { isGranted: true })
    const known = (url: string) =>
      eventually(() =>
        expect(nodeIn(one.gateway)?.routes.hasInternal(new URL(url), ownerId)).toBe(true),
      )
    return { one, two, session, make, known, first }
  }

  /** What comes back of a greeting, with its end. */
  async function echoOf(socket: Socket, text = 'hello') {
    const rest = readAll(socket)
    socket.end(text)
    return rest
  }

  it('reach a TCP endpoint of a device there, and its policy', async () => {
    const { session, make, known, first, two } = await startSite()
    const { port } = await startTcpService(echo)
    await bindTcp(session, { address: 'ssh.internal:22', to: port })
    const policy = { on_tcp_connect: [{ actions: [{ type: 'deny' }] }] }
    await bindTcp(session, { address: 'shut.internal:22', to: port, policy })
    await known('tcp://ssh.internal:22')
    await known('tcp://shut.internal:22')
    const front = await make(`tcp://127.0.0.1:${first}`, rules(forward('tcp://ssh.internal:22')))
    expect(await echoOf(visit(`127.0.0.1:${first}`), 'x'.repeat(200_000))).toHaveLength(200_000)
    const device = [...two.gateway.parts.registry.all()].find(
      ({ host }) => host === 'ssh.internal:22',
    )
    for (const endpoint of [front, device]) {
      await eventually(() =>
        expect(endpoint?.traffic).toMatchObject({ requests: 1, active: 0, bytesIn: 200_000 }),
      )
    }
    await make(`tcp://127.0.0.1:${first + 1}`, rules(forward('tcp://shut.internal:22')))
    expect(await echoOf(visit(`127.0.0.1:${first + 1}`))).toBe('broken')
  })

  it('reach a TLS endpoint there: passed on, ended here, or ended there', async () => {
    const { one, session, make, known } = await startSite()
    const inside = await startTlsService(echo)
    const { port } = await startTcpService(echo)
    const policy = { on_tcp_connect: [{ actions: [END_TLS] }] }
    await bindTls(session, { domain: 'raw.internal', to: inside.port })
    await bindTls(session, { domain: 'ended.internal', to: port, policy })
    await bindTcp(session, { address: 'plain.internal:7', to: port })
    for (const url of ['tls://raw.internal', 'tls://ended.internal', 'tcp://plain.internal:7']) {
      await known(url)
    }
    await make('tls://raw.house.test', rules(forward('tls://raw.internal')))
    await make('tls://ended.house.test', rules(forward('tls://ended.internal')))
    await make('tls://plain.house.test', rules(END_TLS, forward('tcp://plain.internal:7')))
    for (const host of ['raw', 'ended', 'plain']) {
      const visitor = visitTls(one, `${host}.house.test`, { rejectUnauthorized: false })
      expect(await echoOf(visitor), host).toBe('hello')
    }
  })

  it('end after as many hops as at one gateway', async () => {
    const { session, make, known, first } = await startSite()
    const policy = { on_tcp_connect: [{ actions: [forward('tcp://loop.internal:9')] }] }
    await bindTcp(session, { address: 'loop.internal:9', policy })
    await known('tcp://loop.internal:9')
    await make(`tcp://127.0.0.1:${first}`, rules(forward('tcp://loop.internal:9')))
    expect(await echoOf(visit(`127.0.0.1:${first}`))).toBe('broken')
  })
})
