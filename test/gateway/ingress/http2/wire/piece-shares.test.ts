import { describe, expect, it } from 'vitest'
import {
  PIECE_LIMITS,
  PieceShares,
} from '../../../../../src/gateway/ingress/http2/wire/piece-shares.ts'

const { pieces, piecesPerSecond } = PIECE_LIMITS

describe('the shares of tiny pieces', () => {
  it('let a client send some at once, and as many again as time pays for', () => {
    const shares = new PieceShares()
    expect(shares.charge('a', pieces, 0)).toBe(0)
    expect(shares.charge('a', piecesPerSecond, 0)).toBe(1_000)
    expect(shares.restMs('a', 400)).toBeCloseTo(600)
    expect(shares.restMs('a', 1_000)).toBe(0)
    expect(shares.charge('b', 1, 0)).toBe(0)
  })

  it('save nothing for later', () => {
    const shares = new PieceShares()
    shares.charge('a', 1, 0)
    shares.restMs('a', 60_000)
    expect(shares.charge('a', pieces + piecesPerSecond, 60_000)).toBe(1_000)
  })

  it('are smaller while many clients rest', () => {
    const shares = new PieceShares()
    for (let n = 0; n < 8; n += 1) shares.rest(`client ${n}`)
    shares.rest('client 0')
    expect(shares.charge('a', pieces + piecesPerSecond, 0)).toBe(2_000)
    for (let n = 0; n < 8; n += 1) shares.wake(`client ${n}`)
    expect(shares.restMs('a', 0)).toBe(1_000)
  })

  it('let nobody rest for less than 10 ms or more than five seconds at a time', () => {
    expect(new PieceShares().charge('a', pieces + 1, 0)).toBe(10)
    expect(new PieceShares().charge('a', 100 * piecesPerSecond, 0)).toBe(5_000)
  })
})
