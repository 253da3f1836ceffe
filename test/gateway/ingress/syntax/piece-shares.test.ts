import { describe, expect, it } from 'vitest'
import {
  PIECE_LIMITS,
  PieceShares,
  TURN_MS,
} from '../../../../src/gateway/ingress/syntax/piece-shares.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

const { pieces, piecesPerSecond } = PIECE_LIMITS
const nothing = () => {}

function begin() {
  const clock = new ManualClock()
  return { clock, shares: new PieceShares(clock) }
}

describe('the shares of tiny pieces', () => {
  it('let a client send some at once, and as many again as time pays for', async () => {
    const { clock, shares } = begin()
    expect(shares.charge('a', pieces)).toBe(false)
    expect(shares.charge('a', piecesPerSecond)).toBe(true)
    expect(shares.restMs('a')).toBe(1_000)
    await clock.advance(400)
    expect(shares.restMs('a')).toBeCloseTo(600)
    await clock.advance(600)
    expect(shares.restMs('a')).toBe(0)
    expect(shares.charge('b', 1)).toBe(false)
  })

  it('save nothing for later', async () => {
    const { clock, shares } = begin()
    shares.charge('a', 1)
    await clock.advance(60_000)
    shares.charge('a', pieces + piecesPerSecond)
    expect(shares.restMs('a')).toBe(1_000)
  })

  it('are smaller while many clients rest', async () => {
    const { clock, shares } = begin()
    const ends = Array.from({ length: 8 }, (_, n) => shares.rest(`client ${n}`, nothing))
    shares.rest('client 0', nothing)
    shares.charge('a', pieces + piecesPerSecond)
    expect(shares.restMs('a')).toBe(2_000)
    for (const end of ends) end()
    await clock.advance(100)
    expect(shares.restMs('a')).toBeCloseTo(900)
  })

  it('let nobody rest for less than 10 ms or more than five seconds at a time', () => {
    const { shares } = begin()
    shares.charge('a', pieces + 1)
    shares.charge('b', 100 * piecesPerSecond)
    expect([shares.restMs('a'), shares.restMs('b')]).toEqual([10, 5_000])
  })

  it('let connections of a client go on one after the other, and new ones behind them', async () => {
    const { clock, shares } = begin()
    const woken: number[] = []
    shares.charge('a', pieces + piecesPerSecond)
    const ends = [0, 1, 2, 3].map((n) => shares.rest('a', () => woken.push(n)))
    await clock.advance(999)
    expect(woken).toEqual([])
    await clock.advance(1)
    expect(woken).toEqual([0])
    // It costs as much as before.
    expect(shares.charge('a', piecesPerSecond)).toBe(true)
    await clock.advance(999)
    expect(woken).toEqual([0])
    await clock.advance(1)
    expect(woken).toEqual([0, 1])
    // One that has gone does not take a turn.
    ends[2]?.()
    expect(shares.mustRest('a')).toBe(true)
    await clock.advance(TURN_MS + 10)
    expect(woken).toEqual([0, 1, 3])
    expect(shares.mustRest('a')).toBe(false)
  })

  it('stop all suspects of a client at once, and nobody else', () => {
    const { shares } = begin()
    const stopped: string[] = []
    const suspect = (client: string, name: string) =>
      shares.suspect(client, () => {
        stopped.push(name)
        shares.rest(client, nothing)
      })
    suspect('a', 'one')
    suspect('a', 'two')
    suspect('b', 'other')
    const end = suspect('a', 'no longer')
    end()
    expect(shares.charge('a', pieces)).toBe(false)
    expect(stopped).toEqual([])
    expect(shares.charge('a', 1)).toBe(true)
    expect(shares.charge('a', 1)).toBe(true)
    expect(stopped).toEqual(['one', 'two'])
  })
})
