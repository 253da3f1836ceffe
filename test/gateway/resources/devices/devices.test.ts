import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type ConnectedAgent,
  EndpointTraffic,
  type SessionEnd,
} from '../../../../src/gateway/endpoints/endpoint.ts'
import { MAX_DEVICES, newDevice } from '../../../../src/gateway/resources/devices/device-journal.ts'
import { Devices } from '../../../../src/gateway/resources/devices/devices.ts'
import { agentWithEndpoint, connectedAgent } from '../../../helpers/connected-agent.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

const WRITTEN_MS = 200
const SECOND = 1_000
const MINUTE = 60_000

async function openDevices(folder?: string, now?: number) {
  const stores = openGatewayStores(folder, now === undefined ? {} : { now })
  const { devices, deviceStore, events, clock, issuer, database } = stores
  let transactions = 0
  database.onWrite(() => {
    transactions += 1
    return undefined
  })
  const { credential } = await issuer.createCredential({ description: 'press line' })
  let sessions = 0
  /** A session of a device that says who it is, unless `deviceId` is undefined. */
  const agent = (
    deviceId: string | undefined,
    change: Partial<ConnectedAgent['identity']> = {},
  ): ConnectedAgent => {
    sessions += 1
    const { identity, ...rest } = connectedAgent(String(sessions))
    return { ...rest, identity: { ...identity, credentialId: credential.id, deviceId, ...change } }
  }
  const come = (deviceId?: string, change?: Partial<ConnectedAgent['identity']>) => {
    const session = agent(deviceId, change)
    devices.came(session)
    return session
  }
  const go = (session: ConnectedAgent, why: SessionEnd = 'disconnected', urls: string[] = []) =>
    devices.went(session, why, urls)
  const told = () => events.after(0, 1_000).map(({ type, details }) => [type, details.reason])
  const row = () => deviceStore.page({ limit: 1 })[0]
  return { ...stores, credential, come, go, told, row, clock, transactions: () => transactions }
}

