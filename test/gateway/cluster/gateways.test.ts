import { cpSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { carriesTraffic, startedOnGateway } from '../../helpers/agent-on-gateway.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { startEchoUpstream } from '../../helpers/echo-upstream.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { PausableClock } from '../../helpers/pausable-clock.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { type PublicResponse, publicRequest } from '../../helpers/public-request.ts'
import {
  bind,
  connectSdk,
  inTime,
  type RunningGateway,
  type SdkOptions,
  sdkCode,
} from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const visit = ({ addresses }: RunningGateway, host: string): Promise<PublicResponse> =>
  publicRequest({
    ingress: `http://${addresses.http.host}:${addresses.http.port}`,
    address: addresses.http.host,
    host,
  })

/** What a gateway answers a load balancer. */
async function readyAt({ addresses }: RunningGateway) {
  const response = await fetch(`http://127.0.0.1:${addresses.api?.port}/readyz`)
  const body = (await response.json()) as { ready: boolean; degraded: boolean; reasons: string[] }
  return [response.status, body] as const
}

const leaseOf = ({ gateway }: RunningGateway) => nodeIn(gateway)?.cluster.lease

/** A device at a gateway, which serves a host. */
async function serve(at: RunningGateway, host: string, name: string, options: SdkOptions = {}) {
  const upstream = await startEchoUpstream(name)
  onTestFinished(() => upstream.close())
  const session = await connectSdk(at, options)
  const builder = session.httpEndpoint().domain(host)
  const listen = () => inTime(builder.listenAndForward(`http://127.0.0.1:${upstream.port}`))
  return { session, listen }
}

const deviceOf = (device_id: string, instance: string) => JSON.stringify({ device_id, instance })

describe.skipIf(!hasPostgres)('gateways on one PostgreSQL', () => {
  let postgres: TestPostgres
  let cluster: GatewayCluster
  let one: RunningGateway
  let two: RunningGateway
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  const start = async () => {
    cluster = GatewayCluster.open(await postgres.database())
    one = await cluster.start()
    const apiListen = { host: '127.0.0.1', port: 0 }
    two = await cluster.start({ authtoken: one.authtoken, apiListen })
  }

  it('serve an endpoint of one to visitors of all, and know each other’s authtokens', async () => {
    await start()
    // Made at the first, used at the second.
    const cam = await serve(two, 'cam.site.test', 'cam', { authtoken: one.authtoken })
    await cam.listen()
    for (const node of [one, two]) {
      await eventually(async () => {
        expect(await visit(node, 'cam.site.test')).toMatchObject({ status: 200 })
      })
    }
  })

  it('show the certificate of a deep name at all, and none for unknown names', async () => {
    await start()
    const cam = await serve(one, 'web.cam.site.test', 'cam')
    await cam.listen()
    const ca = readFileSync(one.addresses.caCertPath, 'utf8')
    const visitSecurely = ({ addresses: { https } }: RunningGateway, host: string) =>
      publicRequest({
        ...{ ingress: `https://${https.host}:${https.port}`, address: https.host, host, ca },
      })
    // Visitors who come at once wait for one certificate.
    await eventually(async () => {
      const visits = [one, two, two].map((node) => visitSecurely(node, 'web.cam.site.test'))
      const statuses = (await Promise.all(visits)).map(({ status }) => status)
      expect(statuses).toEqual([200, 200, 200])
    })
    for (const unknown of ['web.door.site.test', 'a.web.cam.site.test']) {
      await expect(visitSecurely(two, unknown)).rejects.toThrow('altnames')
    }
  })

  it('call themselves fine only while visitors should come to them', async () => {
    cluster = GatewayCluster.open(await postgres.database(), 3_000)
    one = await cluster.start()
    two = await cluster.start({ authtoken: one.authtoken })
    const [own, other] = [nodeIn(one.gateway), nodeIn(two.gateway)]
    const isFirm = () => own?.questions.ask(other?.nodeId ?? '', 'lease')
    await eventually(async () => expect(await isFirm()).toEqual({ is_firm: true }))
    await other?.drain.start()
    // Its lease is as good as before.
    await eventually(async () => {
      expect([leaseOf(two)?.isFirm, await isFirm()]).toEqual([true, { is_firm: false }])
    })
    await other?.drain.undo()
    await eventually(async () => expect(await isFirm()).toEqual({ is_firm: true }))
  })

  it('have a name once, and give it free with its device', async () => {
    await start()
    const cam = await serve(one, 'cam.site.test', 'first')
    const listener = await cam.listen()
    const other = await connectSdk(two)
    expect(await sdkCode(bind(other, 'cam.site.test'))).toBe('ERR_NGROK_334')
    expect(await visit(one, 'cam.site.test')).toMatchObject({ status: 200 })
    await inTime(listener.close())
    await bind(other, 'cam.site.test')
  })

  it('pass a name on to where its device binds it next, without a visitor noticing', async () => {
    await start()
    const metadata = deviceOf('cam', 'process-1')
    const before = await serve(one, 'cam.site.test', 'before', { metadata })
    await before.listen()
    await eventually(async () => {
      expect((await visit(two, 'cam.site.test')).text).toContain('before')
    })
    let isOver = false
    const statuses = new Map<number, number>()
    const visitors = [one, two].map(async (node) => {
      while (!isOver) {
        const { status } = await visit(node, 'cam.site.test')
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    })
    const after = await serve(two, 'cam.site.test', 'after', { metadata })
    await after.listen()
    for (const node of [one, two]) {
      await eventually(async () => {
        expect((await visit(node, 'cam.site.test')).text).toContain('after')
      })
    }
    isOver = true
    await Promise.all(visitors)
    expect([...statuses.keys()]).toEqual([200])
  })

  it('let no second process of a device take the names of one that answers', async () => {
    await start()
    await (
      await serve(one, 'cam.site.test', 'first', { metadata: deviceOf('cam', 'process-1') })
    ).listen()
    const copy = await connectSdk(two, { metadata: deviceOf('cam', 'process-2') })
    expect(await sdkCode(bind(copy, 'cam.site.test'))).toBe('ERR_NGROK_334')
    expect(await visit(one, 'cam.site.test')).toMatchObject({ status: 200 })
  })

  it('serve a copy of a device at one when the device at the other one ends', async () => {
    await start()
    const on = await startedOnGateway({ running: one })
    await on.createTunnels('a')
    await carriesTraffic(on)
    const folder = temporaryFolder()
    cpSync(on.folder, folder, { recursive: true })
    const { port } = two.addresses.agent
    const copy = on.another({ folder, serverAddrs: [`localhost:${port}`] })
    await copy.start()
    const stateOfCopy = () => copy.list().map(({ status }) => [status.state, status.reason])
    await eventually(() => expect(stateOfCopy()).toEqual([['refused', 'conflict']]))
    expect(await on.visit('a')).toBe('hello')
    await on.agent.stop()
    await eventually(() => expect(stateOfCopy()).toEqual([['online', undefined]]))
    expect(await on.visit('a')).toBe('hello')
  })

  it('hold visitors of a gateway that ends until its device is at another one', async () => {
    await start()
    const metadata = deviceOf('cam', 'process-1')
    const before = await serve(one, 'cam.site.test', 'before', { metadata })
    await before.listen()
    await one.gateway.stop()
    const after = await serve(two, 'cam.site.test', 'after', { metadata })
    await after.listen()
    expect((await visit(two, 'cam.site.test')).text).toContain('after')
  })

  it('serve cloud endpoints at all, and count those with limits at one', async () => {
    await start()
    const { cloudEndpoints, registry } = one.gateway.parts
    const policyOf = (rules: object[]) => JSON.stringify({ on_http_request: rules })
    const answer = { type: 'custom-response', config: { status_code: 200, body: 'cloud' } }
    const limit = {
      type: 'rate-limit',
      config: {
        name: 'few',
        algorithm: 'sliding_window',
        capacity: 3,
        rate: '600s',
        bucket_key: ['conn.client_ip'],
      },
    }
    const author = { isGranted: true }
    await cloudEndpoints.create(
      { url: 'https://plain.site.test', trafficPolicy: policyOf([{ actions: [answer] }]) },
      author,
    )
    await cloudEndpoints.create(
      { url: 'https://few.site.test', trafficPolicy: policyOf([{ actions: [limit, answer] }]) },
      author,
    )
    expect(registry.size).toBe(2)
    for (const node of [one, two]) {
      await eventually(async () => {
        expect((await visit(node, 'plain.site.test')).text).toBe('cloud')
      })
    }
    await eventually(() => {
      expect(nodeIn(two.gateway)?.routes.match('few.site.test', 'http')?.type).toBe('remote')
    })
    const statuses: number[] = []
    for (const node of [two, one, two, one, two]) {
      statuses.push((await visit(node, 'few.site.test')).status)
    }
    expect(statuses).toEqual([200, 200, 200, 429, 429])
    const taken = await connectSdk(two)
    expect(await sdkCode(bind(taken, 'few.site.test'))).toBe('ERR_NGROK_334')
    // Its home is to end: another one takes it up, and goes on with what it has counted.
    await nodeIn(one.gateway)?.drain.start()
    await eventually(() => {
      const { registry } = two.gateway.parts
      const node = nodeIn(two.gateway)
      const few = [...registry.all()].find(({ host }) => host === 'few.site.test')
      expect(few && node?.names.isHome(few)).toBe(true)
    })
    await one.gateway.stop()
    expect((await visit(two, 'few.site.test')).status).toBe(429)
    expect((await visit(two, 'plain.site.test')).text).toBe('cloud')
  })

  it('count nobody at one that was stopped before it has looked who counts by now', async () => {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start(address)
    const clock = new PausableClock()
    cluster = GatewayCluster.open(address, 10_000)
    one = await cluster.start({ clock, through: proxy.address })
    two = await cluster.start({ authtoken: one.authtoken })
    const host = await counterAt(one)
    const visitTwice = async (at: RunningGateway) => [
      (await visit(at, host)).status,
      (await visit(at, host)).status,
    ]
    expect(await visitTwice(two)).toEqual([200, 200])
    clock.pause()
    proxy.freeze()
    await eventually(() => {
      expect(nodeIn(two.gateway)?.routes.match(host, 'http')?.type).toBe('cloud')
    })
    // It goes on there, for that one answers other nodes still, and is used up.
    expect(await visitTwice(two)).toEqual([200, 429])
    const waiting = visit(one, host)
    await eventually(() => expect(nodeIn(one.gateway)?.routes.waiting).toBe(1))
    proxy.thaw()
    clock.resume()
    expect((await waiting).status).toBe(429)
  })

  /** A cloud endpoint with a limit of 3 whose home is that gateway. */
  async function counterAt(home: RunningGateway): Promise<string> {
    const limit = {
      ...{ name: 'few', algorithm: 'sliding_window', capacity: 3, rate: '600s' },
      bucket_key: ['conn.client_ip'],
    }
    const actions = [
      { type: 'rate-limit', config: limit },
      { type: 'custom-response', config: { status_code: 200, body: 'cloud' } },
    ]
    const trafficPolicy = JSON.stringify({ on_http_request: [{ actions }] })
    const { cloudEndpoints } = home.gateway.parts
    const node = nodeIn(home.gateway)
    for (let n = 0; ; n += 1) {
      const host = `few${n}.site.test`
      await cloudEndpoints.create({ url: `https://${host}`, trafficPolicy }, { isGranted: true })
      const types: (string | undefined)[] = []
      await eventually(() => {
        const nodes = [node, nodeIn(two.gateway)]
        types.splice(0, 2, ...nodes.map((it) => it?.routes.match(host, 'https')?.type))
        expect(types.toSorted()).toEqual(['cloud', 'remote'])
      })
      if (types[0] === 'cloud') return host
    }
  }

  it('serve on while PostgreSQL is away, refuse what they cannot know, and go on by themselves', async () => {
    await start()
    const cam = await serve(one, 'cam.site.test', 'cam')
    await cam.listen()
    await eventually(async () => {
      expect(await visit(two, 'cam.site.test')).toMatchObject({ status: 200 })
    })
    const good = [200, { ready: true, degraded: false, reasons: [] }]
    expect(await readyAt(two)).toEqual(good)
    await postgres.stop()
    for (const node of [one, two]) {
      expect(await visit(node, 'cam.site.test')).toMatchObject({ status: 200 })
    }
    const device = await connectSdk(two)
    expect(await sdkCode(bind(device, 'new.site.test'))).toBe('ERR_NGROK_803')
    const { issuer } = two.gateway.parts
    await expect(issuer.createBotUser({ name: 'nobody' })).rejects.toMatchObject({
      code: 'storage-unavailable',
    })
    await eventually(() => {
      expect(two.gateway.parts.database.fault).toBe('unwritable')
    })
    expect(await readyAt(two)).toEqual([
      200,
      {
        ...{ ready: true, degraded: true },
        reasons: [expect.stringContaining('The database cannot be reached')],
      },
    ])
    await postgres.start()
    await eventually(() => bind(device, 'new.site.test'))
    await eventually(() => issuer.createBotUser({ name: 'somebody' }))
    await eventually(async () => expect(await readyAt(two)).toEqual(good))
    for (const node of [one, two]) {
      expect(await visit(node, 'cam.site.test')).toMatchObject({ status: 200 })
    }
  })

  it('are all ready, and degraded, however long PostgreSQL is away for all', async () => {
    await startWithShortLeases()
    const cam = await serve(one, 'cam.site.test', 'cam')
    await cam.listen()
    await eventually(async () => {
      expect(await visit(two, 'cam.site.test')).toMatchObject({ status: 200 })
    })
    const seen = new Set<number>()
    let overdueAt: number | undefined
    await postgres.stop()
    // Over the end of both leases, which is not at the same moment, and some looks at each other.
    await eventually(async () => {
      for (const node of [one, two]) seen.add((await readyAt(node))[0])
      for (const node of [one, two]) expect(leaseOf(node)?.state).toBe('overdue')
      overdueAt ??= performance.now()
      expect(performance.now() - overdueAt).toBeGreaterThan(3_000)
    })
    for (const node of [one, two]) {
      expect(await readyAt(node)).toMatchObject([
        200,
        {
          ...{ ready: true, degraded: true },
          reasons: [
            expect.stringContaining('No gateway reaches PostgreSQL'),
            expect.stringContaining('Check that PostgreSQL runs'),
          ],
        },
      ])
      expect(await visit(node, 'cam.site.test')).toMatchObject({ status: 200 })
    }
    await postgres.start()
    // Who is the first to have it back says nothing against the other.
    await eventually(async () => {
      for (const node of [one, two]) {
        const [status, { degraded }] = await readyAt(node)
        seen.add(status)
        expect(degraded).toBe(false)
      }
    })
    expect([...seen]).toEqual([200])
  })

  it('say so where one alone has lost PostgreSQL, and serve visitors at all', async () => {
    const proxy = await startWithShortLeases()
    const [cam, door] = [
      await serve(one, 'cam.site.test', 'cam'),
      await serve(two, 'door.site.test', 'door'),
    ]
    await cam.listen()
    await door.listen()
    const areServed = async () => {
      for (const node of [one, two]) {
        for (const name of ['cam', 'door']) {
          expect((await visit(node, `${name}.site.test`)).text).toContain(name)
        }
      }
    }
    await eventually(areServed)
    // Those that have just come themselves are asked nothing.
    for (const node of [one, two]) await eventually(() => expect(leaseOf(node)?.isFirm).toBe(true))
    proxy.refuse()
    proxy.cut()
    await eventually(async () => {
      expect(await readyAt(two)).toMatchObject([
        503,
        {
          ...{ ready: false, degraded: false },
          reasons: [
            expect.stringContaining('This gateway does not reach PostgreSQL'),
            expect.any(String),
          ],
        },
      ])
    })
    expect(await readyAt(one)).toMatchObject([200, { ready: true, degraded: false }])
    await areServed()
    proxy.heal()
    await eventually(async () => {
      expect(await readyAt(two)).toEqual([200, { ready: true, degraded: false, reasons: [] }])
    })
    await areServed()
  })

  /** The second reaches PostgreSQL by the proxy. */
  async function startWithShortLeases() {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start(address)
    // A stall of a twelfth makes a node unsure, and busy machines stall for half a second.
    cluster = GatewayCluster.open(address, 12_000)
    const apiListen = { host: '127.0.0.1', port: 0 }
    one = await cluster.start({ apiListen })
    two = await cluster.start({ authtoken: one.authtoken, apiListen, through: proxy.address })
    return proxy
  }
})
