import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { served } from '../../../../src/gateway/certificates/certificate-file.ts'
import { EndpointTraffic } from '../../../../src/gateway/endpoints/endpoint.ts'
import { EndpointRegistry } from '../../../../src/gateway/endpoints/endpoint-registry.ts'
import type { RemoteEndpoint, RemoteEndpoints } from '../../../../src/gateway/endpoints/routes.ts'
import {
  encodeFacts,
  type HttpEntry,
  VISITOR_STREAM_TYPE,
} from '../../../../src/gateway/streams/visitor-facts.ts'
import { openTyped } from '../../../../src/muxado/session.ts'
import { DEAF } from '../../../../src/muxado/stream.ts'
import { CONTINUE } from '../../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../../src/policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../../../src/policy/policy.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { ChaosProxy } from '../../../helpers/chaos-proxy.ts'
import { createCluster, startListener } from '../../../helpers/cluster.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { HOME, homesOf, startFirstNode } from '../../../helpers/hop-site.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { RawClient, startScriptedService } from '../../../helpers/raw-http.ts'
import { createAuthority } from '../../../helpers/tls-fixture.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const get = (host = 'a.test', more = '') => `GET /x HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`
const post = (body: string) =>
  `POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: ${body.length}\r\n\r\n${body}`

/** Homes that a test moves: a wrong one is what a node believes that has not heard yet. */
function movable(registry: EndpointRegistry) {
  let believed: { node?: string; isKnown: boolean } = { isKnown: true }
  const asked: string[] = []
  const place = (home: RemoteEndpoint | undefined) =>
    home && believed.isKnown ? { ...home, nodeId: believed.node ?? home.nodeId } : undefined
  const real = homesOf(registry)
  const homes: RemoteEndpoints = {
    find: (entrance, host) => {
      asked.push(host)
      return place(real.find(entrance, host))
    },
    findInternal: (protocol, host, ownerId) => place(real.findInternal(protocol, host, ownerId)),
  }
  const believe = (next: typeof believed) => {
    believed = next
  }
  return { homes, asked, believe }
}

/** Three nodes: where visitors come in, where `a.test` is at home, and another one that has nothing. */
async function startNodes({
  policy,
  answers = [OK],
  holdMs,
  moreNames = [],
}: {
  /** Of the certificate that visitors are shown. */
  readonly moreNames?: readonly string[]
  readonly policy?: Partial<CompiledPolicy>
  readonly answers?: readonly string[]
  readonly holdMs?: number
} = {}) {
  const service = await startScriptedService(...answers)
  const site = await startIngressSite({ service: service.port, ...(policy && { policy }) })
  const cluster = await createCluster()
  const home = await startListener(cluster, HOME, {
    onVisitor: (stream, origin) => site.ingress.acceptPeer(stream, origin),
  })
  const empty = await startIngressSite({ service: service.port })
  empty.registry.remove(empty.endpoint)
  const other = await startListener(cluster, 'nd_other', {
    onVisitor: (stream, origin) => empty.ingress.acceptPeer(stream, origin),
  })
  const proxy = await ChaosProxy.start(home.address)
  const registry = new EndpointRegistry()
  const map = movable(site.registry)
  const { caPem, issue } = await createAuthority()
  const certificate = served(await issue({ moreNames }))
  const captured = captureLog()
  const first = await startFirstNode({
    cluster,
    homes: map.homes,
    registry,
    nodes: [
      { id: HOME, address: proxy.address },
      { id: 'nd_other', address: other.address },
    ],
    tls: { served: () => certificate },
    log: captured.log,
    clock: systemClock,
    holdMs,
  })
  const connect = () => RawClient.connect(first.addresses.http.port)
  const visit = (text: string) => {
    const client = connect()
    client.send(text)
    return client
  }
  return {
    service,
    site,
    cluster,
    home,
    proxy,
    map,
    first,
    registry,
    connect,
    visit,
    caPem,
    empty,
    log: captured,
  }
}

