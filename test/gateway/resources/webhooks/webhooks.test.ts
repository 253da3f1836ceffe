import { describe, expect, it, onTestFinished } from 'vitest'
import type { Clock } from '../../../../src/base/clock.ts'
import type { EventType } from '../../../../src/gateway/records/event-store.ts'
import { Webhooks } from '../../../../src/gateway/resources/webhooks/webhooks.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { startReceiver } from '../../../helpers/webhook-receiver.ts'

/** The signature has a time in it that receivers hold against theirs. */
const MAY_DIAL = { mayDial: () => true, now: Date.now() }

function openWebhooks(
  options: Parameters<typeof openGatewayStores>[1] = MAY_DIAL,
  folder?: string,
) {
  const stores = openGatewayStores(folder, options)
  const { clock, database, events, webhooks } = stores
  const happen = (type: EventType = 'device.online', ownerId: string | null = null) =>
    database.write(() =>
      events.append({ at: clock.now(), type, ownerId, details: { n: events.newest + 1 } }),
    )
  const follow = async (receiver: { url: string; secret: { current: string } }, change = {}) => {
    const endpoint = await webhooks.create({
      ownerId: null,
      url: receiver.url,
      description: '',
      eventTypes: [],
      ...change,
    })
    receiver.secret.current = endpoint.secret
    return endpoint
  }
  const statusOf = (id: string) => {
    const endpoint = webhooks.get(id)
    return endpoint && webhooks.statusOf(endpoint)
  }
  return { ...stores, happen, follow, statusOf }
}

/** What comes first is not taken. */
const refusesOnce = () => startReceiver((count) => (count === 0 ? 500 : 204))

/** Moves the clock until something holds that other processes have a hand in. */
const advanceUntil = (clock: { advance(ms: number): Promise<void> }, check: () => void) =>
  eventually(async () => {
    await clock.advance(1_000)
    check()
  })

