import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AllowEntry, parseAllowEntry } from '../../../src/policy/outbound/outbound-allow.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { bind, connectSdk } from '../../helpers/running-gateway.ts'
import { startReceiver } from '../../helpers/webhook-receiver.ts'

const METADATA = JSON.stringify({ device_id: 'cam', instance: 'process-1' })

describe.skipIf(!hasPostgres)('what a site does once', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('sends each event from one gateway, and another goes on when that ends', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const allow = { outboundAllow: [parseAllowEntry('127.0.0.1') as AllowEntry] }
    const one = await cluster.start(allow)
    const two = await cluster.start({ ...allow, authtoken: one.authtoken })
    const sending = () =>
      [one, two].filter(({ gateway }) => nodeIn(gateway)?.duties.isOurs('webhooks'))
    await eventually(() => expect(sending()).toHaveLength(1))
    const receiver = await startReceiver()
    const { webhooks } = two.gateway.parts
    const { secret } = await webhooks.create({
      ownerId: null,
      url: receiver.url,
      description: '',
      eventTypes: [],
    })
    receiver.secret.current = secret
    const session = await connectSdk(one, { metadata: METADATA })
    await bind(session, 'cam.site.test')
    expect((await receiver.took(1)).map(({ type }) => type)).toEqual(['device.online'])
    for (const { gateway } of [one, two]) {
      await eventually(() => {
        const [device] = gateway.parts.devices.all()
        expect(device && gateway.parts.devices.stateOf(device)).toBe('online')
      })
    }
    await one.gateway.stop()
    await connectSdk(two, { metadata: METADATA })
    await eventually(() => expect(nodeIn(two.gateway)?.duties.isOurs('webhooks')).toBe(true))
    await eventually(() => {
      expect(two.gateway.parts.devices.all()[0]?.facts.node).toBe(nodeIn(two.gateway)?.nodeId)
    })
    await two.gateway.parts.issuer.createCredential({ description: 'another', ownerId: null })
    const other = await connectSdk(two, { metadata: METADATA.replace('cam', 'door') })
    expect(other).toBeDefined()
    // The first device was never told to have gone, and no event was made twice. One may be sent twice when the
    // gateway that sends them ends.
    const made = await eventually(() => {
      const byId = new Map(receiver.received.map((event) => [event.id, event]))
      expect(byId.size).toBeGreaterThan(1)
      return [...byId.values()]
    })
    const types = made.map(({ type, data }) => {
      const { device_id } = data.device as { readonly device_id: string }
      return [type, device_id]
    })
    expect(types).toEqual([
      ['device.online', 'cam'],
      ['device.online', 'door'],
    ])
  })

  it('tests and replays a webhook for whoever asks any gateway', async () => {
    const cluster = await GatewayCluster.open(await postgres.database())
    const allow = { outboundAllow: [parseAllowEntry('127.0.0.1') as AllowEntry] }
    const one = await cluster.start(allow)
    const two = await cluster.start({ ...allow, authtoken: one.authtoken })
    const nodes = [one, two].map(({ gateway }) => gateway.parts)
    const sending = () => nodes.filter(({ member }) => member.duties.isOurs('webhooks'))
    await eventually(() => expect(sending()).toHaveLength(1))
    const receiver = await startReceiver()
    const [sender] = sending()
    const other = nodes.find((it) => it !== sender)
    if (!sender || !other) throw new Error('nobody sends')
    const made = { ownerId: null, url: receiver.url, description: '', eventTypes: [] }
    const endpoint = await sender.webhooks.create(made)
    receiver.secret.current = endpoint.secret
    await connectSdk(one, { metadata: METADATA })
    const [event] = await receiver.took(1)
    await eventually(() => expect(other.webhooks.get(endpoint.id)?.delivered).toBe(event?.sequence))
    expect(await other.webhooks.test(endpoint)).toMatchObject({ isTaken: true })
    await other.webhooks.replay(endpoint, 0)
    await eventually(() => {
      const types = receiver.received.map(({ type, id }) => [type, id === event?.id])
      expect(types.filter(([, isSame]) => isSame)).toHaveLength(2)
    })
    expect(receiver.received.filter(({ sequence }) => sequence === null)).toHaveLength(1)
  })
})