describe('a device', () => {
  it('is one row, told once as it comes, however often it connects', async () => {
    const { come, go, clock, deviceStore, told, devices } = await openDevices()
    const first = come('d1', { hostname: 'press-7', remoteAddress: '[2001:db8::7]:5000' })
    await clock.advance(WRITTEN_MS)
    go(first)
    const second = come('d1')
    go(second)
    come('d1')
    await clock.advance(MINUTE)
    const [device, ...more] = deviceStore.page({ limit: 10 })
    expect(more).toEqual([])
    expect(device).toMatchObject({ deviceId: 'd1', isOnline: true, goneReason: null })
    expect(device && devices.stateOf(device)).toBe('online')
    expect(told()).toEqual([['device.online', undefined]])
  })

  it('is what its own id says within its account, and its authtoken where it says nothing', async () => {
    const { come, clock, deviceStore, issuer } = await openDevices()
    const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
    const other = (await issuer.createCredential({})).credential.id
    come('d1')
    come('d1', { credentialId: other })
    come('d1', { ownerId })
    come(undefined)
    come(undefined)
    come(undefined, { credentialId: other })
    await clock.advance(WRITTEN_MS)
    const rows = deviceStore.page({ limit: 10 }).reverse()
    expect(rows.map((it) => [it.deviceId, it.ownerId])).toEqual([
      ['d1', null],
      ['d1', ownerId],
      [null, null],
      [null, null],
    ])
  })

  it('is told to have gone after a moment, with what was known of it last', async () => {
    const { come, go, clock, told, devices, row, events } = await openDevices()
    const session = come('d1', { hostname: 'press-7' })
    await clock.advance(MINUTE)
    const wentAt = clock.now()
    go(session, 'disconnected', ['https://b.site.test', 'https://a.site.test'])
    await clock.advance(4 * SECOND)
    expect(devices.stateOf(devices.get(row()?.id ?? '') ?? newDevice(row() as never))).toBe('away')
    await clock.advance(SECOND + WRITTEN_MS)
    expect(row()).toMatchObject({
      isOnline: false,
      goneReason: 'disconnected',
      since: wentAt,
      seenAt: wentAt,
      facts: { endpoints: ['https://a.site.test', 'https://b.site.test'] },
    })
    expect(told()).toEqual([
      ['device.online', undefined],
      ['device.offline', 'disconnected'],
    ])
    expect(events.get(2)?.details).toMatchObject({
      device: { id: row()?.id, device_id: 'd1', name: 'press-7', tags: [] },
      text: 'The connection broke, and the agent has not reconnected.',
      ip: '192.0.2.7',
    })
  })

  it.each(['silent', 'revoked', 'kicked'] as const)(
    'is told to have gone at once when it is %s',
    async (why) => {
      const { come, go, clock, told } = await openDevices()
      go(come('d1'), why)
      await clock.advance(WRITTEN_MS)
      expect(told().at(-1)).toEqual(['device.offline', why])
    },
  )

  it('stays while it has another session', async () => {
    const { come, go, clock, told } = await openDevices()
    const old = come('d1')
    come('d1')
    go(old, 'superseded')
    await clock.advance(MINUTE)
    expect(told()).toEqual([['device.online', undefined]])
  })

  it('takes the row that was made for its authtoken, which another device then does not get', async () => {
    const { come, clock, devices, deviceStore, credential, go } = await openDevices()
    const made = newDevice({
      id: 'dv_000000000000000000000000000',
      ownerId: null,
      credentialId: credential.id,
      createdAt: 0,
      name: 'Press 7',
      isProvisioned: true,
    })
    await devices.save(made)
    expect(devices.stateOf(made)).toBe('never')
    const first = come('d1')
    come('d2')
    await clock.advance(WRITTEN_MS)
    go(first, 'silent')
    come('d3')
    await clock.advance(WRITTEN_MS)
    const rows = deviceStore.page({ limit: 10 })
    expect(rows.map(({ deviceId, name }) => [deviceId, name])).toEqual([
      ['d3', ''],
      ['d2', ''],
      ['d1', 'Press 7'],
    ])
  })

  it('is not kept as online before that is told', async () => {
    const { come, devices, told, deviceStore } = await openDevices()
    come('d1')
    const device = devices.findByDevice(null, 'd1')
    if (!device) throw new Error('nobody knows it')
    await devices.save({ ...device, name: 'Press 7' })
    expect(deviceStore.get(device.id)).toMatchObject({ isOnline: true, name: 'Press 7' })
    expect(told()).toEqual([['device.online', undefined]])
  })

  it('keeps what people call it while it is away', async () => {
    const { come, go, clock, devices, row, deviceStore } = await openDevices()
    const session = come('d1')
    await clock.advance(WRITTEN_MS)
    go(session)
    const device = row()
    if (!device) throw new Error('there is no row')
    await devices.save({ ...device, name: 'Press 7', tags: ['hall-a'] })
    expect(deviceStore.get(device.id)).toMatchObject({ name: 'Press 7', isOnline: true })
    await clock.advance(MINUTE)
    expect(row()).toMatchObject({ name: 'Press 7', tags: ['hall-a'], isOnline: false })
  })
})

describe('a device that another gateway has changed', () => {
  it('keeps its name when it says something else of itself', async () => {
    const { come, clock, row, database, deviceStore } = await openDevices()
    const session = come('d1')
    await clock.advance(WRITTEN_MS)
    const device = row()
    if (!device) throw new Error('there is no row')
    await database.change(() => deviceStore.replace({ ...device, name: 'Press 7' }))
    Object.assign(session, { endpoints: agentWithEndpoint('1').agent.endpoints })
    await clock.advance(2 * MINUTE)
    expect(row()).toMatchObject({
      name: 'Press 7',
      facts: { endpoints: ['https://press-1.site.test'] },
    })
  })
})

