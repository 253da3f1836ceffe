import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { deviceMetadata, forward, startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { connectSdk, type RunningGateway } from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'

const API = { host: '127.0.0.1', port: 0 }
const HOST = 'cam.site.test'
const LEASE_MS = 6_000

const nodeOf = ({ gateway }: RunningGateway) => nodeIn(gateway)

describe.skipIf(!hasPostgres)('a gateway that is started while PostgreSQL is away', () => {
  it('lets nobody in before it can ask who was forgotten', async () => {
    const postgres = await TestPostgres.start()
    onTestFinished(() => postgres.remove())
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start({ apiListen: API })
    const peer = { host: '127.0.0.2', port: lastingAddress().port }
    const { authtoken } = one
    const place = { authtoken, peer: { listen: peer, address: peer } }
    const two = await cluster.start(place)
    const id = nodeOf(two)?.nodeId ?? ''
    const link = () => nodeOf(one)?.links.find(id)?.state
    await eventually(() => expect(link()?.name).toBe('up'))
    // Nobody hears that it has left.
    await postgres.stop()
    await two.gateway.stop()
    const again = await cluster.start({ ...place, dataDir: two.dataDir, joins: false })
    const told = () =>
      one.logText().split('cannot be asked for the nodes of the cluster').length - 1
    await eventually(() => expect([link()?.name === 'up', told()]).toEqual([false, 1]))
    // Nor when it has learned from the other one which nodes there are.
    await eventually(() => expect(nodeOf(again)?.cluster.table.areKnown()).toBe(true))
    const failures = new Set<unknown>()
    await eventually(() => {
      const state = link()
      if (state?.name === 'down') failures.add(state)
      expect(failures.size).toBeGreaterThan(2)
    })
    await postgres.start()
    await eventually(() => {
      expect(nodeOf(again)?.cluster.lease.state).toBe('held')
      expect(link()?.name).toBe('up')
    })
  })
})

describe.skipIf(!hasPostgres)('a gateway that alone has lost PostgreSQL, and was given up', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  /** The second one is given up, with a device; the first reaches it through `way`. */
  const start = async () => {
    const address = await postgres.database()
    const cluster = GatewayCluster.open(address, LEASE_MS)
    const one = await cluster.start({ apiListen: API })
    const { authtoken } = one
    const peer = { host: '127.0.0.2', port: lastingAddress().port }
    const way = await ChaosProxy.start(peer)
    const toPostgres = await ChaosProxy.start(address)
    const two = await cluster.start({
      ...{ authtoken, apiListen: API, through: toPostgres.address },
      peer: { listen: peer, address: way.address },
    })
    const service = await startDeviceService((_request, response) => void response.end('cam'))
    await forward(await connectSdk(two, { metadata: deviceMetadata('process') }), service, {
      domain: HOST,
    })
    const id = nodeOf(two)?.nodeId ?? ''
    await isServed(one)
    toPostgres.refuse()
    toPostgres.cut()
    await eventually(() => expect(nodeOf(one)?.cluster.nodes.find(id)?.standing).toBe('lost'))
    return { cluster, one, two, id, way, toPostgres }
  }
  const isServed = (at: RunningGateway) =>
    eventually(async () => {
      const answer = await visit(at, { host: HOST, address: at.addresses.http.host })
      expect(answer).toMatchObject({ status: 200, text: 'cam' })
    })

  it('serves visitors of the others on after its link was lost, and after they were restarted', async () => {
    const { cluster, one, id, way } = await start()
    await isServed(one)
    way.refuse()
    way.cut()
    await eventually(() => expect(nodeOf(one)?.links.find(id)?.session).toBeUndefined())
    // The nodes have been looked at since.
    await nodeOf(one)?.cluster.refreshNodes()
    way.heal()
    await isServed(one)
    const { dataDir, authtoken } = one
    await one.gateway.stop()
    const again = await cluster.start({ dataDir, authtoken, joins: false })
    expect(nodeOf(again)?.cluster.nodes.find(id)?.standing).toBe('lost')
    await isServed(again)
  })

  it('lets no gateway in that it cannot ask for, and says so, until it can', async () => {
    const { cluster, one, id, toPostgres } = await start()
    const three = await cluster.start({ authtoken: one.authtoken })
    const link = () => nodeOf(three)?.links.find(id)
    await eventually(() => {
      expect(link()?.state).toMatchObject({ name: 'down', refusal: undefined })
      expect(three.logText()).toContain('PostgreSQL cannot be asked for the nodes of the cluster')
    })
    expect(three.logText()).not.toContain('was removed from the cluster')
    toPostgres.heal()
    await eventually(() => expect(link()?.state.name).toBe('up'))
    await isServed(three)
  })

  it('is told of as one that serves, and what it has is in the lists', async () => {
    const { one, id, way } = await start()
    const { apiKey, call } = await managed(one)
    const metrics = async () => {
      const headers = { authorization: `Bearer ${apiKey.reveal()}` }
      const answer = await fetch(`http://127.0.0.1:${one.addresses.api?.port}/metrics`, { headers })
      return (await answer.text()).split('\n')
    }
    const told = (live: number, gone: number) => [
      ...['device_gateway_lease_held 1', 'device_gateway_draining 0'],
      `device_gateway_nodes{state="live"} ${live}`,
      'device_gateway_nodes{state="draining"} 0',
      `device_gateway_nodes{state="gone"} ${gone}`,
      `device_gateway_node_link_up{node="${id}"} ${1 - gone}`,
    ]
    const latency = async () =>
      (await metrics()).filter((line) => line.includes('latency_seconds{'))
    expect(await metrics()).toEqual(expect.arrayContaining(told(2, 0)))
    expect(await latency()).toEqual([expect.stringContaining(id)])
    const { body: node } = await call('GET', `/nodes/${id}`)
    expect(node).toMatchObject({
      ...{ state: 'live', is_reached: true, agents: 1, endpoints: 1 },
      latency_ms: expect.any(Number),
      lease: { state: 'lost' },
    })
    const { body: listed } = await call('GET', '/endpoints')
    expect(listed.endpoints).toMatchObject([{ host: HOST }])
    expect(listed).not.toHaveProperty('missing_nodes')
    const { body: all } = await call('GET', '/nodes')
    expect(all.nodes.map(({ state }: { state: string }) => state)).toEqual(['live', 'live'])
    expect(await call('POST', `/nodes/${id}/drain`)).toMatchObject({
      status: 503,
      body: { error_code: 'ERR_NGROK_843' },
    })
    way.freeze()
    const { body: partly } = await call('GET', '/endpoints')
    expect(partly).toMatchObject({ endpoints: [], missing_nodes: [{ id }] })
    way.thaw()
    way.refuse()
    way.cut()
    await eventually(async () => {
      const { body } = await call('GET', `/nodes/${id}`)
      expect(body).toMatchObject({ state: 'gone', is_reached: false, latency_ms: null })
    })
    expect(await latency()).toEqual([])
    expect((await call('GET', '/endpoints')).body).not.toHaveProperty('missing_nodes')
    expect(await metrics()).toEqual(expect.arrayContaining(told(1, 1)))
  })
})
