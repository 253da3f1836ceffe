import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isRetryNotice } from '../../../src/agent/sessions/gateway-notice.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import {
  deviceMetadata,
  forward,
  startDeviceService,
  visit as visitSdk,
} from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { bind, connectSdk, type RunningGateway, sdkCode } from '../../helpers/running-gateway.ts'

const HOST = 'cam.site.test'

const visit = (at: RunningGateway) => visitSdk(at, { host: HOST, address: at.addresses.http.host })

/** Connects a process of a device, whose service answers with the name of the process. */
async function bring(at: RunningGateway, process: string) {
  const session = await connectSdk(at, { metadata: deviceMetadata(process) })
  const service = await startDeviceService((_, response) => void response.end(process))
  // A busy machine may stall the gateway for a moment, which it then notices. Agents bind again, too.
  await eventually(() => forward(session, service, { domain: HOST }))
  return session
}

describe.skipIf(!hasPostgres)('gateways of a site while PostgreSQL is away', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  /** Two gateways, a device at the first, and PostgreSQL taken away. */
  async function start(leaseMs?: number) {
    const address = await postgres.database()
    const way = await ChaosProxy.start(address)
    const cluster = GatewayCluster.open(address, leaseMs)
    const one = await cluster.start({ through: way.address })
    const two = await cluster.start({ authtoken: one.authtoken, through: way.address })
    const session = await bring(one, 'first')
    const areServed = (text: string) =>
      eventually(async () => {
        for (const at of [one, two]) expect(await visit(at)).toMatchObject({ status: 200, text })
      })
    await areServed('first')
    way.refuse()
    way.cut()
    const holder = () =>
      postgres.query(
        `SELECT node, facts->>'instance' AS instance FROM claims WHERE host = '${HOST}'`,
        address.database,
      )
    return { one, two, way, session, areServed, holder }
  }

  it.each([
    ['at once', undefined],
    ['after the lease has expired', 3_000],
  ])('give a name back to its device, and to no other, %s', async (_when, leaseMs) => {
    const { one, two, way, session, areServed, holder } = await start(leaseMs)
    const node = nodeIn(one.gateway)
    if (leaseMs !== undefined) {
      await eventually(() => expect(node?.cluster.lease.state).toBe('overdue'))
    }
    for (const lost of [...one.gateway.parts.sessions.all()]) lost.end('lost')
    await session.close()
    const told: string[] = []
    const stranger = await connectSdk(one, {
      metadata: JSON.stringify({
        ...JSON.parse(deviceMetadata('first', 'device-8')),
        tells_complete: true,
      }),
      onUpdate: (version) => void told.push(version),
    })
    expect(await sdkCode(bind(stranger, HOST))).toBe('ERR_NGROK_334')
    const back = await bring(one, 'first')
    await areServed('first')
    // The agent restarts.
    await back.close()
    await bring(one, 'second')
    await areServed('second')
    // Only PostgreSQL knows whether others have a new name.
    const refused = bind(stranger, 'new.site.test').catch((error: Error) => error.message)
    expect(await refused).toMatch(/does not reach PostgreSQL.*ERR_NGROK_803/s)
    expect(told).toEqual([])
    way.heal()
    await eventually(() => expect(told.map(isRetryNotice)).toEqual([true]))
    await eventually(async () =>
      expect(await holder()).toEqual([{ node: node?.nodeId, instance: 'second' }]),
    )
    await bring(two, 'second')
    await areServed('second')
    await eventually(async () =>
      expect(await holder()).toEqual([{ node: nodeIn(two.gateway)?.nodeId, instance: 'second' }]),
    )
  })
})