describe('devices that come and go', () => {
  it('are written together, five times a second at most', async () => {
    const { come, go, clock, transactions, told } = await openDevices()
    const before = transactions()
    const sessions = Array.from({ length: 500 }, (_, n) => come(`d${n}`))
    for (const session of sessions) go(session, 'silent')
    await clock.advance(SECOND)
    expect(told()).toHaveLength(1_000)
    expect(transactions() - before).toBeLessThanOrEqual(2)
  })

  it('are told of once a minute when they never stop', async () => {
    const { come, go, clock, told } = await openDevices()
    for (let n = 0; n < 360; n += 1) {
      go(come('d1'))
      await clock.advance(10 * SECOND)
    }
    // An hour: the first five at once, then one a minute.
    const offline = told().filter(([type]) => type === 'device.offline')
    expect(offline.length).toBeGreaterThan(20)
    expect(offline.length).toBeLessThanOrEqual(66)
  })

  it('write what they say of themselves at most once a minute, and nothing while nothing changes', async () => {
    const { come, clock, transactions, row } = await openDevices()
    const session = come('d1')
    const traffic = new EndpointTraffic()
    let urls = ['https://a.site.test']
    Object.assign(session, { endpoints: () => urls.map((url) => ({ url, traffic })) })
    await clock.advance(MINUTE)
    expect(row()?.facts.endpoints).toEqual(urls)
    const before = transactions()
    for (let n = 0; n < 20; n += 1) {
      urls = [`https://${n}.site.test`]
      await clock.advance(10 * SECOND)
    }
    expect(transactions() - before).toBeLessThanOrEqual(5)
    const settled = transactions()
    await clock.advance(4 * MINUTE)
    // Once in five minutes it is noted that somebody watches.
    expect(transactions() - settled).toBeLessThanOrEqual(2)
  })

  it('make room for each other within an account: who was seen longest ago and was not made here', async () => {
    const { come, go, clock, deviceStore, database, ids } = await openDevices()
    database.write(() => {
      for (let n = 0; n < MAX_DEVICES; n += 1) {
        const device = newDevice({
          id: ids.next('dv'),
          ownerId: null,
          credentialId: null,
          createdAt: 0,
          deviceId: `old-${n}`,
          isProvisioned: n === 0,
          seenAt: n,
          since: n,
        })
        deviceStore.insert(device)
      }
    })
    const online = come('new-1')
    come('new-2')
    await clock.advance(WRITTEN_MS)
    expect(deviceStore.count(null)).toBe(MAX_DEVICES)
    const isThere = (id: string) => deviceStore.findByDevice(null, id) !== undefined
    expect(['old-0', 'old-1', 'old-2', 'old-3', 'new-1', 'new-2'].map(isThere)).toEqual([
      true,
      false,
      false,
      true,
      true,
      true,
    ])
    go(online, 'silent')
    await clock.advance(WRITTEN_MS)
    expect(isThere('new-1')).toBe(true)
  })

  it('do without a row whose account is deleted before it is written', async () => {
    const { come, clock, issuer, told, deviceStore } = await openDevices()
    const owner = await issuer.createBotUser({ name: 'a' })
    come('d1', { ownerId: owner.id })
    come('d2')
    await issuer.deleteBotUser(owner)
    await clock.advance(WRITTEN_MS)
    expect(deviceStore.page({ limit: 10 }).map(({ deviceId }) => deviceId)).toEqual(['d2'])
    expect(told()).toHaveLength(2)
  })
})

