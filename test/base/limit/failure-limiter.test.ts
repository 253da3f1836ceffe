import { describe, expect, it } from 'vitest'
import { FailureLimiter } from '../../../src/base/limit/failure-limiter.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

describe('FailureLimiter', () => {
  it('slows all clients down together when many of them fail', () => {
    const failures = new FailureLimiter(new ManualClock())
    const waits = Array.from({ length: 101 }, (_, n) => failures.take(`client ${n}`))
    expect(waits.slice(0, 100).every((wait) => wait === 0)).toBe(true)
    expect(waits[100]).toBeGreaterThan(0)
  })

  it('lets as many through at three gateways as at one', () => {
    const counted = (gateways: number) => {
      const failures = new FailureLimiter(new ManualClock(), () => gateways)
      const waits = Array.from({ length: 20 }, () => failures.take('192.0.2.1'))
      return waits.filter((wait) => wait === 0).length
    }
    expect([counted(1), counted(2), counted(3)]).toEqual([10, 5, 4])
  })

  it('does not let one client use up what all share', () => {
    const failures = new FailureLimiter(new ManualClock())
    for (let n = 0; n < 1_000; n += 1) failures.take('loud')
    expect(failures.take('quiet')).toBe(0)
  })

  it('forgets who failed longest ago beyond a thousand clients', async () => {
    const clock = new ManualClock()
    const failures = new FailureLimiter(clock)
    for (let n = 0; n < 10; n += 1) failures.take('first')
    expect(failures.take('first')).toBeGreaterThan(0)
    for (let n = 0; n < 1_000; n += 1) failures.take(`client ${n}`)
    await clock.advance(1_000)
    expect(failures.take('first')).toBe(0)
  })

  it('takes the /64 of an IPv6 address for one client, and IPv4 within IPv6 for itself', () => {
    const failures = new FailureLimiter(new ManualClock())
    for (let n = 0; n < 10; n += 1) failures.take(`2001:db8::${n}`)
    for (let n = 0; n < 10; n += 1) failures.take('::ffff:192.0.2.1')
    expect(failures.take('2001:db8::ffff')).toBe(5_000)
    expect(failures.take('192.0.2.1')).toBe(5_000)
    expect([failures.take('2001:db8:0:1::'), failures.take('192.0.2.2')]).toEqual([0, 0])
  })
})
