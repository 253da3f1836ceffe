import { describe, expect, it } from 'vitest'
import type { PolicyPlace } from '../../../src/gateway/endpoints/endpoint-policies.ts'
import { MovedLimits } from '../../../src/gateway/site/moved-limits.ts'
import { Questions } from '../../../src/gateway/site/questions.ts'
import { dumpText } from '../../../src/policy/limit/dump-text.ts'
import { RateLimiter } from '../../../src/policy/limit/rate-limiter.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const LIMIT = { capacity: 1, windowMs: 3_600_000 }
const MAX_BYTES = 4_194_304
/** As much as one name may bring, of nobody in particular. */
const MUCH = dumpText({
  key: Buffer.alloc(8),
  rows: [new Int32Array(0), new Int32Array(0), new Int32Array(MAX_BYTES / 4)],
})

function openLimits() {
  const clock = new ManualClock()
  const { log } = captureLog()
  const questions = new Questions({ links: { find: () => undefined }, clock, log })
  const limits = new MovedLimits({ questions, clock, log })
  const place = (host: string): PolicyPlace => ({ ownerId: null, protocol: 'http', host })
  const arrive = (host: string, dump: { key: string; rows: readonly string[] }) =>
    questions.answer({
      ask: 'limits',
      of: { ...place(host), member: '', limits: [{ state: 'visits', ...LIMIT, ...dump }] },
    })
  const used = () => {
    const limiter = new RateLimiter({ ...LIMIT, clock })
    limiter.take('visitor', '198.51.100.1')
    const dump = limiter.dump(MAX_BYTES)
    if (!dump) throw new Error('nothing was counted')
    return dumpText(dump)
  }
  /** Whether the next home of a name goes on with what has arrived for it. */
  const goesOn = (host: string) => {
    const limiter = new RateLimiter({ ...LIMIT, clock })
    limits.take(place(host), new Map([['visits', limiter]]))
    return limiter.take('visitor', '198.51.100.1') > 0
  }
  return { clock, limits, arrive, used, goesOn, place }
}

describe('MovedLimits', () => {
  it('passes on once what has arrived within a minute', async () => {
    const { clock, arrive, used, goesOn } = openLimits()
    await arrive('a.example', used())
    await clock.advance(60_000)
    expect(goesOn('a.example')).toBe(true)
    expect(goesOn('a.example')).toBe(false)
  })

  it('drops what nobody has come for within a minute', async () => {
    const { clock, limits, arrive, used, goesOn } = openLimits()
    await arrive('early.example', used())
    await clock.advance(30_000)
    await arrive('late.example', used())
    await clock.advance(30_001)
    expect(goesOn('early.example')).toBe(false)
    await arrive('early.example', used())
    await clock.advance(30_000)
    expect(limits.size).toBe(2)
    limits.forget()
    expect(limits.size).toBe(1)
    expect(goesOn('early.example')).toBe(true)
  })

  it('keeps 64 MiB of all names together, the newest ones', async () => {
    const { limits, arrive, used, goesOn, place } = openLimits()
    await arrive('first.example', used())
    for (let n = 0; n < 15; n += 1) await arrive(`much${n}.example`, MUCH)
    // The same name again is no more than before, and what was taken is gone.
    await arrive('much0.example', MUCH)
    limits.take(place('much1.example'), new Map())
    await arrive('other.example', MUCH)
    expect(limits.size).toBe(16)
    expect(goesOn('first.example')).toBe(true)
    await arrive('second.example', used())
    await arrive('much15.example', MUCH)
    expect(limits.size).toBe(16)
    await arrive('much16.example', MUCH)
    expect(limits.size).toBe(16)
    expect(goesOn('second.example')).toBe(true)
  })
})