describe('a request for an endpoint of another node', () => {
  it.each([
    [11_000, 'HTTP/1.1 200'],
    [13_000, 'HTTP/1.1 431'],
  ])(
    'has a certificate of %i bytes told to its home, or is refused in a sentence',
    async (bytes, status) => {
      const moreNames = Array.from({ length: bytes / 65 }, () => `${'a'.repeat(58)}.test`)
      const { first, caPem, log } = await startNodes({ moreNames })
      const client = RawClient.connectTls(first.addresses.https.port, caPem)
      client.send(get())
      expect(await client.receive(bytes > 12_288 ? 'ERR_GATEWAY_HEAD_TOO_LARGE)' : 'ok')).toContain(
        status,
      )
      expect(log.text()).not.toMatch(/"level":"(error|warn)"/)
    },
  )

  it('is counted and judged at the home alone, with the facts of its visitor', async () => {
    const seen: PolicyExchange[] = []
    const policy = {
      hasConnectRules: true,
      hasRequestRules: true,
      onTcpConnect: (exchange: PolicyExchange) => {
        seen.push(exchange)
        return CONTINUE
      },
      onHttpRequest: (exchange: PolicyExchange) => {
        seen.push(exchange)
        return CONTINUE
      },
    }
    const { site, first, service, caPem } = await startNodes({ policy })
    const client = RawClient.connectTls(first.addresses.https.port, caPem)
    client.send(get('a.test', 'X-Forwarded-For: 9.9.9.9\r\nPeer-Http: 2.0\r\n'))
    await client.receive('ok')
    client.send(get())
    await eventually(() => expect(service.requests).toHaveLength(2))
    // The connection is judged once, as it is without another node.
    expect(seen.map(({ request }) => request?.httpVersion)).toEqual([undefined, '1.1', '1.1'])
    const { connection } = seen[0] as PolicyExchange
    expect(connection).toMatchObject({
      clientIp: '127.0.0.1',
      clientPort: client.socket.localPort,
      serverPort: first.addresses.https.port,
      tls: { version: 'TLSv1.3', serverName: 'localhost' },
    })
    expect(connection.tls?.serverCertificate?.x509.subject).toBe('CN=localhost')
    expect(connection.tls?.clientCertificate).toBeUndefined()
    expect(connection.bytesIn).toBeGreaterThan(0)
    expect(connection.bytesOut).toBeGreaterThan(0)
    const [request] = service.requests
    expect(request).toMatch(/^GET \/x HTTP\/1\.1\r\nHost: a\.test\r\nPeer-Http: 2\.0\r\n/)
    expect(request).toContain('x-forwarded-for: 9.9.9.9, 127.0.0.1\r\n')
    expect(request).toContain('x-forwarded-proto: https\r\n')
    expect(request).not.toContain('peer-http')
    // The second answer may be on its way still.
    await eventually(() =>
      expect(site.endpoint.traffic).toMatchObject({ requests: 2, active: 0, refused: 0 }),
    )
  })

  it('tells the version of HTTP that its visitor speaks', async () => {
    const versions: (string | undefined)[] = []
    const policy = {
      hasRequestRules: true,
      onHttpRequest: ({ request }: PolicyExchange) => {
        versions.push(request?.httpVersion)
        return CONTINUE
      },
    }
    const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'
    const { visit } = await startNodes({ policy, answers: [chunked] })
    const client = visit('GET / HTTP/1.0\r\nHost: a.test\r\n\r\n')
    expect(await client.end()).toBe('end')
    expect(client.text).toMatch(/\r\n\r\nok$/)
    expect(versions).toEqual(['1.0'])
  })

  it('closes the visitor connection that a policy closes, without an answer', async () => {
    for (const phase of ['onTcpConnect', 'onHttpRequest', 'onHttpResponse'] as const) {
      const policy = {
        hasConnectRules: phase === 'onTcpConnect',
        hasRequestRules: phase === 'onHttpRequest',
        hasResponseRules: phase === 'onHttpResponse',
        onTcpConnect: () => CONTINUE,
        onHttpRequest: () => CONTINUE,
        [phase]: () => ({ kind: 'close' }) as const,
      }
      const { visit } = await startNodes({ policy })
      const client = visit(get())
      expect(await client.end()).toBe('ECONNRESET')
      expect(client.text).toBe('')
    }
  })

  it('keeps the code of an error that the home answers, and not one of a service', async () => {
    const forged = 'HTTP/1.1 200 OK\r\nngrok-error-code: ERR_FORGED\r\nContent-Length: 2\r\n\r\nok'
    const { visit, site } = await startNodes({ answers: [forged] })
    const passed = visit('GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n')
    expect(await passed.receive('ok')).not.toContain('ERR_FORGED')
    site.slots.close()
    site.endpoint.streams.close()
    const refused = visit('GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n')
    expect(await refused.receive('ERR_')).toMatch(/ngrok-error-code: ERR_NGROK_3210\r\n/)
  })

  it('shows no body as whole that was broken off, however its end is told', async () => {
    const { visit, site } = await startNodes({ answers: ['HTTP/1.1 200 OK\r\n\r\npart'] })
    const client = visit(get())
    await client.receive('part')
    void site.session.goAway(0, 'gone')
    expect(await client.end()).toBe('ECONNRESET')
  })

  it('ends at the service when its visitor leaves', async () => {
    const { connect, service, site } = await startNodes({ answers: [''] })
    const client = connect()
    client.send(get())
    await eventually(() => expect(service.requests).toHaveLength(1))
    client.socket.destroy()
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
    await eventually(() => expect(site.slots.inUse).toBe(0))
  })
})

