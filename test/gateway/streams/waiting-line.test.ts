import { describe, expect, it } from 'vitest'
import type { ProxyStream } from '../../../src/gateway/streams/proxy-stream.ts'
import { ClientHolding, Holding } from '../../../src/gateway/streams/shares.ts'
import {
  type SlotUser,
  type Waiting,
  WaitingLine,
} from '../../../src/gateway/streams/waiting-line.ts'
import { clientFrom } from '../../helpers/slots-rig.ts'

function createUser(held: number): SlotUser {
  const holding = new Holding()
  holding.held = held
  return {
    holding,
    service: undefined,
    busy: new Set<ProxyStream>(),
    open: () => undefined,
    takeIdle: () => undefined,
    oldestIdle: Number.POSITIVE_INFINITY,
  }
}

function createClient(held: number): ClientHolding {
  const client = new ClientHolding(`with ${held}`)
  client.held = held
  return client
}

function createWaiting(user: SlotUser, clientHolding: ClientHolding, isFresh = false): Waiting {
  const pace = { rate: undefined, isHeldUp: false }
  const waiter = { onStream() {}, onNoStream() {}, pace, evict() {} }
  return { waiter, user, client: clientFrom('192.0.2.1'), clientHolding, isFresh, since: 0 }
}

describe('WaitingLine', () => {
  it('has those first whose endpoint holds least, of these whose client does', () => {
    const line = new WaitingLine(100)
    const [little, much] = [createUser(1), createUser(5)]
    const [poor, rich] = [createClient(0), createClient(3)]
    const all = [
      createWaiting(much, poor),
      createWaiting(little, rich),
      createWaiting(little, poor),
      createWaiting(little, poor, true),
      createWaiting(much, rich),
    ]
    for (const waiting of all) line.add(waiting)
    const order = [2, 3, 1, 0, 4].map((at) => all[at])
    expect([...line.inOrder()]).toEqual(order)
    for (const expected of order) {
      const next = line.next(() => true)
      expect(next).toBe(expected)
      if (next) line.remove(next.waiter)
    }
    expect([line.length, [...line.inOrder()]]).toEqual([0, []])
  })

  it('goes past those who need a fresh stream, to who takes any', () => {
    const line = new WaitingLine(100)
    const user = createUser(0)
    const [poor, rich] = [createClient(0), createClient(3)]
    line.add(createWaiting(user, poor, true))
    line.add(createWaiting(user, poor, true))
    const [any, behind] = [createWaiting(user, rich), createWaiting(user, rich)]
    line.add(any)
    line.add(behind)
    const takesAny = ({ isFresh }: Waiting) => !isFresh
    expect(line.next(takesAny)).toBe(any)
    // Whoever takes any and may not have one is not passed: those behind hold as much, or more.
    const asked: Waiting[] = []
    expect(line.next((waiting) => asked.push(waiting) < 0)).toBeUndefined()
    expect(asked.at(-1)).toBe(any)
  })

  it('has them in the order of what they hold now, whether or not they waited meanwhile', () => {
    const line = new WaitingLine(100)
    const [busy, calm] = [createUser(0), createUser(1)]
    const [rich, poor] = [createClient(0), createClient(1)]
    const was = createWaiting(busy, rich)
    line.add(was)
    line.remove(was.waiter)
    line.countEndpoint(busy, 1)
    const [first, second, third] = [
      createWaiting(calm, poor),
      createWaiting(busy, poor),
      createWaiting(busy, rich),
    ]
    for (const waiting of [second, third, first]) line.add(waiting)
    line.countEndpoint(busy, 1)
    for (let count = 0; count < 2; count += 1) line.countClient(rich, 1)
    expect([...line.inOrder()]).toEqual([first, second, third])
    for (let count = 0; count < 2; count += 1) line.countEndpoint(busy, -1)
    for (let count = 0; count < 2; count += 1) line.countClient(rich, -1)
    expect([...line.inOrder()]).toEqual([third, second, first])
  })
})
