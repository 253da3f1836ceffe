import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { NgrokConnector } from '../../../src/agent/ngrok-connector.ts'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { createLogger } from '../../../src/base/logger.ts'
import { FAST_TIMINGS, specOf } from '../../helpers/agent-in-folder.ts'
import { agentOnGateway } from '../../helpers/agent-on-gateway.ts'
import { startEchoUpstream } from '../../helpers/echo-upstream.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { bind, connectSdk, type RunningGateway } from '../../helpers/running-gateway.ts'

const API = { host: '127.0.0.1', port: 0 }
const limitOf = (name: string) => ({
  type: 'rate-limit',
  config: {
    ...{ name, algorithm: 'sliding_window', capacity: 3, rate: '3600s' },
    bucket_key: ['conn.client_ip'],
  },
})
const policyOf = (...actions: object[]) => ({ on_http_request: [{ actions }] })

const visit = async ({ addresses: { http } }: RunningGateway, host: string) =>
  publicRequest({ ingress: `http://${http.host}:${http.port}`, address: http.host, host })

describe.skipIf(!hasPostgres)('a gateway of several that is to end', () => {
  let postgres: TestPostgres
  let one: RunningGateway
  let two: RunningGateway
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const start = async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    one = await cluster.start({ apiListen: API })
    two = await cluster.start({ authtoken: one.authtoken, apiListen: API })
  }
  /** One of ours that knows both, linked to the first. */
  const addressOf = ({ addresses }: RunningGateway) =>
    formatListenAddress(addresses.agent).replace('127.0.0.1', 'localhost')
  const startAgent = async (serverAddrs = [addressOf(one), addressOf(two)]) => {
    const { agent } = await agentOnGateway({
      running: one,
      serverAddrs,
      // What a busy machine holds up is not lost.
      connector: new NgrokConnector({
        version: '1.2.3',
        log: createLogger('silent'),
        heartbeat: { intervalS: 1, toleranceS: 60 },
        deadlines: { bindMs: 30_000, closeMs: 500 },
      }),
      timings: {
        ...{ ...FAST_TIMINGS, settleMs: 60_000 },
        probe: { intervalMs: 300, retryMs: 50, deadlineMs: 60_000, echoMs: 60_000 },
      },
    })
    await agent.start()
    await eventually(() => expect(agent.status().link.state).toBe('up'))
    return agent
  }
  /** Visitors of a host at gateways, one after another, and what became of them. */
  const keepVisiting = (gateways: readonly RunningGateway[], host: string) => {
    const statuses = new Map<number, number>()
    let isOver = false
    const all = gateways.map(async (gateway) => {
      while (!isOver) {
        const { status } = await visit(gateway, host)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    })
    return async () => {
      isOver = true
      await Promise.all(all)
      return [...statuses.keys()]
    }
  }

  it('is not where the standby of its agents is, if one of them knows it by two addresses', async () => {
    await start()
    const { port } = one.addresses.agent
    const agent = await startAgent([addressOf(one), `127.0.0.1:${port}`, addressOf(two)])
    await eventually(() =>
      expect(agent.status().link).toMatchObject({
        serverAddr: addressOf(one),
        standby: { state: 'ready', serverAddr: addressOf(two) },
      }),
    )
    await eventually(() => {
      for (const { gateway } of [one, two]) expect(gateway.parts.sessions.size).toBe(1)
    })
  })

  it('sends its agents away with their names and what their limits have counted', async () => {
    await start()
    const agent = await startAgent()
    const echo = await startEchoUpstream('cam')
    onTestFinished(() => echo.close())
    const to = `localhost:${echo.port}`
    await agent.create(specOf('cam', to))
    await agent.create({ ...specOf('few', to), policy: policyOf(limitOf('few')) })
    const { cloudEndpoints } = one.gateway.parts
    await cloudEndpoints.create(
      {
        url: 'https://cloud.site.test',
        trafficPolicy: JSON.stringify(
          policyOf(limitOf('cloud'), { type: 'custom-response', config: { status_code: 200 } }),
        ),
      },
      { isGranted: true },
    )
    const homeOf = (host: string) =>
      [one, two].find(({ gateway: { parts } }) =>
        [...parts.registry.all()].some(
          (it) => it.host === host && nodeIn({ parts })?.names.isHome(it),
        ),
      )
    const routesOf = (host: string) =>
      [one, two].map(
        ({ gateway: { parts } }) => nodeIn({ parts })?.routes.match(host, 'http')?.type,
      )
    for (const host of ['cam.site.test', 'few.site.test', 'cloud.site.test']) {
      await eventually(() => expect(routesOf(host)).toContain('remote'))
    }
    const { call } = await managed(two)
    const { gateway } = one
    const id = nodeIn(gateway)?.nodeId
    for (const host of ['few.site.test', 'cloud.site.test']) {
      for (const at of [one, two]) expect((await visit(at, host)).status).toBe(200)
    }
    let release: (() => void) | undefined
    onTestFinished(() => release?.())
    const slow = createServer((_request, response) => {
      response.writeHead(200, { 'content-length': 8 })
      response.write('half')
      release = () => void response.end('rest')
    })
    slow.listen(0, '127.0.0.1')
    onTestFinished(() => void slow.close())
    await eventually(() => expect(slow.listening).toBe(true))
    const { port } = slow.address() as AddressInfo
    await agent.create(specOf('slow', `localhost:${port}`))
    const download = visit(one, 'slow.site.test')
    await eventually(() => expect(release).toBeDefined())
    const finish = keepVisiting([one, two], 'cam.site.test')
    const asked = await call('POST', `/nodes/${id}/drain`)
    expect(asked).toMatchObject({ status: 200, body: { id, state: 'draining' } })
    // Nobody new, and what is under way goes on to its end.
    await expect(connectSdk(one)).rejects.toThrow()
    await eventually(async () => {
      const { body } = await call('GET', `/nodes/${id}`)
      expect(body.drain.left).toMatchObject({ endpoints: 0 })
    })
    expect((await call('GET', `/nodes/${id}`)).body.drain).toMatchObject({
      is_done: false,
      from: { agents: 1 },
    })
    release?.()
    expect((await download).text).toBe('halfrest')
    await eventually(async () => {
      expect((await call('GET', `/nodes/${id}`)).body.drain).toMatchObject({ is_done: true })
    })
    expect(await finish()).toEqual([200])
    for (const host of ['few.site.test', 'cloud.site.test']) {
      expect(homeOf(host)).toBe(two)
      expect([(await visit(one, host)).status, (await visit(two, host)).status]).toEqual([200, 429])
    }
    const list = (await call('GET', '/nodes')).body.nodes
    // Newest first, and both are of one second.
    expect(
      new Map(list.map(({ state, is_self }: Record<string, unknown>) => [is_self, state])),
    ).toEqual(
      new Map([
        [true, 'live'],
        [false, 'draining'],
      ]),
    )
    await call('POST', `/nodes/${id}/undrain`)
    await eventually(async () => {
      const { body } = await call('GET', `/nodes/${id}`)
      expect(body).toMatchObject({ state: 'live', drain: null })
    })
    await connectSdk(one)
  })

  it('lets go of nothing at its end before the others have it', async () => {
    await start()
    const agent = await startAgent()
    const echo = await startEchoUpstream('cam')
    onTestFinished(() => echo.close())
    await agent.create(specOf('cam', `localhost:${echo.port}`))
    await eventually(async () => {
      expect((await visit(two, 'cam.site.test')).status).toBe(200)
    })
    const finish = keepVisiting([two], 'cam.site.test')
    await one.gateway.stop()
    expect(await finish()).toEqual([200])
    const { call } = await managed(two)
    const gone = nodeIn(one.gateway)?.nodeId
    await eventually(async () => {
      expect((await call('GET', `/nodes/${gone}`)).body).toMatchObject({
        ...{ state: 'gone', agents: null, is_reached: false },
        lease: { state: 'left' },
      })
    })
    expect(await call('POST', `/nodes/${gone}/drain`)).toMatchObject({
      status: 409,
      body: { error_code: 'ERR_NGROK_842' },
    })
    // It is the last one.
    const last = nodeIn(two.gateway)?.nodeId
    expect(await call('POST', `/nodes/${last}/drain`)).toMatchObject({
      status: 409,
      body: { error_code: 'ERR_NGROK_841' },
    })
  })

  it('goes on serving when those that were to take over are gone', async () => {
    await start()
    const { gateway } = one
    const id = nodeIn(gateway)?.nodeId
    const { call } = await managed(one)
    // It says that it begins another session, and does not.
    const metadata = JSON.stringify({ device_id: 'cam', instance: 'process-1' })
    await connectSdk(one, { metadata, onRestart: () => {} })
    await eventually(() => expect(nodeIn(gateway)?.cluster.nodes.all()).toHaveLength(2))
    expect(await call('POST', `/nodes/${id}/drain`)).toMatchObject({ status: 200 })
    await expect(connectSdk(one)).rejects.toThrow()
    expect((await fetch(`http://127.0.0.1:${one.addresses.api?.port}/readyz`)).status).toBe(503)
    await two.gateway.stop()
    await eventually(async () => {
      expect((await call('GET', `/nodes/${id}`)).body).toMatchObject({
        ...{ state: 'live', drain: null },
        drain_given_up: { reason: expect.stringContaining('No other gateway is left') },
      })
    })
    expect(one.logText()).toContain('drain cancelled: no other gateway is left')
    expect((await fetch(`http://127.0.0.1:${one.addresses.api?.port}/readyz`)).status).toBe(200)
    await bind(await connectSdk(one), 'new.site.test')
    expect(await call('POST', `/nodes/${id}/drain`)).toMatchObject({
      body: { error_code: 'ERR_NGROK_841' },
    })
  })
})