describe('a webhook', () => {
  it('gets what happens from then on, in order, signed', async () => {
    const { happen, follow, webhookStore } = openWebhooks()
    happen()
    const receiver = await startReceiver()
    const endpoint = await follow(receiver)
    for (let n = 0; n < 120; n += 1) happen(n % 2 ? 'device.offline' : 'device.online')
    await receiver.took(120)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual(
      Array.from({ length: 120 }, (_, n) => n + 2),
    )
    expect(receiver.received[1]).toMatchObject({ type: 'device.offline', data: { n: 3 } })
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(120)
    expect(receiver.problems).toEqual([])
    await eventually(() => expect(webhookStore.get(endpoint.id)?.delivered).toBe(121))
  })

  it('gets the types that it wants, of the account that it is for', async () => {
    const { happen, follow, issuer } = openWebhooks()
    const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
    const receiver = await startReceiver()
    await follow(receiver, { ownerId, eventTypes: ['device.offline'] })
    happen('device.offline')
    happen('device.online', ownerId)
    happen('device.offline', ownerId)
    await receiver.took(1)
    expect(receiver.received).toMatchObject([{ sequence: 3, type: 'device.offline' }])
  })

  it('waits longer from try to try, and loses nothing of what happens meanwhile', async () => {
    const { happen, follow, clock, statusOf } = openWebhooks()
    const receiver = await startReceiver((count) => (count < 4 ? 503 : 204))
    const { id } = await follow(receiver)
    happen()
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    expect(statusOf(id)?.problem).toBe('The receiver answered with 503.')
    happen()
    happen()
    // What happens is no reason to try earlier.
    await clock.advance(900)
    expect(receiver.requests()).toBe(1)
    await clock.advance(1_100)
    await eventually(() => expect(statusOf(id)?.failures).toBe(2))
    const waitMs = (statusOf(id)?.nextTryAt ?? 0) - clock.now()
    expect(waitMs).toBeGreaterThan(1_900)
    await advanceUntil(clock, () => expect(receiver.received).toHaveLength(3))
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 3])
    expect(statusOf(id)).toMatchObject({ failures: 0, problem: undefined })
  })

  it('goes on after a restart where it was', async () => {
    const first = openWebhooks()
    const receiver = await startReceiver((count) => (count === 1 ? 500 : 204))
    const { id } = await first.follow(receiver)
    first.happen()
    first.happen()
    await eventually(() => expect(first.statusOf(id)?.failures).toBe(1))
    await first.webhooks.stop()
    first.database.close()
    openWebhooks(MAY_DIAL, first.folder)
    await receiver.took(2)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2])
  })

  it('asks again after an answer that does not come', async () => {
    const { happen, follow, clock, statusOf } = openWebhooks()
    const receiver = await startReceiver((count) => (count === 0 ? 'never' : 204))
    const { id } = await follow(receiver)
    happen()
    await eventually(() => expect(receiver.requests()).toBe(1))
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    await advanceUntil(clock, () => expect(receiver.received).toHaveLength(1))
  })

  it('is over when its receiver says so, until somebody switches it on again', async () => {
    const { happen, follow, webhooks } = openWebhooks()
    const receiver = await startReceiver((count) => (count === 0 ? 410 : 204))
    const { id } = await follow(receiver)
    happen()
    await eventually(() => expect(webhooks.get(id)?.isActive).toBe(false))
    happen()
    const endpoint = webhooks.get(id)
    if (!endpoint) throw new Error('it is gone')
    await webhooks.update(endpoint, { isActive: true })
    await receiver.took(2)
  })

  it('is not over when the address that it had before says so', async () => {
    const { happen, follow, webhooks } = openWebhooks()
    let answer = (_status: number) => {}
    const before = await startReceiver(() => new Promise((resolve) => (answer = resolve)))
    const endpoint = await follow(before)
    happen()
    await eventually(() => expect(before.requests()).toBe(1))
    const receiver = await startReceiver()
    receiver.secret.current = endpoint.secret
    await webhooks.update(endpoint, { url: receiver.url })
    answer(410)
    // The change is a reason to try at once.
    await receiver.took(1)
    expect(webhooks.get(endpoint.id)?.isActive).toBe(true)
  })

  it('is not sent where the gateway may not connect to', async () => {
    const dialled: string[] = []
    const mayDial = ({ address, port }: { address: string; port: number }) => {
      dialled.push(`${address}:${port}`)
      return false
    }
    const { happen, follow, statusOf } = openWebhooks({ mayDial, now: Date.now() })
    const receiver = await startReceiver()
    const { id } = await follow(receiver)
    happen()
    await eventually(() => expect(statusOf(id)?.problem).toContain('GATEWAY_OUTBOUND_ALLOW'))
    expect(dialled).toEqual([new URL(receiver.url).host])
    expect(receiver.requests()).toBe(0)
  })

  it('is told that events are lost to it, when the log has let go of them', async () => {
    const { happen, follow, webhooks, database, statusOf, clock } = openWebhooks()
    const receiver = await startReceiver((count) => (count === 0 ? 500 : 204))
    const { id } = await follow(receiver)
    happen()
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    database.write(() => {
      for (let n = 0; n < 10_100; n += 1) happen('device.refused')
    })
    const endpoint = webhooks.get(id)
    if (!endpoint) throw new Error('it is gone')
    await webhooks.update(endpoint, { eventTypes: ['device.online'] })
    happen()
    await advanceUntil(clock, () => expect(webhooks.get(id)?.missed).toBeGreaterThan(0))
    await receiver.took(1)
    expect(receiver.received[0]?.sequence).toBe(10_102)
  })

  it('goes on behind what it has taken, when a database that was damaged has lost that', async () => {
    const first = openWebhooks()
    const receiver = await startReceiver()
    const { id } = await first.follow(receiver)
    for (let n = 0; n < 5; n += 1) first.happen()
    await eventually(() => expect(first.webhookStore.get(id)?.delivered).toBe(5))
    await first.webhooks.stop()
    // As a rebuild leaves it that had an older copy of the events alone.
    first.database.write(() => {
      first.database.prepare('DELETE FROM events WHERE sequence > 2').run()
      first.database.prepare('UPDATE sqlite_sequence SET seq = 2').run()
    })
    first.database.close()
    const second = openWebhooks(MAY_DIAL, first.folder)
    for (let n = 0; n < 2; n += 1) second.happen()
    await receiver.took(7)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4, 5, 6, 7])
    expect(second.webhookStore.get(id)?.missed).toBe(0)
  })

  it('loses nothing to an account whose devices come and go all the time', async () => {
    const { happen, follow, issuer, webhooks, database, events, statusOf, clock } = openWebhooks()
    const { id: loud } = await issuer.createBotUser({ name: 'loud' })
    const { id: quiet } = await issuer.createBotUser({ name: 'quiet' })
    const [ofLoud, ofQuiet] = [await refusesOnce(), await refusesOnce()]
    const [toLoud, toQuiet] = [
      await follow(ofLoud, { ownerId: loud, eventTypes: ['device.online'] }),
      await follow(ofQuiet, { ownerId: quiet }),
    ]
    happen('device.online', loud)
    happen('device.online', quiet)
    await eventually(() => expect(statusOf(toQuiet.id)?.failures).toBe(1))
    await eventually(() => expect(statusOf(toLoud.id)?.failures).toBe(1))
    database.write(() => {
      for (let n = 0; n < 10_050; n += 1) happen('device.offline', loud)
    })
    expect(events.page({ limit: 20_000 })).toHaveLength(2_001)
    await advanceUntil(clock, () => expect(ofQuiet.received).toHaveLength(1))
    await eventually(() => expect(statusOf(toQuiet.id)?.position).toBe(10_052))
    expect(webhooks.get(toQuiet.id)?.missed).toBe(0)
    // Its own first one made room.
    await advanceUntil(clock, () => expect(webhooks.get(toLoud.id)?.missed).toBeGreaterThan(0))
    expect(ofLoud.received).toEqual([])
  })

  it('counts what the bound of all has taken from a quiet account', async () => {
    const { happen, follow, issuer, webhooks, database, events, statusOf, clock } = openWebhooks()
    const { id: quiet } = await issuer.createBotUser({ name: 'quiet' })
    const receiver = await refusesOnce()
    const { id } = await follow(receiver, { ownerId: quiet })
    happen('device.online', quiet)
    happen('device.offline', quiet)
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    database.write(() => {
      for (let n = 0; n < 10_100; n += 1) happen('device.refused')
      happen('device.online', quiet)
    })
    expect(events.newestRemovedOf(quiet)).toBe(2)
    await advanceUntil(clock, () => expect(webhooks.get(id)?.missed).toBe(2))
  })

  it('counts nothing that left the log of others, however many events its account has', async () => {
    const { happen, follow, issuer, webhooks, database, events, statusOf, clock } = openWebhooks()
    const { id: loud } = await issuer.createBotUser({ name: 'loud' })
    const { id: full } = await issuer.createBotUser({ name: 'full' })
    const receiver = await refusesOnce()
    const { id } = await follow(receiver, { ownerId: full, eventTypes: ['device.online'] })
    happen('device.online', full)
    await eventually(() => expect(statusOf(id)?.failures).toBe(1))
    database.write(() => {
      for (let n = 0; n < 2_500; n += 1) happen('device.offline', loud)
      for (let n = 0; n < 1_999; n += 1) happen('device.offline', full)
    })
    await advanceUntil(clock, () => expect(statusOf(id)?.position).toBe(events.newest))
    expect(webhooks.get(id)?.missed).toBe(0)
  })

  it('counts nothing as lost that it sends again', async () => {
    const { happen, follow, webhooks, issuer, database } = openWebhooks()
    const { id: loud } = await issuer.createBotUser({ name: 'loud' })
    const receiver = await startReceiver()
    const endpoint = await follow(receiver, { eventTypes: ['device.online'] })
    happen()
    database.write(() => {
      for (let n = 0; n < 2_100; n += 1) happen('device.offline', loud)
    })
    happen()
    await receiver.took(2)
    const { missed } = webhooks.get(endpoint.id) ?? {}
    await webhooks.replay(endpoint, 0)
    await receiver.took(4)
    expect(webhooks.get(endpoint.id)?.missed).toBe(missed)
  })

  it('signs with the secret from before, too, until its time is up', async () => {
    const { happen, follow, webhooks, clock } = openWebhooks()
    const receiver = await startReceiver()
    const endpoint = await follow(receiver)
    const rotated = await webhooks.rotateSecret(endpoint, 60_000)
    happen()
    await receiver.took(1)
    receiver.secret.current = rotated.secret
    happen()
    await receiver.took(2)
    receiver.secret.current = endpoint.secret
    await clock.advance(60_000)
    happen()
    await eventually(() => expect(receiver.problems).toHaveLength(1))
    expect(receiver.received).toHaveLength(2)
  })

  it('has three secrets at most, and none longer than the last change says', async () => {
    const { webhooks, clock } = openWebhooks()
    const settings = { ownerId: null, url: 'https://a.test', description: '', eventTypes: [] }
    const made = await webhooks.create(settings)
    const secrets = [made.secret]
    for (let n = 0; n < 3; n += 1)
      secrets.unshift((await webhooks.rotateSecret(made, 60_000)).secret)
    const { secret, oldSecrets } = webhooks.get(made.id) ?? made
    expect([secret, ...oldSecrets.map((it) => it.secret)]).toEqual(secrets.slice(0, 3))
    await webhooks.rotateSecret(made, 1_000)
    const ends = webhooks.get(made.id)?.oldSecrets.map(({ until }) => until - clock.now())
    expect(ends).toEqual([1_000, 1_000])
    await webhooks.rotateSecret(made, 0)
    expect(webhooks.get(made.id)?.oldSecrets).toEqual([])
  })

  it('sends again what somebody asks for', async () => {
    const { happen, follow, webhooks } = openWebhooks()
    const receiver = await startReceiver()
    const endpoint = await follow(receiver)
    happen()
    happen()
    await receiver.took(2)
    await webhooks.replay(endpoint, 0)
    await receiver.took(4)
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 1, 2])
    expect(receiver.received[2]?.id).toBe(receiver.received[0]?.id)
  })
})

