import { describe, expect, it } from 'vitest'
import {
  DisconnectedName,
  type HeldRequest,
} from '../../../src/gateway/endpoints/disconnected-name.ts'
import { HeldRequests } from '../../../src/gateway/endpoints/held-requests.ts'

const nameOf = (host: string) => {
  const facts = { host, ownerId: null, protocol: 'https', isShared: false } as const
  return new DisconnectedName(
    { ...facts, url: `https://${host}`, credentialId: 'cr_a' },
    1_000,
    2_000,
  )
}

function request(network = '192.0.2.1', bytes = 100, told: string[] = []): HeldRequest {
  return { network, bytes, onNameChange: () => told.push(network) }
}

/** How many of `many` requests get a place. */
function fill(
  held: HeldRequests,
  name: DisconnectedName,
  many: number,
  of: (n: number) => HeldRequest,
) {
  return Array.from({ length: many }, (_, n) => held.add(name, of(n))).filter(Boolean).length
}

describe('HeldRequests', () => {
  it('gives one client half of the places, and others of the rest', () => {
    const held = new HeldRequests({ requests: 100 })
    const name = nameOf('a.test')
    expect(fill(held, name, 200, () => request('a'))).toBe(50)
    expect(held.add(name, request('b'))).toBe(true)
    expect(held.size).toBe(51)
  })

  it('gives one name two thirds of the places, whoever asks', () => {
    const held = new HeldRequests({ requests: 99 })
    expect(fill(held, nameOf('a.test'), 200, (n) => request(String(n)))).toBe(66)
    expect(held.add(nameOf('b.test'), request('0'))).toBe(true)
  })

  it('counts what they keep in memory alike', () => {
    const held = new HeldRequests({ bytes: 1_000 })
    const name = nameOf('a.test')
    expect(held.add(name, request('a', 600))).toBe(false)
    expect(fill(held, name, 10, () => request('a', 100))).toBe(4)
    expect(fill(held, name, 10, (n) => request(String(n), 100))).toBe(2)
    expect(held.bytes).toBe(600)
    expect(held.add(nameOf('b.test'), request('c', 100))).toBe(true)
  })

  it('forgets whoever leaves, twice or not', () => {
    const held = new HeldRequests()
    const name = nameOf('a.test')
    const [one, other] = [request(), request()]
    held.add(name, one)
    held.add(name, other)
    held.remove(name, one)
    held.remove(name, one)
    expect([held.size, held.bytes, held.clients, name.waiting.size]).toEqual([1, 100, 1, 1])
    held.remove(name, other)
    expect([held.size, held.bytes, held.clients]).toEqual([0, 0, 0])
  })

  it('tells each of a name once, in the order they came, also who comes back at once', () => {
    const held = new HeldRequests()
    const name = nameOf('a.test')
    const told: string[] = []
    const back: HeldRequest = { ...request('b'), onNameChange: () => void held.add(name, back) }
    for (const it of [request('a', 1, told), back, request('c', 1, told)]) held.add(name, it)
    held.release(name)
    expect(told).toEqual(['a', 'c'])
    expect(held.size).toBe(1)
  })
})
