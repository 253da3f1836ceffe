import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../../../src/base/deferred.ts'
import { Webhooks } from '../../../../src/gateway/resources/webhooks/webhooks.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { startReceiver } from '../../../helpers/webhook-receiver.ts'

/** Two that send to one endpoint. The first is stuck at the third event; that the second was taken is not written yet. */
async function startTwo() {
  const mayDial = () => true
  const stores = openGatewayStores(undefined, { mayDial, now: Date.now() })
  const { webhooks: next, database, webhookStore, events, clock } = stores
  await next.release()
  let gate: Promise<void> | undefined
  const old = new Webhooks({
    ...{ ...stores, mayDial },
    database: {
      change: async (change, options) => {
        await gate
        return database.change(change, options)
      },
    },
  })
  old.start()
  onTestFinished(() => old.stop())
  const receiver = await startReceiver((count) => (count === 2 ? 'never' : 204))
  const settings = { ownerId: null, url: receiver.url, description: '', eventTypes: [] }
  const endpoint = await old.create(settings)
  receiver.secret.current = endpoint.secret
  const happen = (times: number) =>
    database.write(() => {
      for (let n = 0; n < times; n += 1) {
        events.append({ at: clock.now(), type: 'device.online', ownerId: null, details: {} })
      }
    })
  const delivered = () => webhookStore.get(endpoint.id)?.delivered
  happen(1)
  await eventually(() => expect(delivered()).toBe(1))
  // The clock stands still: it is not time yet to write how far it is.
  happen(2)
  await eventually(() => expect(receiver.requests()).toBe(3))
  expect(delivered()).toBe(1)
  /** What the first one writes from now on waits until this is called. */
  const delayOld = () => {
    const { promise, resolve } = createDeferred()
    gate = promise
    return resolve
  }
  return { old, next, endpoint, happen, receiver, delivered, delayOld }
}

describe('a webhook sender that lets go', () => {
  it('writes how far it is', async () => {
    const { old, delivered } = await startTwo()
    await old.release()
    expect(delivered()).toBe(2)
  })

  it('writes nothing when another has gone on meanwhile', async () => {
    const { old, next, happen, receiver, delivered, delayOld } = await startTwo()
    const letGo = delayOld()
    const released = old.release()
    next.reclaim()
    await eventually(() => expect(delivered()).toBe(3))
    letGo()
    await released
    expect(delivered()).toBe(3)
    happen(1)
    await eventually(() => expect(delivered()).toBe(4))
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 2, 3, 4])
  })

  it('does not undo a replay that somebody has asked for', async () => {
    const { old, next, endpoint, receiver, delivered, delayOld } = await startTwo()
    const letGo = delayOld()
    const released = old.release()
    await next.replay(endpoint, 0)
    letGo()
    await released
    expect(delivered()).toBe(0)
    next.reclaim()
    await eventually(() => expect(delivered()).toBe(3))
    expect(receiver.received.map(({ sequence }) => sequence)).toEqual([1, 2, 1, 2, 3])
  })
})
