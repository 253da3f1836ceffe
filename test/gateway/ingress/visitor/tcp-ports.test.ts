import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { SharedReads } from '../../../../src/base/net/shared-reads.ts'
import type { NameFacts } from '../../../../src/gateway/endpoints/disconnected-name.ts'
import type { AgentEndpoint } from '../../../../src/gateway/endpoints/endpoint.ts'
import { TcpAddresses } from '../../../../src/gateway/endpoints/tcp-addresses.ts'
import { AskSeal } from '../../../../src/gateway/ingress/common/ask-seal.ts'
import { WriteCoalescer } from '../../../../src/gateway/ingress/common/client-socket.ts'
import { ErrorLog } from '../../../../src/gateway/ingress/common/error-log.ts'
import { NO_PAGES } from '../../../../src/gateway/ingress/common/error-reply.ts'
import {
  INGRESS_LIMITS,
  type IngressContext,
  type IngressLimits,
} from '../../../../src/gateway/ingress/common/ingress-context.ts'
import { PieceShares } from '../../../../src/gateway/ingress/syntax/piece-shares.ts'
import { ProxyGreeting } from '../../../../src/gateway/ingress/visitor/proxy-greeting.ts'
import type { RelayedConnection } from '../../../../src/gateway/ingress/visitor/relayed-connection.ts'
import type { TcpConnection } from '../../../../src/gateway/ingress/visitor/tcp-connection.ts'
import { TcpPorts } from '../../../../src/gateway/ingress/visitor/tcp-ports.ts'
import { BufferAccount } from '../../../../src/gateway/streams/buffer-account.ts'
import { type Outcome, refuse } from '../../../../src/policy/exchange/outcome.ts'
import type { CompiledPolicy } from '../../../../src/policy/policy.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { somePorts } from '../../../helpers/some-ports.ts'
import { readAll, startTcpService, visit } from '../../../helpers/tcp-site.ts'

const MINUTE = 60_000
const echo = (socket: Socket) => void socket.pipe(socket)

/** Ports of an ingress whose time the test moves, and an endpoint on the first of them. */
async function startPorts(
  limits: Partial<IngressLimits> = {},
  policy: Partial<CompiledPolicy> = {},
  serve = echo,
) {
  const service = await startTcpService(serve)
  const {
    registry,
    captured,
    endpoint: web,
    slots,
  } = await startIngressSite({ service: service.port })
  const clock = new ManualClock()
  const context: IngressContext & { now: number } = {
    registry,
    routes: registry,
    ownRoutes: registry,
    clock,
    log: captured.log,
    limits: { ...INGRESS_LIMITS, ...limits },
    buffers: new BufferAccount(),
    coalescer: new WriteCoalescer(),
    reads: new SharedReads(),
    askSeal: new AskSeal(clock),
    http2Streams: { open: 0 },
    pieceShares: new PieceShares(clock),
    errorPages: NO_PAGES,
    errorLog: new ErrorLog(captured.log, clock),
    now: clock.monotonic(),
  }
  const range = somePorts()
  const addresses = new TcpAddresses({ range, registry, isReserved: () => false, clock })
  const connections = new Set<TcpConnection | RelayedConnection>()
  const ports = new TcpPorts({
    listenHost: '127.0.0.1',
    addresses,
    context,
    onConnection: (connection) => {
      if (!(connection instanceof ProxyGreeting)) connections.add(connection)
    },
    onClose: (connection) => {
      if (!(connection instanceof ProxyGreeting)) connections.delete(connection)
    },
  })
  onTestFinished(async () => {
    for (const connection of connections) connection.destroy()
    await ports.stop()
  })
  const address = `127.0.0.1:${range.first}`
  const endpoint: AgentEndpoint = {
    ...web,
    id: 'ep_tcp',
    protocol: 'tcp',
    host: address,
    url: `tcp://${address}`,
    policy: policy as CompiledPolicy,
  }
  const pass = async (ms: number) => {
    await clock.advance(ms)
    context.now = clock.monotonic()
    for (const connection of connections) connection.sweep(context.now)
    ports.sweep()
  }
  /** A visitor who has got its first bytes back. */
  const talk = async (localText: string) => {
    const visitor = visit(address)
    visitor.write(localText)
    const [answer] = await once(visitor, 'data')
    expect(String(answer)).toBe(localText)
    return visitor
  }
  const open = async () => {
    registry.add(endpoint)
    await ports.open(address)
  }
  return {
    ports,
    registry,
    connections,
    address,
    endpoint,
    slots,
    captured,
    service,
    pass,
    talk,
    open,
  }
}

