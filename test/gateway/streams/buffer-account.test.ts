import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  BufferAccount,
  BufferClaim,
  type BufferHolder,
} from '../../../src/gateway/streams/buffer-account.ts'

const LIMIT = 1_200
const OLD = 10_000

class Holder implements BufferHolder {
  movedBytes = 0
  isEnded = false
  /** How often somebody looked at what it holds. */
  looks = 0
  #heldBytes = 0
  readonly claim: BufferClaim

  constructor(account: BufferAccount) {
    this.claim = new BufferClaim(this, account)
  }

  get heldBytes(): number {
    this.looks += 1
    return this.#heldBytes
  }

  set heldBytes(bytes: number) {
    this.#heldBytes = bytes
  }

  hold(bytes: number, now = 0): this {
    this.heldBytes = bytes
    this.claim.update(now)
    return this
  }

  onOverBudget(): void {
    this.isEnded = true
    this.heldBytes = 0
  }
}

describe('BufferAccount', () => {
  it('ends those for whom it pays least, and those alone', () => {
    const gateway = new BufferAccount(LIMIT)
    const [stopped, slow, quick] = [0, 100, 100_000].map((movedBytes) => {
      const holder = new Holder(gateway)
      holder.movedBytes = movedBytes
      return holder.hold(390)
    }) as [Holder, Holder, Holder]
    const last = new Holder(gateway)
    last.movedBytes = 50_000
    last.hold(31, OLD)
    expect([stopped, slow, quick, last].map(({ isEnded }) => isEnded)).toEqual([
      true,
      false,
      false,
      false,
    ])
    expect(gateway.bytes).toBe(390 + 390 + 31)
  })

  it.each([
    [
      'that have moved least',
      [
        [200, 70],
        [200, 10],
        [200, 50],
      ],
      [1, 2],
    ],
    [
      'that hold most for what they have moved',
      [
        [150, 9],
        [300, 9],
        [150, 9],
      ],
      [1],
    ],
    [
      'that pay least, and not those that hold most',
      [
        [300, 900],
        [150, 9],
        [150, 9],
      ],
      [1, 2],
    ],
  ] as const)('ends those first %s', (_who, holds, ended) => {
    const gateway = new BufferAccount(600)
    const holders = holds.map(([held, movedBytes]) => {
      const holder = new Holder(gateway)
      holder.movedBytes = movedBytes
      return holder.hold(held)
    })
    const last = new Holder(gateway)
    last.movedBytes = 1_000_000
    last.hold(126, OLD)
    expect(holders.flatMap(({ isEnded }, at) => (isEnded ? [at] : []))).toEqual(ended)
    expect(last.isEnded).toBe(false)
  })

  it('goes down to seven eighths of its limit, no further', () => {
    const gateway = new BufferAccount(800)
    const [first, second, third] = [101, 100, 600].map((bytes) => new Holder(gateway).hold(bytes))
    expect([first, second, third].map((holder) => holder?.isEnded)).toEqual([true, false, false])
    expect(gateway.bytes).toBe(700)
  })

  it('ends nobody at its limit, nor looks at the others', () => {
    const gateway = new BufferAccount(LIMIT)
    const other = new Holder(gateway).hold(LIMIT - 1)
    const { looks } = other
    new Holder(gateway).hold(1)
    expect([other.looks, other.isEnded, gateway.bytes]).toEqual([looks, false, LIMIT])
  })

  it('ends nobody when it comes down to its limit by looking', () => {
    const gateway = new BufferAccount(LIMIT)
    const relieved = new Holder(gateway).hold(LIMIT)
    relieved.heldBytes = 200
    const other = new Holder(gateway).hold(1_000, OLD)
    expect([relieved.isEnded, other.isEnded, gateway.bytes]).toEqual([false, false, LIMIT])
  })

  it('ends nobody who holds nothing any more', () => {
    const gateway = new BufferAccount(LIMIT)
    const [done, reader] = [new Holder(gateway), new Holder(gateway)]
    reader.movedBytes = 1_000_000
    done.hold(100)
    reader.hold(500)
    done.heldBytes = 0
    const fresh = new Holder(gateway).hold(701, OLD)
    expect([done.isEnded, reader.isEnded, fresh.isEnded]).toEqual([false, true, false])
  })

  it('looks no more at who has let go of all, has moved with nothing, or has closed', () => {
    const gateway = new BufferAccount(LIMIT)
    const [from, to] = [gateway.forEndpoint(), gateway.forEndpoint()]
    const idle = new Holder(from).hold(100).hold(0).hold(0)
    const moved = new Holder(from)
    moved.claim.moveTo(to, 0)
    const closed = new Holder(from).hold(100)
    closed.claim.close()
    const quiet = [idle, moved, closed]
    const looks = quiet.map((holder) => holder.looks)
    new Holder(gateway).hold(LIMIT + 1)
    expect(quiet.map((holder) => holder.looks)).toEqual(looks)
    expect(gateway.bytes).toBe(0)
  })

  it('counts how long somebody has held something from when it held nothing', () => {
    const gateway = new BufferAccount(LIMIT)
    const [steady, anew] = [new Holder(gateway), new Holder(gateway)]
    steady.movedBytes = 1_000_000
    steady.hold(300).hold(500, OLD)
    anew.hold(300).hold(0, OLD - 1)
    anew.hold(500, OLD)
    new Holder(gateway).hold(201, OLD)
    expect([steady.isEnded, anew.isEnded]).toEqual([true, false])
  })

  it('spares nobody who has held something for two seconds', () => {
    const gateway = new BufferAccount(LIMIT)
    const [slow, quick] = [new Holder(gateway), new Holder(gateway)]
    quick.movedBytes = 1_000_000
    quick.hold(600, OLD - 2_001)
    slow.hold(600, OLD - 2_000)
    new Holder(gateway).hold(1, OLD)
    expect([slow.isEnded, quick.isEnded]).toEqual([true, false])
  })

  it('ends who pays least of those who have just begun, when nobody else holds anything', () => {
    const gateway = new BufferAccount(LIMIT)
    const [quick, slow] = [new Holder(gateway), new Holder(gateway)]
    quick.movedBytes = 1_000_000
    quick.hold(600, OLD)
    slow.hold(600, OLD)
    const last = new Holder(gateway)
    last.movedBytes = 1_000_000
    last.hold(1, OLD)
    expect([quick, slow, last].map(({ isEnded }) => isEnded)).toEqual([false, true, false])
  })

  it('spares who has begun to hold something, as long as others will do', () => {
    const gateway = new BufferAccount(LIMIT)
    const old = new Holder(gateway)
    old.movedBytes = 1_000_000
    old.hold(700)
    const young = new Holder(gateway).hold(600, OLD)
    expect([old.isEnded, young.isEnded]).toEqual([true, false])
    const [first, second] = [new Holder(gateway), new Holder(gateway)]
    first.hold(500, OLD)
    second.hold(500, OLD)
    expect([young, first, second].filter(({ isEnded }) => isEnded)).toHaveLength(1)
  })

  it('looks at what sockets have taken without a word before it ends anybody', () => {
    const gateway = new BufferAccount(LIMIT)
    const relieved = new Holder(gateway).hold(1_000)
    relieved.heldBytes = 100
    const other = new Holder(gateway).hold(1_000, OLD)
    expect([relieved.isEnded, other.isEnded]).toEqual([false, false])
    expect(gateway.bytes).toBe(1_100)
  })

  it('bounds a device and an endpoint below the gateway', () => {
    const gateway = new BufferAccount(LIMIT)
    const device = gateway.forDevice()
    const [first, second] = [device.forEndpoint(), device.forEndpoint()]
    expect([device.limitBytes, first.limitBytes]).toEqual([800, 600])
    const stranger = new Holder(gateway.forDevice().forEndpoint()).hold(300)
    const one = new Holder(first).hold(500)
    new Holder(first).hold(101, OLD)
    expect([one.isEnded, first.bytes]).toEqual([true, 101])
    const two = new Holder(second).hold(500, OLD)
    const three = new Holder(first).hold(250, OLD)
    expect([two.isEnded, three.isEnded].filter(Boolean)).toHaveLength(1)
    expect(device.bytes).toBeLessThanOrEqual(800)
    expect(stranger.isEnded).toBe(false)
  })

  it('takes along what moves to another account', () => {
    const gateway = new BufferAccount(LIMIT)
    const [from, to] = [gateway.forEndpoint(), gateway.forEndpoint()]
    const holder = new Holder(from).hold(200)
    holder.claim.moveTo(to, 0)
    expect([from.bytes, to.bytes, gateway.bytes]).toEqual([0, 200, 200])
    holder.claim.close()
    holder.hold(300)
    expect([to.bytes, gateway.bytes]).toEqual([0, 0])
  })

  it('ends somebody when what moves to an account is too much for it', () => {
    const gateway = new BufferAccount(LIMIT)
    const [from, to] = [gateway.forEndpoint(), gateway.forEndpoint()]
    const there = new Holder(to).hold(400)
    const comes = new Holder(from).hold(300)
    comes.movedBytes = 1_000
    comes.claim.moveTo(to, OLD)
    expect([there.isEnded, comes.isEnded, to.bytes]).toEqual([true, false, 300])
  })

  it('is never above a limit, and always the sum of what is held', () => {
    const steps = fc.array(fc.tuple(fc.nat(11), fc.nat(700), fc.nat(9), fc.boolean()))
    fc.assert(
      fc.property(steps, (changes) => {
        const gateway = new BufferAccount(LIMIT)
        const devices = [gateway.forDevice(), gateway.forDevice()]
        const endpoints = devices.flatMap((device) => [device.forEndpoint(), device.forEndpoint()])
        const at = (index: number) => endpoints[index % endpoints.length] as BufferAccount
        const holders = Array.from({ length: 12 }, (_, index) => new Holder(at(index)))
        let now = 0
        for (const [index, bytes, seconds, moves] of changes) {
          now += seconds * 1_000
          const holder = holders[index] as Holder
          holder.movedBytes += bytes
          if (moves) holder.claim.moveTo(at(bytes), now)
          if (!holder.isEnded) holder.hold(bytes, now)
          for (const account of [gateway, ...devices, ...endpoints]) {
            const parts = holders.filter(({ claim }) => claim.account.isPartOf(account))
            const held = parts.reduce((sum, { heldBytes }) => sum + heldBytes, 0)
            expect(account.bytes).toBe(held)
            expect(account.bytes).toBeLessThanOrEqual(account.limitBytes)
          }
        }
      }),
    )
  })
})
