import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import {
  bind,
  connectSdk,
  inTime,
  type RunningGateway,
  sdkCode,
} from '../../helpers/running-gateway.ts'

const deviceOf = (device_id: string) => JSON.stringify({ device_id, instance: 'process-1' })

describe.skipIf(!hasPostgres)('the limits of an authtoken at several gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const start = async (credentialLimits: { sessions?: number; endpoints?: number }) => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start({ credentialLimits })
    const { authtoken } = one
    const two = await cluster.start({ authtoken, credentialLimits })
    return { one, two: { ...two, authtoken } }
  }
  /** Waits until a gateway has heard of that many names at the other one. */
  const knows = ({ gateway }: RunningGateway, names: number) =>
    eventually(() => {
      expect([...(nodeIn(gateway)?.names.elsewhere() ?? [])]).toHaveLength(names)
    })

  it('count endpoints at all of them, and let one in for each that goes', async () => {
    const { one, two } = await start({ endpoints: 3 })
    const first = await connectSdk(one)
    const listener = await bind(first, 'a.site.test')
    await bind(first, 'b.site.test')
    await knows(two, 2)
    const second = await connectSdk(two)
    await bind(second, 'c.site.test')
    expect(await sdkCode(bind(second, 'd.site.test'))).toBe('ERR_NGROK_18021')
    await knows(one, 1)
    expect(await sdkCode(bind(first, 'd.site.test'))).toBe('ERR_NGROK_18021')
    await inTime(listener.close())
    await knows(two, 1)
    await bind(second, 'd.site.test')
  })

  it('count sessions at all of them, with their first endpoints', async () => {
    const { one, two } = await start({ sessions: 2 })
    await bind(await connectSdk(one), 'a.site.test')
    await bind(await connectSdk(one), 'b.site.test')
    await knows(two, 2)
    expect(await sdkCode(connectSdk(two))).toContain('ERR_NGROK_108')
  })

  it('keep no device from moving to another gateway with all that it has', async () => {
    const { one, two } = await start({ sessions: 1, endpoints: 2 })
    const before = await connectSdk(one, { metadata: deviceOf('cam') })
    await bind(before, 'a.site.test')
    await bind(before, 'b.site.test')
    await knows(two, 2)
    const after = await connectSdk(two, { metadata: deviceOf('cam') })
    await bind(after, 'a.site.test')
    await bind(after, 'b.site.test')
    await knows(one, 2)
  })

  it('count a device that is at several gateways at once with all that it has there', async () => {
    const { one, two } = await start({ sessions: 2, endpoints: 2 })
    const metadata = deviceOf('cam')
    const first = await connectSdk(one, { metadata })
    await bind(first, 'a.site.test')
    await bind(first, 'b.site.test')
    await knows(two, 2)
    const second = await connectSdk(two, { metadata })
    expect(await sdkCode(bind(second, 'c.site.test'))).toBe('ERR_NGROK_18021')
    // What it takes along is not one more.
    await bind(second, 'a.site.test')
    await knows(one, 1)
    await knows(two, 1)
    expect(await sdkCode(bind(second, 'c.site.test'))).toBe('ERR_NGROK_18021')
  })

  it('count one session less of a device that may be about to move, and no more', async () => {
    const { one, two } = await start({ sessions: 2 })
    for (const name of ['cam', 'door']) {
      const session = await connectSdk(one, { metadata: deviceOf(name) })
      await bind(session, `${name}.site.test`)
    }
    await knows(two, 2)
    await bind(await connectSdk(two, { metadata: deviceOf('cam') }), 'c.site.test')
    expect(await sdkCode(connectSdk(two, { metadata: deviceOf('gate') }))).toContain(
      'ERR_NGROK_108',
    )
    await knows(one, 1)
    expect(await sdkCode(connectSdk(one, { metadata: deviceOf('gate') }))).toContain(
      'ERR_NGROK_108',
    )
  })
})