const isOver = (socket: Socket) => socket.destroyed || socket.readableEnded

describe('the port of a TCP endpoint', () => {
  it('gives a newcomer the place of who has been quiet for longest, and of nobody else', async () => {
    const { open, talk, pass, connections, address } = await startPorts({ connections: 2 })
    await open()
    const [first, second] = [await talk('first'), await talk('second')]
    await pass(0)
    // Both have moved something a moment ago.
    expect(await readAll(visit(address))).toBe('broken')
    await pass(MINUTE / 2)
    second.write('still here')
    await once(second, 'data')
    await pass(MINUTE / 2)
    const third = await talk('third')
    await eventually(() => expect(isOver(first)).toBe(true))
    expect([isOver(second), isOver(third), connections.size]).toEqual([false, false, 2])
  })

  it('is listened on when the process before has let go of it', async () => {
    const { ports, registry, address, endpoint, pass } = await startPorts()
    const port = Number(address.split(':')[1])
    const other = createServer().listen(port, '127.0.0.1')
    onTestFinished(() => void other.close())
    await once(other, 'listening')
    const { host, ownerId, protocol, url } = endpoint
    const ids = { credentialId: 'cr_1', deviceId: 'd1' }
    const facts: NameFacts = {
      host,
      ownerId,
      protocol,
      url,
      isShared: false,
      drawn: undefined,
      ...ids,
    }
    registry.hold(facts)
    await ports.start()
    expect(ports.size).toBe(0)
    await pass(1_000)
    await once(other.close(), 'close')
    await eventually(async () => {
      await pass(1_000)
      expect(ports.size).toBe(1)
    })
    // Who comes now waits for the device.
    const visitor = visit(address)
    visitor.end('hello')
    await eventually(() => expect(registry.held.size).toBe(1))
    registry.add(endpoint)
    expect(await readAll(visitor)).toBe('hello')
  })

  it('stays open until its endpoint is stored, but not for ever', async () => {
    const { ports, registry, address, endpoint, pass, talk } = await startPorts()
    await ports.open(address)
    // A cluster claims the address in PostgreSQL meanwhile.
    await pass(1_000)
    registry.add(endpoint)
    await talk('hello')
    await pass(MINUTE)
    expect(ports.size).toBe(1)
    // Its successor is about to be stored.
    registry.remove(endpoint)
    await ports.open(address)
    await pass(1_000)
    registry.add(endpoint)
    await talk('again')
    await pass(0)
    registry.remove(endpoint)
    await pass(0)
    expect(ports.size).toBe(0)
    // The claim was refused.
    await ports.open(address)
    await pass(29_000)
    expect(ports.size).toBe(1)
    await pass(1_000)
    expect(ports.size).toBe(0)
  })

  it('is listened on no more where nobody has the address', async () => {
    const { open, ports, registry, endpoint, pass, address } = await startPorts()
    await open()
    await pass(0)
    expect(ports.size).toBe(1)
    registry.remove(endpoint)
    await pass(0)
    expect(ports.size).toBe(0)
    expect(await readAll(visit(address))).toBe('broken')
  })
})

