import { describe, expect, it, onTestFinished } from 'vitest'
import type { Clock } from '../../../../src/base/clock.ts'
import type { ConnectedAgent } from '../../../../src/gateway/endpoints/endpoint.ts'
import { Devices } from '../../../../src/gateway/resources/devices/devices.ts'
import { agentWithEndpoint, connectedAgent } from '../../../helpers/connected-agent.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'

const WRITTEN_MS = 200
const SECOND = 1_000
const MINUTE = 60_000
const ONLINE = 'device.online'
const OFFLINE = 'device.offline'

/** Gateways of one site, on one database. */
function openSite() {
  const stores = openGatewayStores()
  const { database, deviceStore, events, clock, ids, log } = stores
  const gone = new Set<string>()
  const onDuty = new Set<string>()
  let sessions = 0
  /** Its clock may be ahead of those of the others. */
  const open = (self: string, aheadMs = 0) => {
    const storage = { isAway: false }
    const change: typeof database.change = async (work, options) => {
      if (storage.isAway) throw new Error('it is away')
      return database.change(work, options)
    }
    const nodes = {
      self,
      isShared: true,
      isThere: (node: string) => !gone.has(node),
      isOnDuty: () => onDuty.has(self),
    }
    const own: Clock = {
      now: () => clock.now() + aheadMs,
      monotonic: () => clock.monotonic(),
      sleep: (ms, signal) => clock.sleep(ms, signal),
    }
    const devices = new Devices({ ...stores, database: { change }, nodes, ids, clock: own, log })
    devices.start()
    onTestFinished(() => devices.stop())
    const come = (deviceId = 'd1') => {
      sessions += 1
      const { identity, ...rest } = connectedAgent(String(sessions))
      const session = { ...rest, identity: { ...identity, deviceId } }
      devices.came(session)
      return session
    }
    const go = (session: ConnectedAgent) => devices.went(session, 'disconnected', [])
    return { devices, come, go, storage }
  }
  const told = () => events.after(0, 1_000).map(({ type }) => type)
  const row = () => deviceStore.findByDevice(null, 'd1')
  return { open, gone, onDuty, told, row, clock }
}

describe('a gateway alone', () => {
  it('reads all devices once, and not again while it runs', async () => {
    const stores = openGatewayStores()
    const { deviceStore, clock } = stores
    let reads = 0
    const read = deviceStore.online.bind(deviceStore)
    deviceStore.online = () => {
      reads += 1
      return read()
    }
    const nodes = { self: '', isShared: false, isThere: () => true, isOnDuty: () => true }
    const devices = new Devices({ ...stores, nodes })
    devices.start()
    onTestFinished(() => devices.stop())
    await clock.advance(MINUTE)
    expect(reads).toBe(1)
  })
})

