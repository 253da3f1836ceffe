import { describe, expect, it } from 'vitest'
import { isEndpointFull, isWithinShare, mayWait } from '../../../src/gateway/streams/shares.ts'

const STREAMS = 448
const RESERVED = 16
const ALONE = { client: true, endpoint: true }

/** Streams that so many endpoints and clients get, each of which takes all that it may, in turns. */
function fill(endpoints: number, clientsPerEndpoint: number) {
  const held = Array.from({ length: endpoints }, () => Array<number>(clientsPerEndpoint).fill(0))
  let available = STREAMS
  for (let before = -1; before !== available; ) {
    before = available
    for (let at = 0; at < clientsPerEndpoint; at += 1) {
      for (const clients of held) {
        const ofEndpoint = clients.reduce((sum, more) => sum + more, 0)
        const count = clients[at] ?? 0
        if (!isWithinShare({ available, reserved: RESERVED }, ofEndpoint, count)) continue
        clients[at] = count + 1
        available -= 1
      }
    }
  }
  return { held: held.map((clients) => clients.reduce((sum, more) => sum + more, 0)), available }
}

describe('isWithinShare', () => {
  it.each([
    ['one client', 1, 1, 288, 160],
    ['six clients of one endpoint', 1, 6, 346, 102],
    ['448 clients of one endpoint', 1, 448, 346, 102],
    ['a client each of two endpoints', 2, 1, 173, 102],
    ['20 crowded endpoints', 20, 50, 22, 20],
  ])('leaves something to others: %s', (_who, endpoints, clients, each, left) => {
    const { held, available } = fill(endpoints, clients)
    expect(Math.max(...held)).toBeLessThanOrEqual(each)
    expect(Math.min(...held)).toBeGreaterThanOrEqual(each - 1)
    expect(available).toBeGreaterThanOrEqual(left)
    // The next endpoint and the next client get a stream.
    expect(isWithinShare({ available, reserved: RESERVED }, 0, 0)).toBe(true)
  })

  it('gives a client that is alone all but what is reserved', () => {
    for (const held of [0, 288, 431]) {
      const supply = { available: STREAMS - held, reserved: RESERVED }
      expect(isWithinShare(supply, held, held, ALONE)).toBe(true)
    }
    const supply = { available: RESERVED, reserved: RESERVED }
    expect(isWithinShare(supply, 432, 432, ALONE)).toBe(false)
    expect(isWithinShare({ available: 0, reserved: 0 }, 0, 0, ALONE)).toBe(false)
  })

  it('lets who has its share to an endpoint that holds few, down to half of what is reserved', () => {
    const supply = { available: RESERVED, reserved: RESERVED }
    expect(isWithinShare(supply, 432, 432)).toBe(false)
    expect(isWithinShare(supply, 1, 432)).toBe(true)
    expect(isWithinShare(supply, 2, 432)).toBe(false)
    expect(isWithinShare({ ...supply, available: 9 }, 0, 432)).toBe(true)
    expect(isWithinShare({ ...supply, available: 8 }, 0, 432)).toBe(false)
  })

  it('keeps half of what is reserved for clients that hold few, whatever the endpoint holds', () => {
    const supply = { available: RESERVED, reserved: RESERVED }
    const alone = { client: false, endpoint: true }
    const may = (held: number) => isWithinShare(supply, 432, held, alone)
    expect([0, 1, 2].map(may)).toEqual([true, true, false])
    // While others wait at another endpoint, they go first.
    expect(isWithinShare(supply, 432, 0)).toBe(false)
    const rest = { ...supply, available: 8 }
    expect(isWithinShare(rest, 432, 0, alone)).toBe(false)
    expect(isWithinShare(rest, 1, 0)).toBe(true)
  })

  it('gives an endpoint no more than four times what is left, a client twice', () => {
    const supply = { available: RESERVED + 10, reserved: RESERVED }
    expect([39, 40].map((held) => isWithinShare(supply, held, 0))).toEqual([true, false])
    expect([19, 20].map((held) => isWithinShare(supply, 5, held))).toEqual([true, false])
  })

  it('keeps the last streams for endpoints that hold few', () => {
    for (let available = 1; available <= RESERVED; available += 1) {
      expect(isWithinShare({ available, reserved: RESERVED }, 2, 0)).toBe(false)
      expect(isWithinShare({ available, reserved: RESERVED }, 1, 0)).toBe(true)
    }
    expect(isWithinShare({ available: 0, reserved: RESERVED }, 0, 0)).toBe(false)
  })
})

describe('isEndpointFull', () => {
  it('says whether it is the endpoint that has its share', () => {
    expect(isEndpointFull({ available: 102, reserved: RESERVED }, 343)).toBe(false)
    expect(isEndpointFull({ available: 102, reserved: RESERVED }, 344)).toBe(true)
    expect(isEndpointFull({ available: 16, reserved: RESERVED }, 344)).toBe(false)
  })
})

describe('mayWait', () => {
  it('leaves half of the line to others, and a third to other endpoints', () => {
    const places = 4_096
    let [client, all] = [0, 0]
    while (mayWait(places - client, client, client)) client += 1
    while (mayWait(places - all, all, 0)) all += 1
    expect([client, all]).toEqual([2_048, 2_731])
    expect(mayWait(0, 0, 0)).toBe(false)
    expect([19, 20].map((waiting) => mayWait(10, waiting, 0))).toEqual([true, false])
  })
})