describe('a node that is not the home', () => {
  it('says so before anything is counted, and the request waits until it is known who is', async () => {
    const { visit, map, first, service, site } = await startNodes()
    map.believe({ node: 'nd_other', isKnown: true })
    for (const text of [get(), post('hello')]) {
      const client = visit(text)
      await eventually(() => expect(first.routes.waiting).toBe(1))
      expect(service.requests).toHaveLength(text.startsWith('GET') ? 0 : 1)
      map.believe({ isKnown: true })
      first.routes.onHomeChange('a.test')
      await client.receive('ok')
      map.believe({ node: 'nd_other', isKnown: true })
    }
    expect(service.requests).toHaveLength(2)
    expect(site.endpoint.traffic.requests).toBe(2)
  })

  it('is asked again where it is still said to be it, and the visitor hears when the time is up', async () => {
    const { visit, map, service } = await startNodes({ holdMs: 1_200 })
    map.believe({ node: 'nd_other', isKnown: true })
    const client = visit(get())
    expect(await client.receive('ERR_')).toMatch(/^HTTP\/1\.1 503 [\s\S]*ERR_GATEWAY_AWAY/)
    // Another one does not wait at all then.
    expect(await visit(get()).receive('ERR_GATEWAY_AWAY')).toMatch(/^HTTP\/1\.1 503/)
    expect(service.requests).toEqual([])
  })

  it('is not waited for when nobody has the name any more', async () => {
    const { visit, map, first } = await startNodes()
    map.believe({ node: 'nd_other', isKnown: true })
    const client = visit(get())
    await eventually(() => expect(first.routes.waiting).toBe(1))
    map.believe({ isKnown: false })
    first.routes.onHomeChange('a.test')
    expect(await client.receive('ERR_')).toMatch(/^HTTP\/1\.1 404 /)
  })
})

