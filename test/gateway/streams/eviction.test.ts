import { describe, expect, it } from 'vitest'
import { chooseEvictions } from '../../../src/gateway/streams/eviction.ts'
import type { Pace, ProxyStream } from '../../../src/gateway/streams/proxy-stream.ts'
import { ClientHolding, Holding } from '../../../src/gateway/streams/shares.ts'
import type { SlotUser, Waiting } from '../../../src/gateway/streams/waiting-line.ts'

const LEAST_RATE = 16_000
const SLOW: Pace = { rate: 100, isHeldUp: true }
const QUIET: Pace = { rate: 0, isHeldUp: false }
const FAST: Pace = { rate: LEAST_RATE, isHeldUp: true }
const YOUNG: Pace = { rate: undefined, isHeldUp: true }

interface Named extends ProxyStream {
  readonly name: string
}

/** An endpoint whose streams are as they are told: the choice looks at nothing else. */
class Endpoint {
  readonly holding = new Holding()
  readonly busy: Named[] = []

  hold(client: ClientHolding, ...paces: Pace[]): this {
    for (const pace of paces) {
      const name = `${client.network}${this.busy.length}`
      this.busy.push({ name, client, user: { pace } } as unknown as Named)
      this.holding.held += 1
      client.held += 1
    }
    return this
  }
}

function choose(
  endpoints: Endpoint[],
  waitsFor: Endpoint,
  client: ClientHolding,
  { most = 1, isEndpointFull = false, leastRate = LEAST_RATE } = {},
): string[] {
  const chosen = chooseEvictions({
    users: endpoints as unknown as SlotUser[],
    waiting: { user: waitsFor, clientHolding: client } as unknown as Waiting,
    isEndpointFull,
    leastRate,
    most,
  })
  return chosen.map((stream) => (stream as Named).name)
}

const clients = () => ['a', 'b', 'w'].map((network) => new ClientHolding(network))
const times = (count: number, pace: Pace): Pace[] => Array.from({ length: count }, () => pace)

describe('chooseEvictions', () => {
  it('takes the slowest reader of the client that holds most', () => {
    const [a, b, w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const endpoint = new Endpoint()
      .hold(a, SLOW, { rate: 50, isHeldUp: true }, SLOW)
      .hold(b, { rate: 1, isHeldUp: true }, SLOW)
    expect(choose([endpoint], new Endpoint(), w)).toEqual(['a1'])
  })

  it('takes readers before those that wait for the device', () => {
    const [a, b, w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const endpoint = new Endpoint().hold(a, ...times(5, QUIET)).hold(b, SLOW)
    expect(choose([endpoint], new Endpoint(), w, { most: 2 })).toEqual(['b5', 'a0'])
  })

  it.each([
    ['who moves enough', times(9, FAST)],
    ['who is too young to say', times(9, YOUNG)],
    ['a WebSocket of a client that has no other', [QUIET]],
  ])('leaves alone %s', (_who, paces) => {
    const [a, , w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    expect(choose([new Endpoint().hold(a, ...paces)], new Endpoint(), w, { most: 9 })).toEqual([])
  })

  it('leaves a WebSocket alone whose client has no other, however crowded its endpoint is', () => {
    const [a, b, w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const crowded = new Endpoint().hold(a, QUIET).hold(b, QUIET).hold(new ClientHolding('c'), QUIET)
    expect(choose([crowded], new Endpoint(), w)).toEqual([])
    crowded.hold(b, QUIET)
    expect(choose([crowded], new Endpoint(), w)).toEqual(['b1'])
  })

  it('leaves everybody alone without a least rate', () => {
    const [a, , w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const endpoint = new Endpoint().hold(a, ...times(9, SLOW))
    expect(choose([endpoint], new Endpoint(), w, { leastRate: 0 })).toEqual([])
  })

  it('evens out, and does not let equals drive each other out', () => {
    const [a, b, w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const endpoint = new Endpoint().hold(a, ...times(6, SLOW)).hold(w, ...times(2, SLOW))
    expect(choose([endpoint], endpoint, w, { most: 8 })).toHaveLength(2)
    const even = new Endpoint().hold(b, ...times(4, SLOW)).hold(w, ...times(3, SLOW))
    expect(choose([even], even, w, { most: 8 })).toEqual([])
  })

  it('ends a slow reader that has but one for somebody who has none', () => {
    const [a, b, w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const endpoint = new Endpoint().hold(a, SLOW).hold(b, SLOW)
    expect(choose([endpoint], endpoint, w, { most: 8 })).toHaveLength(1)
  })

  it('takes from an endpoint that has more, for the same client too', () => {
    const [a] = clients() as [ClientHolding]
    const crowded = new Endpoint().hold(a, ...times(9, QUIET))
    const calm = new Endpoint()
    expect(choose([crowded, calm], calm, a)).toEqual(['a0'])
    expect(choose([crowded, calm], crowded, a)).toEqual([])
  })

  it('evens endpoints out, and does not let equals drive each other out', () => {
    const [a, b] = clients() as [ClientHolding, ClientHolding]
    const [crowded, calm] = [new Endpoint().hold(a, ...times(9, QUIET)), new Endpoint()]
    expect(choose([crowded, calm], calm, a, { most: 9 })).toHaveLength(4)
    const two = new Endpoint().hold(b, QUIET, QUIET)
    expect(choose([two], new Endpoint(), b)).toHaveLength(1)
    expect(choose([two], new Endpoint().hold(b, QUIET), b)).toEqual([])
  })

  it('takes in turns from clients that hold the same', () => {
    const [a, b, w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const endpoint = new Endpoint().hold(a, ...times(4, QUIET)).hold(b, ...times(4, QUIET))
    expect(choose([endpoint], endpoint, w, { most: 8 })).toEqual(['a0', 'b4'])
  })

  it('takes from the endpoint alone that has its share', () => {
    const [a, b, w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const full = new Endpoint().hold(a, ...times(3, SLOW))
    const other = new Endpoint().hold(b, ...times(9, SLOW))
    expect(choose([full, other], full, w, { isEndpointFull: true })).toEqual(['a0'])
    expect(choose([full, other], full, w)).toEqual(['b0'])
  })

  it('ends no more requests of a client whose streams do not come free', () => {
    const [a, , w] = clients() as [ClientHolding, ClientHolding, ClientHolding]
    const endpoint = new Endpoint().hold(a, ...times(9, QUIET))
    a.held += 4
    expect(choose([endpoint], new Endpoint(), w)).toEqual([])
    a.held -= 1
    expect(choose([endpoint], new Endpoint(), w)).toEqual(['a0'])
  })
})
