import { describe, expect, it } from 'vitest'
import {
  ORDER_BUDGETS,
  type OrderDelay,
} from '../../../../src/gateway/certificates/acme/certificate-order-store.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

const HOUR_MS = 3_600_000
const WEEK_MS = 168 * HOUR_MS

function openOrders(folder = temporaryFolder()) {
  const { certificateOrders: orders, clock, database } = openGatewayStores(folder)
  const begin = (name: string, ownerId: string | null = 'bot_a', isRenewal = false) =>
    orders.begin({ name, ownerId, isRenewal }, clock.now())
  /** Orders until a refusal, and returns the number of orders and the refusal. */
  const exhaust = async (nameOf: (n: number) => string, ownerId: string | null) => {
    for (let n = 0; ; n += 1) {
      const begun = await begin(nameOf(n), ownerId)
      if (typeof begun !== 'string') return { count: n, refusal: begun }
    }
  }
  return { orders, clock, database, begin, exhaust, folder }
}

describe('the orders of certificates on demand', () => {
  it('have a budget for an account and an hour, whatever the names are', async () => {
    const { exhaust, clock, begin } = openOrders()
    const { count, refusal } = await exhaust((n) => `www.shop${n}.test`, 'bot_a')
    expect(count).toBe(ORDER_BUDGETS.account.max)
    expect(refusal).toEqual({
      waitMs: HOUR_MS,
      reason: expect.stringContaining('5 orders an hour'),
    })
    // Another account has its own.
    expect(await begin('www.other.test', 'bot_b')).toBeTypeOf('string')
    await clock.advance(HOUR_MS)
    expect(await begin('www.late.test', 'bot_a')).toBeTypeOf('string')
  })

  it('leave a part of each hour to the owner, and a part to renewals', async () => {
    const { exhaust, begin, clock } = openOrders()
    let count = 0
    let refusal: OrderDelay | undefined
    for (let account = 0; account < 4; account += 1) {
      const name = (n: number) => `www.shop${account}-${n}.test`
      const result = await exhaust(name, `bot_${account}`)
      count += result.count
      refusal = result.refusal
    }
    expect(count).toBe(ORDER_BUDGETS.newOfBotUsers.max)
    expect(refusal?.reason).toContain('10 new certificates an hour for all bot users')
    const own = await exhaust((n) => `www.own${n}.test`, null)
    expect(own.count).toBe(ORDER_BUDGETS.new.max - count)
    expect(own.refusal.reason).toContain('15 new certificates an hour')
    // Renewals of bot users, then of the owner.
    const renewals: (string | OrderDelay)[] = []
    for (const ownerId of ['bot_2', null]) {
      for (let n = 0; n < 6; n += 1) renewals.push(await begin(`r${n}.test`, ownerId, true))
    }
    const placed = renewals.filter((begun) => typeof begun === 'string')
    expect(placed).toHaveLength(ORDER_BUDGETS.gateway.max - ORDER_BUDGETS.new.max)
    expect(renewals.at(-1)).toMatchObject({ reason: expect.stringContaining('20 orders an hour') })
    // Renewals of bot users leave a part to the owner, too.
    await clock.advance(HOUR_MS)
    let ofBotUsers = 0
    for (let n = 0; n < 30; n += 1) {
      const begun = await begin(`r${n}.test`, `bot_${n % 6}`, true)
      if (typeof begun === 'string') ofBotUsers += 1
    }
    expect(ofBotUsers).toBe(ORDER_BUDGETS.botUsers.max)
    expect(await begin('own.test', null)).toBeTypeOf('string')
  })

  it('of bot users whose renewals fail leave a part of each hour to others', async () => {
    const { orders, begin, clock } = openOrders()
    const fail = async (name: string, ownerId: string) => {
      const id = await begin(name, ownerId, true)
      if (typeof id === 'string') await orders.conclude(id, 'the firewall is closed')
      return id
    }
    for (let hour = 0; hour < 3; hour += 1) {
      let refusal: string | OrderDelay = ''
      for (let n = 0; n < 15; n += 1) refusal = await fail(`n${n}.test`, `bot_${n % 3}`)
      expect(refusal).toMatchObject({
        reason: expect.stringContaining('7 failed orders an hour for all bot users'),
      })
      let others = 0
      for (let n = 0; n < 15; n += 1) {
        const begun = await begin(`o${n}.test`, `bot_other${n % 3}`, true)
        if (typeof begun === 'string') others += 1
      }
      expect(others).toBe(ORDER_BUDGETS.botUsers.max - ORDER_BUDGETS.failed.max)
      await clock.advance(HOUR_MS)
    }
  })

  it('leave a tenant of 1,000 names below one domain a share of it, and others the rest', async () => {
    const { begin, clock } = openOrders()
    let count = 0
    let refusal: string | OrderDelay = ''
    for (let n = 0; n < 1_000; n += 1) {
      refusal = await begin(`n${n}.tunnels.test`)
      if (typeof refusal === 'string') count += 1
      if (n % 10 === 9) await clock.advance(HOUR_MS)
    }
    expect(count).toBe(ORDER_BUDGETS.share.max)
    expect(refusal).toMatchObject({
      reason: expect.stringContaining('5 new certificates a week for one bot user'),
    })
    let others = 0
    for (let n = 0; n < 100; n += 1) {
      if (typeof (await begin(`o${n}.tunnels.test`, `bot_${n}`)) === 'string') others += 1
      await clock.advance(HOUR_MS / 10)
    }
    expect(count + others).toBe(ORDER_BUDGETS.domainOfBotUsers.max)
    // The rest of the week is the owner's.
    let own = 0
    for (let n = 0; n < 40; n += 1) {
      if (typeof (await begin(`p${n}.tunnels.test`, null)) === 'string') own += 1
      await clock.advance(HOUR_MS / 10)
    }
    expect(count + others + own).toBe(ORDER_BUDGETS.domain.max)
    await clock.advance(WEEK_MS)
    expect(await begin('late.tunnels.test')).toBeTypeOf('string')
  })

  it('count for a domain only if they did not fail', async () => {
    const { orders, begin, clock } = openOrders()
    const fails = async (name: string, ownerId: string | null) => {
      const id = await begin(name, ownerId)
      expect(id).toBeTypeOf('string')
      await orders.conclude(id as string, 'the firewall is closed')
    }
    for (let n = 0; n < 2 * ORDER_BUDGETS.domain.max; n += 1) {
      await fails(`n${n}.tunnels.test`, n % 2 === 0 ? 'bot_a' : null)
      if (n % 4 === 3) await clock.advance(HOUR_MS)
    }
    expect(await begin('good.tunnels.test', 'bot_a')).toBeTypeOf('string')
    expect(await begin('good.tunnels.test', null)).toBeTypeOf('string')
    // They count for the hour.
    for (let n = 0; n < 2; n += 1) await clock.advance(HOUR_MS)
    for (let n = 0; n < ORDER_BUDGETS.account.max; n += 1)
      await fails(`m${n}.tunnels.test`, 'bot_a')
    expect(await begin('more.tunnels.test', 'bot_a')).toMatchObject({
      reason: expect.stringContaining('for one bot user'),
    })
  })

  it('count renewals for the hour alone', async () => {
    const { begin, clock } = openOrders()
    for (let n = 0; n < 40; n += 1) {
      expect(await begin(`n${n}.tunnels.test`, null, true)).toBeTypeOf('string')
      if (n % 10 === 9) await clock.advance(HOUR_MS)
    }
    expect(await begin('new.tunnels.test', null)).toBeTypeOf('string')
  })

  it('wait twice as long after each failure, also after a restart, until one succeeds', async () => {
    const first = openOrders()
    const { begin, clock, database, folder } = first
    const waits: (number | undefined)[] = []
    for (let n = 0; n < 9; n += 1) {
      const id = (await begin('shop.test')) as string
      await first.orders.conclude(id, 'refused')
      const delay = first.orders.delayAfterFailure('shop.test', clock.now())
      expect(delay?.reason).toBe('refused')
      waits.push(delay && delay.waitMs / 60_000)
      await clock.advance(delay?.waitMs ?? 0)
      expect(first.orders.delayAfterFailure('shop.test', clock.now())).toBeUndefined()
    }
    expect(waits).toEqual([5, 10, 20, 40, 80, 160, 320, 640, 720])
    await begin('shop.test')
    await database.close()
    const { orders, clock: later } = openOrders(folder)
    later.stepWall(clock.now() - later.now())
    expect(orders.failuresOf('shop.test', later.now())).toBe(10)
    const delay = orders.delayAfterFailure('shop.test', later.now())
    expect(delay?.reason).toContain('ended before the order was complete')
    await later.advance(WEEK_MS)
    const wanted = { name: 'shop.test', ownerId: null, isRenewal: false }
    const id = (await orders.begin(wanted, later.now())) as string
    await orders.conclude(id, undefined)
    expect(orders.failuresOf('shop.test', later.now())).toBe(0)
    expect(orders.delayAfterFailure('shop.test', later.now())).toBeUndefined()
  })

  it('do not count if a clock that ran ahead placed them', async () => {
    const { orders, begin, exhaust, clock, database } = openOrders()
    const aheadMs = 400 * 24 * HOUR_MS
    clock.stepWall(aheadMs)
    const id = (await begin('shop.test')) as string
    await orders.conclude(id, 'refused')
    await exhaust((n) => `n${n}.tunnels.test`, 'bot_a')
    expect(orders.delayAfterFailure('shop.test', clock.now())).toBeDefined()
    clock.stepWall(-aheadMs)
    expect(orders.delayAfterFailure('shop.test', clock.now())).toBeUndefined()
    expect(orders.failuresOf('shop.test', clock.now())).toBe(0)
    expect(await begin('shop.test')).toBeTypeOf('string')
    const count = database.prepare<[], number>('SELECT count(*) FROM certificate_orders').pluck()
    expect(count.get()).toBe(1)
    // A clock that is a little behind does not make orders free.
    clock.stepWall(-60_000)
    expect((await exhaust((n) => `m${n}.other.test`, 'bot_a')).count).toBe(
      ORDER_BUDGETS.account.max - 1,
    )
  })
})