describe('a home that cannot be reached', () => {
  it('is waited for by who comes while there is no link', async () => {
    const { visit, proxy, first, service } = await startNodes()
    proxy.refuse()
    proxy.cut()
    await eventually(() => expect(first.links.find(HOME)?.session).toBeUndefined())
    const client = visit(post('hello'))
    await eventually(() => expect(first.routes.waiting).toBe(1))
    proxy.heal()
    await client.receive('ok')
    expect(service.requests).toHaveLength(1)
  })

  it('loses a GET without a trace for its visitor, and is asked again', async () => {
    const { connect, proxy, service } = await startNodes({ answers: ['', OK] })
    const client = connect()
    client.send(get())
    await eventually(() => expect(service.requests).toHaveLength(1))
    proxy.cut()
    expect(await client.receive('ok')).toMatch(/^HTTP\/1\.1 200/)
    expect(service.requests).toHaveLength(2)
  })

  it('never gets a POST twice', async () => {
    const { connect, proxy, service } = await startNodes({ answers: ['', OK] })
    const client = connect()
    client.send(post('hello'))
    await eventually(() => expect(service.requests).toHaveLength(1))
    proxy.cut()
    expect(await client.receive('ERR_')).toMatch(/^HTTP\/1\.1 502 [\s\S]*ERR_NGROK_3210/)
    client.send(get())
    await client.receive('ok')
    expect(service.requests.filter((text) => text.startsWith('POST'))).toHaveLength(1)
  })

  it('is given up when it stands still, and its visitors wait', async () => {
    const { connect, proxy, first, service } = await startNodes()
    proxy.blackHole('both')
    const client = connect()
    client.send(get())
    await eventually(() => expect(first.routes.waiting).toBe(1))
    proxy.heal()
    await client.receive('ok')
    expect(service.requests).toHaveLength(1)
  })
})

describe('the streams of a visitor', () => {
  it('go with its connection', async () => {
    const { connect, first, home } = await startNodes()
    const link = first.links.find(HOME)
    const before = link?.session?.freeSlots
    const clients = [connect(), connect(), connect()]
    for (const client of clients) client.send(get())
    for (const client of clients) await client.receive('ok')
    expect(link?.session?.freeSlots).toBe((before ?? 0) - clients.length)
    for (const client of clients) client.socket.destroy()
    await eventually(() => expect(link?.session?.freeSlots).toBe(before))
    expect(home.listener.nodeIds).toEqual(['nd_first'])
  })
})

describe('an internal endpoint that is at home at another node', () => {
  async function startHandingOn(inner: Partial<CompiledPolicy>, method = 'GET') {
    const nodes = await startNodes({ answers: [OK] })
    const { site, registry } = nodes
    const cam = site.bind('cam.internal', 'https', inner)
    const seen: number[] = []
    const policy = {
      hasRequestRules: true,
      hasResponseRules: true,
      onHttpRequest: ({ request }: PolicyExchange) => {
        request?.headers.set('x-outer', 'was here')
        return { kind: 'forward', url: 'https://cam.internal' } as const
      },
      onHttpResponse: ({ response }: PolicyExchange) => {
        seen.push(response?.status ?? 0)
        return CONTINUE
      },
    } as unknown as CompiledPolicy
    const traffic = new EndpointTraffic()
    const outer = { ...site.endpoint, id: 'ep_outer', host: 'outer.test', traffic, policy }
    registry.add({ ...outer, url: 'https://outer.test' })
    const body = method === 'POST' ? 'Content-Length: 5\r\n\r\nhello' : '\r\n'
    const client = nodes.visit(`${method} /x HTTP/1.1\r\nHost: outer.test\r\n${body}`)
    return { ...nodes, cam, seen, traffic, client }
  }

  it.each(['GET', 'POST'])('gets a %s by one hop, judged at both', async (method) => {
    const hops: number[] = []
    const inner = {
      hasRequestRules: true,
      onHttpRequest: (exchange: PolicyExchange) => {
        hops.push(exchange.hops)
        return CONTINUE
      },
    }
    const { client, service, seen, traffic, cam } = await startHandingOn(inner, method)
    await client.receive('ok')
    expect(hops).toEqual([1])
    expect(seen).toEqual([200])
    const [request] = service.requests
    expect(request).toContain('x-outer: was here\r\n')
    // What the first home has said of the visitor is not said again.
    expect(request?.match(/x-forwarded-for/g)).toHaveLength(1)
    expect(traffic).toMatchObject({ requests: 1, active: 0 })
    expect(cam.traffic).toMatchObject({ requests: 1, active: 0 })
  })

  it('is told of the TLS of its visitor', async () => {
    const names: (string | undefined)[] = []
    const inner = {
      hasRequestRules: true,
      onHttpRequest: ({ connection }: PolicyExchange) => {
        names.push(connection.tls?.serverName)
        return CONTINUE
      },
    }
    const { first, caPem, client } = await startHandingOn(inner)
    await client.receive('ok')
    const secured = RawClient.connectTls(first.addresses.https.port, caPem)
    secured.send(get('outer.test'))
    await secured.receive('ok')
    expect(names).toEqual([undefined, 'localhost'])
  })

  it('closes the connection of the visitor where its policy does', async () => {
    const inner = { hasRequestRules: true, onHttpRequest: () => ({ kind: 'close' }) as const }
    const { client } = await startHandingOn(inner)
    expect(await client.end()).toBe('ECONNRESET')
  })
})

