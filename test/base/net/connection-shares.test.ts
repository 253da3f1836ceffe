import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  ConnectionShares,
  type ConnectionStage,
  type SharedConnection,
} from '../../../src/base/net/connection-shares.ts'
import { seeded } from '../../helpers/seeded.ts'

class Connection implements SharedConnection {
  stage: ConnectionStage
  readonly idleSince: number
  isClosed = false

  constructor(idleSince = 0, stage: ConnectionStage = 'idle') {
    this.idleSince = idleSince
    this.stage = stage
  }

  yieldPlace(): void {
    this.isClosed = true
  }
}

function sharesOf(capacity: number) {
  const random = seeded(7)
  const draw = (below: number) => Math.floor(random() * below)
  const shares = new ConnectionShares<Connection>({ capacity, draw })
  const open = (address: string | undefined, connection = new Connection()) => {
    const isIn = shares.admit(connection, address)
    return Object.assign(connection, { isIn })
  }
  const closed = (connections: readonly Connection[]) =>
    connections.flatMap(({ isClosed }, at) => (isClosed ? [at] : []))
  return { shares, open, closed }
}

describe('ConnectionShares', () => {
  it('limits nobody while there is room', () => {
    const { open, closed } = sharesOf(300)
    const all = Array.from({ length: 300 }, () => open('192.0.2.1'))
    expect(all.every(({ isIn }) => isIn)).toBe(true)
    expect(closed(all)).toEqual([])
  })

  it('takes the place of a newcomer from who holds most', () => {
    const { open, closed, shares } = sharesOf(5)
    const all = ['a', 'b', 'b', 'c', 'c', 'c', 'd'].map((address, at) =>
      open(address, new Connection(at)),
    )
    // Nobody holds more than c when its third comes: it makes room itself. Then b holds as many.
    expect(shares.size).toBe(5)
    expect(closed(all)).toEqual([1, 3])
    expect(all.every(({ isIn }) => isIn)).toBe(true)
  })

  it('closes what was idle for longest, before what is under way, and never what is busy', () => {
    const { open, closed } = sharesOf(4)
    const held = [
      open('a', new Connection(1, 'busy')),
      open('a', new Connection(2, 'awaited')),
      open('a', new Connection(4)),
      open('a', new Connection(3)),
    ]
    const order = ['b', 'c', 'd'].map((address) => {
      const before = closed(held)
      open(address, new Connection(9, 'busy'))
      return closed(held).find((at) => !before.includes(at))
    })
    expect(order).toEqual([3, 2, 1])
    expect(open('e').isIn).toBe(false)
    expect(held[0]?.isClosed).toBe(false)
  })

  it('lets an address that holds most take from itself alone', () => {
    const { open, closed } = sharesOf(3)
    const held = [open('a', new Connection(1)), open('b'), open('b', new Connection(0, 'busy'))]
    expect(open('b', new Connection(0, 'busy')).isIn).toBe(true)
    expect(closed(held)).toEqual([1])
    expect(open('b').isIn).toBe(false)
    expect(held[0]?.isClosed).toBe(false)
  })

  it('counts the /64 of IPv6 as one, IPv4 within IPv6 as itself, and all without an address', () => {
    const { open, closed } = sharesOf(4)
    const held = [
      ...[open('2001:db8::1'), open('::ffff:192.0.2.1'), open('192.0.2.2')],
      open('2001:db8::2'),
    ]
    open('192.0.2.3')
    expect(closed(held)).toEqual([0])
    const { open: openLocal, closed: closedLocal } = sharesOf(2)
    const local = [openLocal(undefined, new Connection(2)), openLocal(undefined)]
    openLocal(undefined)
    expect(closedLocal(local)).toEqual([1])
  })

  it('keeps room for newcomers in a crowd of one address, however large', () => {
    const { open } = sharesOf(10_000)
    const crowd = Array.from({ length: 9_900 }, (_, at) => open('203.0.113.9', new Connection(at)))
    const others = Array.from({ length: 100 }, (_, at) => open(`10.0.0.${at}`))
    const late = Array.from({ length: 400 }, (_, at) => open(`10.1.${at % 2}.${at >> 1}`))
    expect(late.every(({ isIn }) => isIn)).toBe(true)
    expect([...others, ...late].some(({ isClosed }) => isClosed)).toBe(false)
    expect(crowd.filter(({ isClosed }) => isClosed)).toHaveLength(400)
  })

  it('never holds more than its capacity, nor loses count', () => {
    const step = fc.record({ address: fc.constantFrom('a', 'b', 'c', 'd'), leaves: fc.nat(20) })
    const stages = fc.constantFrom<ConnectionStage>('idle', 'awaited', 'busy')
    fc.assert(
      fc.property(fc.array(fc.tuple(step, stages), { maxLength: 200 }), (steps) => {
        const { open, shares } = sharesOf(8)
        const alive = new Set<Connection>()
        for (const [{ address, leaves }, stage] of steps) {
          const connection = open(address, new Connection(alive.size, stage))
          if (connection.isIn) alive.add(connection)
          for (const other of alive) if (other.isClosed) alive.delete(other)
          const leaver = [...alive][leaves]
          if (leaver) {
            alive.delete(leaver)
            shares.release(leaver)
            shares.release(leaver)
          }
          expect(shares.size).toBe(alive.size)
          expect(shares.size).toBeLessThanOrEqual(8)
        }
      }),
    )
  })
})
