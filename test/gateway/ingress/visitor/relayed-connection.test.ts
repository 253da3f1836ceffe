import { once } from 'node:events'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { createServer as createTlsServer, connect as tlsConnect } from 'node:tls'
import { expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../../../src/base/clock.ts'
import { served } from '../../../../src/gateway/certificates/certificate-file.ts'
import type { PeerListenerOptions } from '../../../../src/gateway/cluster/peers/peer-listener.ts'
import { EndpointRegistry } from '../../../../src/gateway/endpoints/endpoint-registry.ts'
import { TcpAddresses } from '../../../../src/gateway/endpoints/tcp-addresses.ts'
import { nextRelayedConnectionState } from '../../../../src/gateway/ingress/visitor/relayed-connection.ts'
import type { EndpointProtocol } from '../../../../src/gateway/records/endpoint-protocol.ts'
import { VISITOR_STREAM_TYPE } from '../../../../src/gateway/streams/visitor-facts.ts'
import { ErrorCode } from '../../../../src/muxado/error-code.ts'
import { openTyped } from '../../../../src/muxado/session.ts'
import { DEAF } from '../../../../src/muxado/stream.ts'
import type { CompiledPolicy } from '../../../../src/policy/policy.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { ChaosProxy } from '../../../helpers/chaos-proxy.ts'
import { createCluster, startListener } from '../../../helpers/cluster.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { HOME, homesOf, startFirstNode } from '../../../helpers/hop-site.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { RawClient, startRawService } from '../../../helpers/raw-http.ts'
import { somePorts } from '../../../helpers/some-ports.ts'
import { createTlsFixture } from '../../../helpers/tls-fixture.ts'

const echo = (socket: Socket) => {
  socket.on('data', (chunk) => socket.write(chunk))
  socket.on('end', () => socket.end())
}

interface NodesOptions {
  readonly policy?: Partial<CompiledPolicy>
  /** What the node that visitors come to believes to be at home at the other one. */
  readonly believed?: EndpointRegistry
  /** How the other one takes visitors. */
  readonly onVisitor?: PeerListenerOptions['onVisitor']
  readonly linkClock?: Clock
}

async function startNodes(
  service: number,
  { policy = {}, believed, onVisitor, linkClock = systemClock }: NodesOptions = {},
) {
  const site = await startIngressSite({ service })
  const cluster = await createCluster(linkClock)
  const home = await startListener(cluster, HOME, {
    onVisitor: onVisitor ?? ((stream, origin) => site.ingress.acceptPeer(stream, origin)),
  })
  const proxy = await ChaosProxy.start(home.address)
  const registry = new EndpointRegistry()
  const range = somePorts(1)
  const port = range.first
  const isReserved = () => false
  const addresses = new TcpAddresses({ range, registry, isReserved, clock: systemClock })
  const fixture = await createTlsFixture()
  const certificate = served(fixture)
  const first = await startFirstNode({
    cluster,
    homes: homesOf(believed ?? site.registry),
    registry,
    nodes: [{ id: HOME, address: proxy.address }],
    tls: { served: () => certificate },
    tcp: { listenHost: '127.0.0.1', addresses },
    log: captureLog().log,
    clock: systemClock,
    linkClock,
  })
  const bind = (host: string, protocol: EndpointProtocol, at = site.registry) => {
    const url = `${protocol}://${host}`
    const { endpoint } = site
    const id = `ep_${protocol}`
    const traffic = new (endpoint.traffic.constructor as new () => typeof endpoint.traffic)()
    const bound = {
      ...endpoint,
      id,
      host,
      protocol,
      url,
      traffic,
      policy: policy as CompiledPolicy,
    }
    at.add(bound)
    return bound
  }
  const address = `127.0.0.1:${port}`
  return { site, first, proxy, bind, address, port }
}

it('passes the bytes of a TCP endpoint on, each end by itself', async () => {
  const { bind, first, address, port } = await startNodes(await startRawService(echo))
  const endpoint = bind(address, 'tcp')
  await first.ingress.openAddress(address)
  const client = RawClient.connect(port)
  client.send('hello')
  await client.receive('hello')
  client.send('x'.repeat(300_000))
  client.socket.end()
  expect(await client.end()).toBe('end')
  expect(client.length).toBe(300_005)
  await eventually(() => expect(endpoint.traffic).toMatchObject({ requests: 1, active: 0 }))
})

it('breaks a connection off that is broken off at either side', async () => {
  const sockets: Socket[] = []
  const { bind, first, address, port } = await startNodes(
    await startRawService((socket) => {
      sockets.push(socket)
      echo(socket)
    }),
  )
  const endpoint = bind(address, 'tcp')
  await first.ingress.openAddress(address)
  const client = RawClient.connect(port)
  client.send('hello')
  await client.receive('hello')
  client.socket.resetAndDestroy()
  await eventually(() => expect(endpoint.traffic.active).toBe(0))
  const other = RawClient.connect(port)
  other.send('hello')
  await other.receive('hello')
  endpoint.streams.cut()
  expect(await other.end()).toBe('ECONNRESET')
})

it('closes what a policy at the home closes', async () => {
  const policy = { hasConnectRules: true, onTcpConnect: () => ({ kind: 'close' }) as const }
  const { bind, first, address, port } = await startNodes(await startRawService(echo), { policy })
  const endpoint = bind(address, 'tcp')
  await first.ingress.openAddress(address)
  expect(await RawClient.connect(port).end()).toBe('ECONNRESET')
  expect(endpoint.traffic).toMatchObject({ requests: 1, refused: 1 })
})

it('waits for a home that cannot be reached, and reads nothing meanwhile', async () => {
  const { bind, first, address, port, proxy } = await startNodes(await startRawService(echo))
  bind(address, 'tcp')
  await first.ingress.openAddress(address)
  proxy.refuse()
  proxy.cut()
  await eventually(() => expect(first.links.find(HOME)?.session).toBeUndefined())
  const client = RawClient.connect(port)
  client.send('hello')
  await eventually(() => expect(first.routes.waiting).toBe(1))
  proxy.heal()
  await client.receive('hello')
})

it('waits while a node says that it is not the home, and goes on when it is', async () => {
  const believed = new EndpointRegistry()
  const service = await startRawService(echo)
  const { bind, first, address, port } = await startNodes(service, { believed })
  bind(address, 'tcp', believed)
  await first.ingress.openAddress(address)
  const client = RawClient.connect(port)
  client.send('hello')
  await eventually(() => expect(first.routes.waiting).toBe(1))
  bind(address, 'tcp')
  first.routes.onNodeUp(HOME)
  await client.receive('hello')
})

it('gives up when the link is lost again and again before there is an answer', async () => {
  const onVisitor = () => {}
  const { bind, first, address, port, proxy } = await startNodes(1, { onVisitor })
  bind(address, 'tcp')
  await first.ingress.openAddress(address)
  const client = RawClient.connect(port)
  await eventually(() => {
    if (first.links.find(HOME)?.session) proxy.cut()
    expect(client.ending).toBe('ECONNRESET')
  })
  expect(first.routes.waiting).toBe(0)
})

it('asks for no more than a slow visitor takes', async () => {
  const length = 48 << 20
  const chunks = Array.from({ length: length >> 16 }, () => Buffer.alloc(1 << 16, 'x'))
  let written = 0
  const service = await startRawService((socket) => {
    Readable.from(chunks).pipe(socket)
    const timer = setInterval(() => {
      written = socket.bytesWritten - socket.writableLength
    }, 20)
    onTestFinished(() => clearInterval(timer))
  })
  const { bind, first, address, port } = await startNodes(service)
  const endpoint = bind(address, 'tcp')
  await first.ingress.openAddress(address)
  const client = RawClient.connect(port)
  client.socket.pause()
  let before = -1
  let looks = 0
  await eventually(() => {
    looks = written > 0 && written === before ? looks + 1 : 0
    before = written
    expect(looks).toBe(50)
  })
  expect(endpoint.traffic.active).toBe(1)
  expect(written).toBeLessThan(length)
  client.socket.resume()
  client.socket.end()
  expect(await client.end()).toBe('end')
  expect(client.length).toBe(length)
})

it('waits for a place on the link to its home, for a while', async () => {
  const linkClock = new ManualClock(systemClock.now())
  const service = await startRawService(echo)
  const { bind, first, address, port } = await startNodes(service, { linkClock })
  bind(address, 'tcp')
  await first.ingress.openAddress(address)
  const { session, slots } = first.links.find(HOME) ?? {}
  if (!session || !slots) throw new Error('there is no link')
  const taken = Array.from({ length: session.freeSlots }, () =>
    openTyped(session, VISITOR_STREAM_TYPE, DEAF),
  )
  const client = RawClient.connect(port)
  client.send('hello')
  await eventually(() => expect(slots.waiting).toBe(1))
  taken[0]?.reset(ErrorCode.streamCancelled)
  await linkClock.advance(500)
  await client.receive('hello')
  const other = RawClient.connect(port)
  await eventually(() => expect(slots.waiting).toBe(1))
  await linkClock.advance(2_000)
  expect(await other.end()).toBe('ECONNRESET')
  RawClient.connect(port)
  await eventually(() => expect(slots.waiting).toBe(1))
  await first.ingress.stop(0)
  await eventually(() => expect(slots.waiting).toBe(0))
})

it('breaks off what is under way when its node ends', async () => {
  const { bind, first, address, port } = await startNodes(await startRawService(echo))
  const endpoint = bind(address, 'tcp')
  await first.ingress.openAddress(address)
  const client = RawClient.connect(port)
  client.send('hello')
  await client.receive('hello')
  await first.ingress.stop(0)
  expect(await client.end()).toBe('ECONNRESET')
  await eventually(() => expect(endpoint.traffic.active).toBe(0))
})

it('passes TLS on to the device of a TLS endpoint', async () => {
  const own = await createTlsFixture()
  const server = createTlsServer({ cert: own.certPem, key: own.keyPem }, echo)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { bind, first } = await startNodes((server.address() as { port: number }).port)
  bind('raw.test', 'tls')
  const visitor = tlsConnect({
    port: first.addresses.https.port,
    host: '127.0.0.1',
    servername: 'raw.test',
    ca: own.caPem,
    checkServerIdentity: () => undefined,
  })
  const client = new RawClient(visitor)
  client.send('hello')
  await client.receive('hello')
  visitor.end()
  expect(await client.end()).toBe('end')
})

it('is over when it is', () => {
  expect(() => nextRelayedConnectionState({ name: 'over' }, { name: 'searching' })).toThrow('over')
})