describe('the streams of one visitor', () => {
  it('have the TLS each that its node tells, also beside one without', async () => {
    const names: (string | undefined)[] = []
    const policy = {
      hasRequestRules: true,
      onHttpRequest: ({ connection }: PolicyExchange) => {
        names.push(connection.tls?.serverName)
        return CONTINUE
      },
    }
    const { first } = await startNodes({ policy })
    const { session } = first.links.find(HOME) ?? {}
    if (!session) throw new Error('no session')
    const tls = { version: 'TLSv1.3', cipher: 'x', server_name: 'a.test', alpn: 'h2' }
    const ask = (entry: HttpEntry) =>
      new Promise<void>((resolve) => {
        const facts = encodeFacts({
          ...{ version: 1 as const, connection: 7, client_ip: '10.0.0.1', client_port: 1 },
          ...{ server_ip: '10.0.0.2', server_port: 443, started_at: 0 },
          entry,
        })
        const head = Buffer.from('GET /x HTTP/1.1\r\npeer-http: 2.0\r\nHost: a.test\r\n\r\n')
        const handler = { ...DEAF, onData: () => resolve() }
        openTyped(session, VISITOR_STREAM_TYPE, handler, Buffer.concat([facts, head]))
      })
    // The streams stay open.
    for (const told of [{}, { tls }, {}]) await ask({ kind: 'http', scheme: 'https', ...told })
    expect(names).toEqual([undefined, 'a.test', undefined])
  })
})

describe('a node that does not keep to the protocol', () => {
  const FACTS = {
    version: 1,
    connection: 1,
    client_ip: '10.0.0.1',
    client_port: 1,
    server_ip: '10.0.0.2',
    server_port: 443,
    started_at: 0,
    entry: { kind: 'http', scheme: 'https' },
  } as const

  it.each([
    ['facts that are none', Buffer.from([0, 2, 0x7b, 0x7d]), 'RST'],
    [
      'a head without a version',
      Buffer.concat([encodeFacts(FACTS), Buffer.from('GET / HTTP/1.1\r\nHost: a.test\r\n\r\n')]),
      '400',
    ],
  ])('is refused with %s', async (_what, bytes, verdict) => {
    const { first, service } = await startNodes()
    const { session } = first.links.find(HOME) ?? {}
    if (!session) throw new Error('no session')
    const heard = await new Promise<string>((resolve) => {
      const handler = {
        ...DEAF,
        onData: (chunk: Buffer) => resolve(chunk.toString('latin1', 9, 12)),
        onClose: () => resolve('RST'),
      }
      openTyped(session, VISITOR_STREAM_TYPE, handler, bytes)
    })
    expect(heard).toBe(verdict)
    expect(service.requests).toEqual([])
  })
})
