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
const PATIENT = { dnsMs: 60_000, connectMs: 60_000, tlsMs: 60_000 }
/** A tunnel that was refused waits for minutes, unless it is told. */
const NEVER_AGAIN = { ...FAST_TIMINGS.tunnel, backoffBaseMs: 600_000, backoffCapMs: 600_000 }

const visit = async (at: RunningGateway, name: string) =>
  (await visitSdk(at, { host: `${name}.site.test`, address: at.addresses.http.host })).status

describe.skipIf(!hasPostgres)('an agent with several gateways while PostgreSQL is away', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  /** An agent with its tunnels at the first of the gateways and a session ready at another one. */
  async function start({ gateways = 2, holdMs = 0, timings = FAST_TIMINGS }) {
    const address = await postgres.database()
    const database = await ChaosProxy.start(address)
    const cluster = GatewayCluster.open(address)
    const one = await cluster.start({ holdMs, through: database.address })
    const { authtoken } = one
    const nodes = [one]
    while (nodes.length < gateways) {
      nodes.push(await cluster.start({ holdMs, authtoken, through: database.address }))
    }
    const ways = await Promise.all(nodes.map((node) => ChaosProxy.start(node.addresses.agent)))
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
      // Nor is an answer late.
      timings: { ...timings, settleMs: 60_000, preflight: PATIENT },
    })
    await on.createTunnels(...TUNNELS)
    const link = () => on.agent.status().link
    const hasStandby = () => eventually(() => expect(link().standby?.state).toBe('ready'))
    await hasStandby()
    const answers = () =>
      Promise.all(nodes.flatMap((node) => TUNNELS.map((name) => visit(node, name))))
    const areServed = () =>
      eventually(async () => expect(new Set(await answers())).toEqual(new Set([200])))
    await areServed()
    expect(link().serverAddr).toBe(serverAddrs[0])
    database.refuse()
    database.cut()
    const isAway = ({ gateway }: RunningGateway) =>
      nodeIn(gateway)?.readiness.state === 'degraded' || nodeIn(gateway)?.readiness.state === 'away'
    await eventually(() => expect(nodes.every(isAway)).toBe(true))
    return { ways, serverAddrs, on, link, hasStandby, database, answers, areServed }
  }

  it('has its names back at their gateway after one link or all links break, and after a restart', async () => {
    // A busy machine forgets no name.
    const at = await start({ gateways: 3, holdMs: 60_000 })
    const { ways, serverAddrs, on, link, hasStandby, areServed } = at
    for (const broken of [ways.slice(0, 1), ways]) {
      for (const way of broken) way.cut()
      await areServed()
      expect(link().serverAddr).toBe(serverAddrs[0])
      await hasStandby()
    }
    await on.agent.stop()
    const again = on.another({ serverAddrs: [...serverAddrs].reverse() })
    await again.start()
    await areServed()
    expect(again.status().link.serverAddr).toBe(serverAddrs[0])
  })

  it('stays ready if that gateway is gone, and is told when PostgreSQL is back', async () => {
    const timings = { ...FAST_TIMINGS, tunnel: NEVER_AGAIN }
    const at = await start({ holdMs: 500, timings })
    const { ways, on, link, database, serverAddrs, answers, areServed } = at
    ways[0]?.refuse()
    ways[0]?.cut()
    await eventually(() => {
      expect(link()).toMatchObject({ state: 'up', serverAddr: serverAddrs[1] })
      for (const { status } of on.agent.list()) {
        expect(status.lastError).toMatch(/PostgreSQL/)
        expect(status.remedy).toMatch(/retries automatically/)
      }
    })
    expect(new Set(await answers())).toEqual(new Set([503]))
    database.heal()
    await areServed()
    expect(link().serverAddr).toBe(serverAddrs[1])
  })
})