describe('a connection to a TCP endpoint', () => {
  it('is open when a policy that takes its time lets it pass, and not before', async () => {
    let decide = (_outcome: Outcome) => {}
    const onTcpConnect = () => new Promise<Outcome>((resolve) => (decide = resolve))
    const policy = { hasConnectRules: true, onTcpConnect }
    const { open, service, address, endpoint } = await startPorts({}, policy)
    await open()
    const visitor = visit(address)
    visitor.end('hello')
    await eventually(() => expect(endpoint.traffic.requests).toBe(1))
    expect(service.sockets).toHaveLength(0)
    decide({ kind: 'continue' })
    expect(await readAll(visitor)).toBe('hello')
    const refused = visit(address)
    await eventually(() => expect(endpoint.traffic.requests).toBe(2))
    decide(refuse(403, 'ERR_NGROK_3205', 'no'))
    expect(await readAll(refused)).toBe('broken')
    expect([service.sockets.length, endpoint.traffic.refused]).toEqual([1, 1])
  })

  it('is closed, and nothing of it reaches the device, when its policy fails', async () => {
    const onTcpConnect = async () => {
      throw new Error('a mistake of ours')
    }
    const { open, service, address, captured } = await startPorts(
      {},
      { hasConnectRules: true, onTcpConnect },
    )
    await open()
    const visitor = visit(address)
    visitor.end('hello')
    expect(await readAll(visitor)).toBe('broken')
    expect(service.sockets).toHaveLength(0)
    expect(captured.text()).toContain('policy failed')
  })

  it('is over, with its stream, when its visitor has left before the verdict', async () => {
    let decide = (_outcome: Outcome) => {}
    const onTcpConnect = () => new Promise<Outcome>((resolve) => (decide = resolve))
    const { open, address, endpoint, connections } = await startPorts(
      {},
      { hasConnectRules: true, onTcpConnect },
    )
    await open()
    const visitor = visit(address)
    await eventually(() => expect(endpoint.traffic.requests).toBe(1))
    // Nothing is read of it until then, so nobody knows yet.
    visitor.resetAndDestroy()
    decide({ kind: 'continue' })
    await eventually(() => {
      expect([connections.size, endpoint.traffic.active]).toEqual([0, 0])
      expect(endpoint.streams.holding.held).toBe(0)
    })
  })

  it('is refused, and counted so, where the device has no stream left for it', async () => {
    const { open, address, endpoint, slots } = await startPorts()
    await open()
    slots.close()
    const visitor = visit(address)
    visitor.end('hello')
    // Its session has still to withdraw its names: it looks a few times who has the address.
    expect(await readAll(visitor)).toBe('broken')
    expect(endpoint.traffic.errors.get('ERR_NGROK_3210')).toBe(1)
    expect(endpoint.traffic.active).toBe(0)
  })

  it('is broken off when more waits for its visitor than there is room for', async () => {
    const { open, address, endpoint, connections, talk } = await startPorts()
    await open()
    const visitor = await talk('hello')
    for (const connection of connections) connection.evict()
    expect(await readAll(visitor)).toBe('broken')
    expect(endpoint.traffic.errors.get('ERR_GATEWAY_TOO_SLOW')).toBe(1)
    await eventually(() => expect([connections.size, endpoint.traffic.active]).toEqual([0, 0]))
    expect(address).toBe(endpoint.host)
  })

  it('gives its stream up for others when the device has none left, as the slowest', async () => {
    const { open, endpoint, connections, talk } = await startPorts()
    await open()
    const visitor = await talk('hello')
    const [connection] = connections
    expect(connection?.pace).toMatchObject({ isHeldUp: false })
    expect(connection?.facts.clientIp).toBe('127.0.0.1')
    connection?.evict()
    expect(await readAll(visitor)).toBe('broken')
    expect(endpoint.traffic.errors.get('ERR_GATEWAY_TOO_SLOW')).toBe(1)
  })
})
