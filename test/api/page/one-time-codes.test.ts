import { describe, expect, it } from 'vitest'
import { CODE_LIFE_MS, MAX_CODES, OneTimeCodes } from '../../../src/api/page/one-time-codes.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

function start() {
  const clock = new ManualClock()
  return { clock, codes: new OneTimeCodes(clock) }
}

describe('OneTimeCodes', () => {
  it('makes a code that is good once', () => {
    const { codes } = start()
    const code = codes.create().code.reveal()
    expect(code).toMatch(/^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}$/)
    expect(codes.redeem('0000-0000-0000')).toBe(false)
    expect(codes.redeem(code)).toBe(true)
    expect(codes.redeem(code)).toBe(false)
  })

  it('takes a code as people type it', () => {
    const { codes } = start()
    const typed = (code: string) =>
      ` ${code.toLowerCase().replaceAll('-', ' ').replaceAll('0', 'o').replaceAll('1', 'l')} `
    for (let n = 0; n < 50; n += 1) {
      expect(codes.redeem(typed(codes.create().code.reveal()))).toBe(true)
    }
  })

  it('ends a code after five minutes, whatever the clock on the wall says', async () => {
    const { codes, clock } = start()
    const early = codes.create()
    expect(early.expiresAt).toBe(clock.now() + CODE_LIFE_MS)
    const late = codes.create()
    await clock.advance(CODE_LIFE_MS - 1)
    expect(codes.redeem(early.code.reveal())).toBe(true)
    await clock.advance(1)
    expect(codes.redeem(late.code.reveal())).toBe(false)
  })

  it('holds a bounded number: the oldest makes room', () => {
    const { codes } = start()
    const all = Array.from({ length: MAX_CODES + 1 }, () => codes.create().code.reveal())
    expect(all.map((code) => codes.redeem(code))).toEqual(all.map((_code, at) => at > 0))
  })

  it('makes another one each time', () => {
    const { codes } = start()
    const all = Array.from({ length: 200 }, () => codes.create().code.reveal())
    expect(new Set(all).size).toBe(200)
  })
})
