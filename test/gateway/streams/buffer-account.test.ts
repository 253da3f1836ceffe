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
  heldBytes = 0
  movedBytes = 0
  isEnded = false
  readonly claim: BufferClaim

  constructor(account: BufferAccount) {
    this.claim = new BufferClaim(this, account)
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
