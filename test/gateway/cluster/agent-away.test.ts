import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NgrokConnector } from '../../../src/agent/ngrok-connector.ts'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { FAST_TIMINGS } from '../../helpers/agent-in-folder.ts'
import { startedOnGateway } from '../../helpers/agent-on-gateway.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { visit as visitSdk } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import type { RunningGateway } from '../../helpers/running-gateway.ts'

const TUNNELS = ['a', 'b', 'c'] as const
/** A tunnel that was refused waits for minutes, unless it is told. */
const PATIENT = { ...FAST_TIMINGS.tunnel, backoffBaseMs: 600_000, backoffCapMs: 600_000 }

const visit = async (at: RunningGateway, name: string) =>
  (await visitSdk(at, { host: `${name}.site.test`, address: at.addresses.http.host })).status

describe.skipIf(!hasPostgres)('an agent with several gateways while PostgreSQL is away', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  /** An agent with its tunnels at the first of the gateways and a session ready at another one. */
  async function start(gateways: number, timings = FAST_TIMINGS) {
    const address = await postgres.database()
    const database = await ChaosProxy.start(address)
    const cluster = GatewayCluster.open(address)
    const nodes: RunningGateway[] = []
    const ways: ChaosProxy[] = []
    while (nodes.length < gateways) {
      const [first] = nodes
      const known = first && { authtoken: first.authtoken }
      const node = await cluster.start({ ...known, through: database.address })
      nodes.push(node)
      ways.push(await ChaosProxy.start(node.addresses.agent))
    }
    const [one, two] = nodes as [RunningGateway, RunningGateway]
    const serverAddrs = ways.map(({ address: of }) =>
      formatListenAddress(of).replace('127.0.0.1', 'localhost'),
    )
    const on = await startedOnGateway({
      ...{ running: one, serverAddrs },
      // A busy machine loses no heartbeat, after which the agent would try another gateway.
      connector: new NgrokConnector({
        ...{ version: '1.2.3', log: captureLog().log },
        heartbeat: { intervalS: 60, toleranceS: 60 },
        deadlines: { bindMs: 30_000, closeMs: 500 },
      }),
      timings: { ...timings, settleMs: 60_000 },
    })
    await on.createTunnels(...TUNNELS)
    const link = () => on.agent.status().link
    await eventually(() => expect(link().standby?.state).toBe('ready'))
    const areServed = () =>
      eventually(async () => {
        for (const node of nodes)
          for (const name of TUNNELS) expect(await visit(node, name)).toBe(200)
      })
    await areServed()
    expect(link().serverAddr).toBe(serverAddrs[0])
    database.refuse()
    database.cut()
    const isAway = ({ gateway }: RunningGateway) =>
      nodeIn(gateway)?.readiness.state === 'degraded' || nodeIn(gateway)?.readiness.state === 'away'
    await eventually(() => expect(nodes.every(isAway)).toBe(true))
    return { ...{ nodes, one, two, ways, serverAddrs, on, link, database, areServed } }
  }

  it.each([
    ['its link to the gateway of its names breaks', 2, [0]],
    ['all its links break', 2, [0, 1]],
    ['all its links to three gateways break', 3, [0, 1, 2]],
  ])('has its names back at that gateway after %s', async (_what, gateways, cut) => {
    const { ways, serverAddrs, link, areServed } = await start(gateways)
    for (const at of cut) ways[at]?.cut()
    await areServed()
    expect(link().serverAddr).toBe(serverAddrs[0])
  })

  it('finds that gateway after a restart', async () => {
    const { on, serverAddrs, areServed } = await start(2)
    await on.agent.stop()
    const again = on.another({ serverAddrs: [...serverAddrs].reverse() })
    await again.start()
    await areServed()
    expect(again.status().link.serverAddr).toBe(serverAddrs[0])
  })

  it('stays ready if that gateway is gone, and is told when PostgreSQL is back', async () => {
    const { one, two, ways, on, link, database, serverAddrs } = await start(2, {
      ...FAST_TIMINGS,
      tunnel: PATIENT,
    })
    ways[0]?.refuse()
    ways[0]?.cut()
    await eventually(() => {
      expect(link()).toMatchObject({ state: 'up', serverAddr: serverAddrs[1] })
      for (const { status } of on.agent.list()) {
        expect(status.lastError).toMatch(/PostgreSQL/)
        expect(status.remedy).toMatch(/retries automatically/)
      }
    })
    for (const node of [one, two])
      for (const name of TUNNELS) expect(await visit(node, name)).toBe(503)
    database.heal()
    await eventually(async () => {
      for (const node of [one, two])
        for (const name of TUNNELS) expect(await visit(node, name)).toBe(200)
    })
    expect(link().serverAddr).toBe(serverAddrs[1])
  })
})
