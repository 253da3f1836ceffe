import { describe, expect, it } from 'vitest'
import type { AgentEndpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts'
import { TcpAddresses } from '../../../src/gateway/endpoints/tcp-addresses.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { serviceCode } from '../../helpers/service-code.ts'

function setUp({ last = 20_007, reserved = [] as string[] } = {}) {
  const clock = new ManualClock()
  const registry = new EndpointRegistry({ clock })
  const addresses = new TcpAddresses({
    range: { host: 'Gateway.Test', first: 20_000, last },
    registry,
    isReserved: (address) => reserved.includes(address),
    clock,
  })
  const add = (host: string, ownerId: string | null) => {
    const endpoint = { type: 'agent', id: `ep_${host}`, protocol: 'tcp', host, ownerId, url: '' }
    registry.add(endpoint as AgentEndpoint)
    return endpoint as AgentEndpoint
  }
  return { clock, registry, addresses, add }
}

const wish = {
  ownerId: 'bot_a',
  credentialId: 'cr_a',
  deviceId: undefined,
  endpointId: '',
  forwardsTo: ':1',
}

describe('TcpAddresses', () => {
  it('reads what it gives, in any case', () => {
    const { addresses } = setUp()
    const drawn = addresses.draw({ ...wish, mayBind: () => true })
    expect(drawn).toMatch(/^gateway\.test:2000[0-7]$/)
    expect(addresses.read(drawn.toUpperCase(), 301)).toBe(drawn)
    for (const other of ['gateway.test:20008', 'gateway.test:19999', 'other.test:20000', 'x']) {
      expect(serviceCode(() => addresses.read(other, 301))).toBe(301)
      expect(addresses.has(other)).toBe(false)
    }
  })

  it('gives no two the same one, although none is bound yet', async () => {
    const { addresses, clock } = setUp()
    const draw = () => addresses.draw({ ...wish, mayBind: () => true })
    expect(new Set(Array.from({ length: 8 }, draw)).size).toBe(8)
    expect(serviceCode(draw)).toBe(15_013)
    await clock.advance(5_000)
    expect(draw()).toMatch(/^gateway\.test:/)
  })

  it('gives the port that was given longest ago only after all others', async () => {
    const { addresses, clock, registry } = setUp({ last: 20_003 })
    const draw = () => addresses.draw({ ...wish, mayBind: () => true })
    const given: string[] = []
    for (let turn = 0; turn < 8; turn += 1) {
      given.push(draw())
      await clock.advance(6_000)
    }
    expect([...registry.all()]).toEqual([])
    expect(new Set(given.slice(0, 4)).size).toBe(4)
    expect(given.slice(4)).toEqual(given.slice(0, 4))
  })

  it('lets an account have a quarter, online or away, beside what is reserved', () => {
    const { addresses, registry, add } = setUp({ reserved: ['gateway.test:20007'] })
    const ask = (ownerId: string | null, port: number) =>
      serviceCode(() => addresses.requireShare(ownerId, `gateway.test:${port}`))
    expect(ask('bot_a', 20_000)).toBeUndefined()
    const first = add('gateway.test:20000', 'bot_a')
    add('gateway.test:20001', 'bot_a')
    expect(ask('bot_a', 20_002)).toBe(15_013)
    expect(ask('bot_a', 20_000)).toBeUndefined()
    expect(ask('bot_a', 20_007)).toBeUndefined()
    expect(ask('bot_b', 20_002)).toBeUndefined()
    expect(ask(null, 20_002)).toBeUndefined()
    registry.suspend(first, { credentialId: 'cr_1', deviceId: undefined })
    expect(ask('bot_a', 20_002)).toBe(15_013)
    registry.remove(add('gateway.test:20003', null))
    expect(ask('bot_a', 20_000)).toBeUndefined()
  })
})