describe('a gateway that starts again', () => {
  /** The gateway is killed: nothing more is written of it. */
  async function killed(minutes: number) {
    const folder = temporaryFolder()
    const { come, clock, database, devices } = await openDevices(folder)
    come('back')
    come('lost')
    await clock.advance(minutes * MINUTE)
    await devices.release()
    database.close()
    const next = await openDevices(folder)
    await next.clock.advance(minutes * MINUTE + MINUTE)
    return next
  }

  it('tells of those that do not come back, and not of those that do', async () => {
    const folder = temporaryFolder()
    const first = await openDevices(folder)
    first.come('back')
    first.come('lost')
    await first.clock.advance(11 * MINUTE)
    await first.devices.release()
    first.database.close()
    const next = await openDevices(folder)
    await next.clock.advance(20 * SECOND)
    expect(next.told()).toHaveLength(2)
    next.come('back')
    await next.clock.advance(11 * SECOND)
    expect(next.told().slice(2)).toEqual([['device.offline', 'gateway-restarted']])
    const lost = next.deviceStore.findByDevice(null, 'lost')
    const startedAt = Date.UTC(2030, 0, 1)
    // Known to five minutes.
    expect((lost?.seenAt ?? 0) - startedAt).toBeGreaterThanOrEqual(6 * MINUTE)
    expect((lost?.seenAt ?? 0) - startedAt).toBeLessThanOrEqual(11 * MINUTE)
    expect(next.deviceStore.findByDevice(null, 'back')?.isOnline).toBe(true)
  })

  it('says of its own end only when it ended', async () => {
    const folder = temporaryFolder()
    const first = await openDevices(folder)
    const session = first.come('d1')
    await first.clock.advance(7 * MINUTE)
    const endedAt = first.clock.now()
    first.go(session, 'gateway-left')
    await first.devices.stop()
    expect(first.told()).toHaveLength(1)
    expect(first.deviceStore.watchedAt).toBe(endedAt)
  })

  it('numbers its events on', async () => {
    const next = await killed(1)
    next.come('new')
    await next.clock.advance(WRITTEN_MS)
    const sequences = next.events.after(0, 100).map(({ sequence }) => sequence)
    expect(sequences).toEqual(sequences.map((_, at) => at + 1))
    expect(sequences.length).toBeGreaterThan(3)
  })
})

describe('storage that takes nothing', () => {
  it('gets what happened meanwhile when it is back', async () => {
    const stores = openGatewayStores()
    const { database, clock, events } = stores
    let isFull = true
    const change: typeof database.change = async (work, options) => {
      if (isFull) throw new Error('full')
      return database.change(work, options)
    }
    const devices = new Devices({ ...stores, database: { change }, log: stores.captured.log })
    onTestFinished(() => devices.stop())
    const agent = connectedAgent('1')
    devices.came({ ...agent, identity: { ...agent.identity, deviceId: 'd1' } })
    await clock.advance(SECOND)
    expect(devices.findByDevice(null, 'd1')?.isOnline).toBe(true)
    expect(events.newest).toBe(0)
    isFull = false
    await clock.advance(10 * SECOND)
    expect(events.newest).toBe(1)
  })
})

