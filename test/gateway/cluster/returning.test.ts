import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { deviceMetadata, forward, startDeviceService } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { connectSdk, inTime, type RunningGateway } from '../../helpers/running-gateway.ts'

const COMPLETE = JSON.stringify({ 'device-agent': { complete: {} } })
const NAMES = ['a.site.test', 'b.site.test', 'gone.site.test'] as const
const metadata = JSON.stringify({
  ...JSON.parse(deviceMetadata('process-1')),
  tells_complete: true,
})

describe.skipIf(!hasPostgres)('a device that comes back at another gateway', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  const statusOf = async ({ addresses }: RunningGateway, host: string) => {
    const { host: address, port } = addresses.http
    return (await publicRequest({ ingress: `http://${address}:${port}`, address, host })).status
  }

  /** Two gateways, and a device with three names at the first. */
  async function startSite() {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start()
    const two = await cluster.start({ authtoken: one.authtoken })
    const service = await startDeviceService((_request, response) => void response.end('hello'))
    const before = await connectSdk(one, { metadata })
    for (const domain of NAMES) await forward(before, service, { domain })
    for (const domain of NAMES) {
      await eventually(async () => expect(await statusOf(two, domain)).toBe(200))
    }
    return { one, two, service }
  }

  const LOSSES = {
    'its link was lost': async ({ one }) => {
      for (const session of [...one.gateway.parts.sessions.all()]) session.end('lost')
    },
    'its gateway has stopped': ({ one }) => one.gateway.stop(),
  } satisfies Record<string, (site: Awaited<ReturnType<typeof startSite>>) => Promise<void>>

  it.each(Object.keys(LOSSES) as (keyof typeof LOSSES)[])(
    'is waited for, name by name, and nobody gets 404, after %s',
    async (loss) => {
      const site = await startSite()
      const { one, two, service } = site
      await LOSSES[loss](site)
      const asked = loss === 'its link was lost' ? [one, two] : [two]
      const visit = (host: string) => Promise.all(asked.map((node) => statusOf(node, host)))
      const after = await connectSdk(two, { metadata })
      await forward(after, service, { domain: 'a.site.test' })
      let isOver = false
      const waiting = visit('b.site.test').finally(() => {
        isOver = true
      })
      await sleep(500)
      expect(isOver).toBe(false)
      await forward(after, service, { domain: 'b.site.test' })
      expect(await waiting).toEqual(asked.map(() => 200))
      const told = after.httpEndpoint().domain('complete.device-agent.internal').metadata(COMPLETE)
      await inTime(told.listen())
      // A gateway that is there forgets what the device has left. Of one that has stopped, the name is kept.
      if (loss === 'its link was lost') {
        await eventually(async () => expect(await visit('gone.site.test')).toEqual([404, 404]))
      } else expect(await visit('gone.site.test')).not.toContain(404)
    },
  )
})