describe('a device that moves between gateways', () => {
  it('is not told to have gone when it is back where it was', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    a.go(a.come())
    await clock.advance(SECOND)
    const there = b.come()
    await clock.advance(SECOND)
    b.go(there)
    const back = a.come()
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE])
    expect(row()).toMatchObject({ isOnline: true, facts: { node: 'a' } })
    a.go(back)
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE, OFFLINE])
    expect(row()).toMatchObject({ isOnline: false, goneReason: 'disconnected' })
  })

  it('is told of by the gateway where it is, while another has a session of it left', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    const old = a.come()
    await clock.advance(2 * MINUTE)
    b.come()
    await clock.advance(SECOND)
    Object.assign(old, { endpoints: agentWithEndpoint('1').agent.endpoints })
    for (let n = 0; n < 70; n += 1) {
      await clock.advance(SECOND)
      expect(row()?.facts).toMatchObject({ node: 'b', endpoints: [] })
    }
    a.go(old)
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE])
    expect(row()).toMatchObject({ isOnline: true, facts: { node: 'b' } })
  })

  it('comes back to a gateway that had a session of it left', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    a.come()
    await clock.advance(SECOND)
    const there = b.come()
    await clock.advance(SECOND)
    a.come()
    b.go(there)
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE])
    expect(row()).toMatchObject({ isOnline: true, facts: { node: 'a' } })
  })

  it('is where it came last, whenever that is written', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    a.go(a.come())
    await clock.advance(SECOND)
    b.storage.isAway = true
    const there = b.come()
    await clock.advance(SECOND)
    a.come()
    await clock.advance(SECOND)
    b.storage.isAway = false
    await clock.advance(MINUTE)
    expect(row()).toMatchObject({ isOnline: true, facts: { node: 'a' } })
    b.go(there)
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE])
    expect(row()).toMatchObject({ isOnline: true, facts: { node: 'a' } })
  })

  it('is where it came last, also where the clock of the gateway before is ahead', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a', MINUTE), open('b')]
    a.come()
    await clock.advance(WRITTEN_MS)
    expect(row()?.facts.node).toBe('a')
    b.come()
    await clock.advance(WRITTEN_MS)
    expect(row()).toMatchObject({ isOnline: true, facts: { node: 'b' } })
    expect(told()).toEqual([ONLINE])
  })

  it('is not told late to have come and gone where it was before', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    a.storage.isAway = true
    a.go(a.come())
    await clock.advance(6 * SECOND)
    b.go(b.come())
    await clock.advance(6 * SECOND)
    expect(told()).toEqual([ONLINE, OFFLINE])
    const before = row()
    a.storage.isAway = false
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE, OFFLINE])
    expect(row()).toEqual(before)
  })

  it('is one, though two gateways see it before one has written it', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    a.storage.isAway = true
    b.go(b.come())
    const here = a.come()
    a.come('d2')
    await clock.advance(6 * SECOND)
    const first = row()
    expect(told()).toEqual([ONLINE, OFFLINE])
    a.storage.isAway = false
    await clock.advance(MINUTE)
    // What has happened to others is told, too.
    expect(told()).toEqual([ONLINE, OFFLINE, ONLINE, ONLINE])
    expect(row()).toMatchObject({ id: first?.id, isOnline: true, facts: { node: 'a' } })
    a.go(here)
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE, OFFLINE, ONLINE, ONLINE, OFFLINE])
    expect(row()).toMatchObject({ id: first?.id, isOnline: false })
  })

  it('is told to be online again by the gateway that has a session of it left', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    const old = a.come()
    await clock.advance(SECOND)
    b.go(b.come())
    await clock.advance(5 * SECOND + WRITTEN_MS)
    expect(told()).toEqual([ONLINE, OFFLINE])
    const since = clock.now()
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE, OFFLINE, ONLINE])
    expect(row()).toMatchObject({ isOnline: true, goneReason: null, facts: { node: 'a' } })
    expect(row()?.since).toBeGreaterThan(since)
    a.go(old)
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE, OFFLINE, ONLINE, OFFLINE])
  })

  it('stays where it is when people name it where it was', async () => {
    const { open, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    const old = a.come()
    await clock.advance(SECOND)
    b.come()
    await clock.advance(SECOND)
    const device = a.devices.findByDevice(null, 'd1')
    if (!device) throw new Error('nobody knows it')
    await a.devices.save({ ...device, name: 'Press 7' })
    expect(row()).toMatchObject({ name: 'Press 7', facts: { node: 'b' } })
    a.go(old)
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE])
    expect(row()).toMatchObject({ name: 'Press 7', isOnline: true, facts: { node: 'b' } })
  })
})

describe('a device whose gateway is gone', () => {
  it('is told to have gone once, whoever is on duty', async () => {
    const { open, gone, onDuty, told, row, clock } = openSite()
    const a = open('a')
    open('b')
    open('c')
    a.come()
    await clock.advance(SECOND)
    a.storage.isAway = true
    gone.add('a')
    onDuty.add('b').add('c')
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE, OFFLINE])
    expect(row()).toMatchObject({ isOnline: false, goneReason: 'gateway-restarted' })
  })

  it('is online again where it comes, also when that is written later', async () => {
    const { open, gone, onDuty, told, row, clock } = openSite()
    const [a, , c] = [open('a'), open('b'), open('c')]
    a.come()
    await clock.advance(SECOND)
    a.storage.isAway = true
    c.storage.isAway = true
    gone.add('a')
    onDuty.add('b')
    c.come()
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE, OFFLINE])
    c.storage.isAway = false
    await clock.advance(20 * SECOND)
    expect(told()).toEqual([ONLINE, OFFLINE, ONLINE])
    expect(row()).toMatchObject({ isOnline: true, goneReason: null, facts: { node: 'c' } })
    expect(row()?.since).toBe(row()?.seenAt)
  })

  it('is told of by one that has a session of it left, and by nobody to have gone', async () => {
    const { open, gone, onDuty, told, row, clock } = openSite()
    const [a, b] = [open('a'), open('b')]
    a.come()
    await clock.advance(SECOND)
    b.come()
    await clock.advance(SECOND)
    b.storage.isAway = true
    gone.add('b')
    onDuty.add('a')
    await clock.advance(MINUTE)
    expect(told()).toEqual([ONLINE])
    expect(row()).toMatchObject({ isOnline: true, facts: { node: 'a' } })
  })
})

describe('a device that is refused at two gateways', () => {
  it('is told of once, and a duplicate does not bring the device online again', async () => {
    const { open, told, row, clock } = openSite()
    const gateways = [open('a'), open('b')]
    const [a] = gateways
    const session = a?.come()
    await clock.advance(2 * MINUTE)
    const { since } = row() ?? {}
    if (session) a?.devices.refusedDuplicate(session, '192.0.2.8')
    for (const { devices } of gateways) {
      const refusal = { ownerId: null, deviceId: 'd1', ip: '192.0.2.9' }
      devices.refused({ ...refusal, code: 107, message: '' })
      await clock.advance(SECOND)
    }
    expect(told()).toEqual([ONLINE, 'device.duplicate', 'device.refused'])
    expect(row()).toMatchObject({ since, duplicate: { ip: '192.0.2.8' } })
  })
})
