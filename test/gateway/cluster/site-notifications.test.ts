import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startChat } from '../../helpers/chat-receiver.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { openShared } from './replication/open-node.ts'

describe.skipIf(!hasPostgres)('notifications of a site', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('are sent once, and another gateway goes on where the first one was', async () => {
    const address = await postgres.database()
    const openNode = async (node: string) => {
      const { database, folder } = await openShared(address, { node })
      return openGatewayStores(folder, { database, mayDial: () => true })
    }
    const one = await openNode('one')
    const two = await openNode('two')
    await two.notifications.release()
    const nodes = [one, two]
    const chat = await startChat()
    const { id } = await one.notifications.create({
      ...{ ownerId: null, name: 'ops', kind: 'webhook', addresses: [], url: chat.url },
      ...{ eventTypes: [], tags: [], offlineMs: 60_000, quietTimes: null, timeZone: 'UTC' },
    })
    const happen = (type: 'device.offline' | 'device.online', name: string) =>
      two.database.change(() => {
        const details = { device: { id: `dv_${name}`, name, tags: [] } }
        two.events.append({ at: two.clock.now(), type, ownerId: null, details })
      })
    const passUntil = (check: () => void) =>
      eventually(async () => {
        for (const { clock } of nodes) await clock.advance(5_000)
        check()
      })
    const titles = () => chat.messages().map(({ title }) => title)
    await happen('device.offline', 'cam')
    await happen('device.offline', 'door')
    await passUntil(() => expect(titles()).toEqual(['2 devices are offline']))
    // Both know what was sent.
    await eventually(() => {
      for (const { channelStates } of nodes)
        expect(channelStates.get(id)?.lastSentAt).not.toBeNull()
    })
    await happen('device.online', 'cam')
    await eventually(() => expect(one.notices.firstDue(id)).toBeDefined())
    await one.notifications.release()
    await eventually(() => expect(two.notices.firstDue(id)).toBeDefined())
    two.notifications.reclaim()
    await passUntil(() => expect(titles()).toEqual(['2 devices are offline', 'cam is back']))
    for (const { clock } of nodes) await clock.advance(600_000)
    expect(chat.attempts()).toBe(2)
  })

  it('are sent by one gateway of those that serve', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start()
    const two = await cluster.start({ authtoken: one.authtoken })
    const sending = () =>
      [one, two].filter(({ gateway }) => nodeIn(gateway)?.duties.isOurs('notifications'))
    await eventually(() => expect(sending()).toHaveLength(1))
    const [first] = sending()
    await first?.gateway.stop()
    const other = first === one ? two : one
    await eventually(() => expect(nodeIn(other.gateway)?.duties.isOurs('notifications')).toBe(true))
  })
})