describe('who is refused', () => {
  it('is told of once an hour, as the device that it claims to be', async () => {
    const { come, clock, devices, events } = await openDevices()
    const session = come('d1', { hostname: 'press-7' })
    const refusal = { ownerId: null, ip: '192.0.2.9', code: 107, message: 'not valid here' }
    for (let n = 0; n < 3; n += 1) {
      devices.refused({ ...refusal, deviceId: 'd1' })
      devices.refused({ ...refusal, deviceId: undefined })
      devices.refusedDuplicate(session, '192.0.2.8')
    }
    await clock.advance(WRITTEN_MS)
    expect(events.after(1, 10).map(({ type, details }) => ({ type, ...details }))).toMatchObject([
      {
        type: 'device.refused',
        device: { name: 'press-7' },
        claimed_device_id: 'd1',
        code: 'ERR_NGROK_107',
      },
      { type: 'device.refused', device: null, ip: '192.0.2.9' },
      { type: 'device.duplicate', device: { name: 'press-7' }, refused_ip: '192.0.2.8' },
    ])
    await clock.advance(60 * MINUTE)
    devices.refused({ ...refusal, deviceId: 'd1' })
    await clock.advance(WRITTEN_MS)
    expect(events.newest).toBe(5)
    expect(devices.findByDevice(null, 'd1')?.duplicate).toMatchObject({ ip: '192.0.2.8' })
  })

  it('does not push out what happens to devices, however many strangers come', async () => {
    const { clock, devices, events } = await openDevices()
    for (let n = 0; n < 5_000; n += 1) {
      const deviceId = `stranger ${n}`
      const ip = `192.0.2.${n % 250}`
      devices.refused({ ownerId: null, deviceId, ip, code: 107, message: '' })
    }
    await clock.advance(WRITTEN_MS)
    expect(events.newest).toBe(30)
  })

  it('is told of while a stranger of another address comes with ever new names', async () => {
    const { clock, devices, events } = await openDevices()
    const refuse = (deviceId: string, ip: string) =>
      devices.refused({ ownerId: null, deviceId, ip, code: 107, message: '' })
    for (let n = 0; n < 5_000; n += 1) refuse(`stranger ${n}`, `2001:db8::${n.toString(16)}`)
    refuse('d1', '2001:db8:1::1')
    await clock.advance(WRITTEN_MS)
    expect(events.newest).toBe(11)
    expect(events.get(11)?.details).toMatchObject({ claimed_device_id: 'd1' })
  })
  it('is told of once an hour over restarts, and also after the clock was set back', async () => {
    const folder = temporaryFolder()
    const refusal = { ownerId: null, code: 107, message: '' }
    const refuseAll = async (now: number) => {
      const opened = await openDevices(folder, now)
      const { come, clock, devices, events } = opened
      devices.refused({ ...refusal, deviceId: 'd1', ip: '192.0.2.9' })
      devices.refused({ ...refusal, deviceId: undefined, ip: '192.0.2.9' })
      for (const deviceId of ['d2', 'd3']) {
        devices.refusedDuplicate(come(deviceId), '192.0.2.8')
        await clock.advance(WRITTEN_MS)
      }
      await devices.stop()
      const told = events.after(0, 100).filter(({ type }) => !type.endsWith('line'))
      opened.database.close()
      return told
    }
    const start = Date.UTC(2030, 0, 1)
    expect(await refuseAll(start)).toHaveLength(4)
    expect(await refuseAll(start + 50 * MINUTE)).toHaveLength(4)
    expect(await refuseAll(start + 61 * MINUTE)).toHaveLength(8)
    expect(await refuseAll(start - 61 * MINUTE)).toHaveLength(12)
  })

  it('is told of for each account, with names of that account only', async () => {
    const { come, clock, devices, events, issuer } = await openDevices()
    const [a, b] = await Promise.all([
      issuer.createBotUser({ name: 'a' }),
      issuer.createBotUser({ name: 'b' }),
    ])
    come('d1', { ownerId: b.id, hostname: 'press-7' })
    await clock.advance(WRITTEN_MS)
    const from = events.newest
    // The device ID is a claim: any authtoken can come with the ID of a device of another account.
    for (const ownerId of [a.id, b.id]) {
      devices.refused({ ownerId, deviceId: 'd1', ip: '192.0.2.9', code: 636, message: '' })
      await clock.advance(WRITTEN_MS)
    }
    expect(events.after(from, 10)).toMatchObject([
      { ownerId: a.id, details: { device: null, claimed_device_id: 'd1' } },
      { ownerId: b.id, details: { device: { name: 'press-7' } } },
    ])
  })

  it("is named for the gateway's owner, if its authtoken is unknown and one account has it", async () => {
    const { come, clock, devices, events, issuer } = await openDevices()
    const [a, b] = await Promise.all([
      issuer.createBotUser({ name: 'a' }),
      issuer.createBotUser({ name: 'b' }),
    ])
    come('d1', { ownerId: a.id, hostname: 'press-7' })
    come('copied', { ownerId: a.id, hostname: 'press-8' })
    come('copied', { ownerId: b.id, hostname: 'press-9' })
    await clock.advance(WRITTEN_MS)
    const from = events.newest
    for (const deviceId of ['d1', 'copied', 'nobody']) {
      devices.refused({ ownerId: null, deviceId, ip: '192.0.2.9', code: 107, message: '' })
    }
    await clock.advance(WRITTEN_MS)
    expect(events.after(from, 10)).toMatchObject([
      { ownerId: null, details: { device: { name: 'press-7' }, claimed_device_id: 'd1' } },
      { ownerId: null, details: { device: null, claimed_device_id: 'copied' } },
      { ownerId: null, details: { device: null, claimed_device_id: 'nobody' } },
    ])
  })
})