describe('webhooks', () => {
  it('do not wait for each other', async () => {
    const { happen, follow } = openWebhooks()
    const stuck = await startReceiver(() => 'never')
    await follow(stuck)
    const receiver = await startReceiver()
    await follow(receiver)
    happen()
    await receiver.took(1)
  })

  it('write how far they are now and then, not for each event', async () => {
    const { happen, follow, database, webhookStore } = openWebhooks()
    const receiver = await startReceiver()
    const { id } = await follow(receiver)
    let transactions = 0
    database.onWrite(() => {
      transactions += 1
      return undefined
    })
    database.write(() => {
      for (let n = 0; n < 200; n += 1) happen()
    })
    await receiver.took(200)
    await eventually(() => expect(webhookStore.get(id)?.delivered).toBe(200))
    // The clock stands still: once for the events, once at their beginning, once at their end.
    expect(transactions).toBeLessThanOrEqual(3)
  })

  it('leave the sending to the next process, and take it back', async () => {
    const { happen, follow, webhooks } = openWebhooks()
    const receiver = await startReceiver()
    await follow(receiver)
    await webhooks.release()
    happen()
    happen()
    expect(receiver.requests()).toBe(0)
    webhooks.reclaim()
    await receiver.took(2)
  })

  it('are a hundred at most, and ten of each bot user', async () => {
    const stores = openGatewayStores()
    const clock: Clock = stores.clock
    const webhooks = new Webhooks({ ...stores, clock, mayDial: () => false })
    onTestFinished(() => webhooks.stop())
    const create = (ownerId: string | null = null) =>
      webhooks.create({ ownerId, url: 'https://a.test', description: '', eventTypes: [] })
    const { id: loud } = await stores.issuer.createBotUser({ name: 'loud' })
    for (let n = 0; n < 10; n += 1) await create(loud)
    await expect(create(loud)).rejects.toThrow('10 of 10 used')
    // What one account has leaves the others theirs.
    for (let n = 0; n < 100; n += 1) await create()
    await expect(create()).rejects.toThrow('limit of 100 webhook endpoints')
  })
})
