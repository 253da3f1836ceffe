import { describe, expect, it } from 'vitest'
import type { AddressTables } from '../../../src/policy/exchange/address-tables.ts'
import {
  compileExpression,
  createExchange,
  evaluate,
  onRequest,
  PolicyBench,
  replyOf,
} from '../../helpers/policy-exchange.ts'

const registered = {
  city: '',
  continent: '',
  country: 'France',
  countryCode: 'FR',
  isEu: true,
  metroCode: '',
  subdivision: '',
  timezone: '',
}
const location = {
  ...registered,
  city: 'Berlin',
  country: 'Germany',
  continent: 'Europe',
  countryCode: 'DE',
  metroCode: '7',
  subdivision: 'Land Berlin',
  timezone: 'Europe/Berlin',
  latitude: '52.5',
  longitude: '13.25',
  radius: '20',
  postalCode: '10117',
  registered,
}

const tables: AddressTables = {
  locationOf: (ip) => ({ ...location, city: ip }),
  networkOf: () => ({ number: 64_500, organization: 'Example Net' }),
}
const known = { connection: { tables } }
const unknown = {
  connection: { tables: { locationOf: () => undefined, networkOf: () => undefined } },
}

describe('variables of addresses', () => {
  it.each([
    ['conn.geo.city', '203.0.113.9'],
    ['conn.client_ip.geo.location.city', '203.0.113.9'],
    ['conn.server_ip.geo.location.city', '192.0.2.1'],
    ["conn.geo.country_code == 'DE'", true],
    ["conn.Geo.CountryCode == 'DE'", true],
    ["conn.geo.country_code in ['DE', 'AT']", true],
    ['conn.geo.subdivision', 'Land Berlin'],
    ['conn.geo.latitude', '52.5'],
    ['conn.geo.longitude', '13.25'],
    ['conn.geo.radius', '20'],
    ['conn.client_ip.geo.location.continent', 'Europe'],
    ['conn.client_ip.geo.location.is_eu', true],
    ['conn.client_ip.geo.location.metro_code', '7'],
    ['conn.client_ip.geo.location.timezone', 'Europe/Berlin'],
    ['conn.client_ip.geo.location.postal_code', '10117'],
    ['conn.client_ip.geo.registered_location.country', 'France'],
    ['conn.client_ip.as.number == 64500', true],
    ['conn.server_ip.as.organization', 'Example Net'],
    ['has(conn.geo.country_code)', true],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, known)).toEqual(value)
  })

  it('are looked up, and paid for, once a request for each address', () => {
    const asked: string[] = []
    const counting: AddressTables = {
      ...tables,
      locationOf: (ip) => {
        asked.push(ip)
        return location
      },
    }
    const exchange = createExchange({ connection: { tables: counting } })
    const spent = (source: string) => {
      const before = exchange.account.spent
      compileExpression(source).evaluate(exchange)
      return exchange.account.spent - before
    }
    const first = spent("conn.geo.country_code == 'DE'")
    const again = spent("conn.client_ip.geo.location.country_code == 'DE'")
    expect(asked).toEqual(['203.0.113.9'])
    expect(first).toBeGreaterThan(again + 500)
    expect(spent("conn.server_ip.geo.location.country_code == 'DE'")).toBe(first)
    expect(asked).toEqual(['203.0.113.9', '192.0.2.1'])
  })

  it('are not there while no table can be read: a rule is not passed, and not taken for false', async () => {
    expect(evaluate('has(conn.geo.country_code)', unknown)).toBe(false)
    expect(() => evaluate("conn.geo.country_code == 'DE'", unknown)).toThrow()
    const bench = new PolicyBench(onRequest('deny', undefined, ["conn.geo.country_code == 'KP'"]))
    expect(replyOf((await bench.request(unknown)).outcome)).toMatchObject({
      status: 500,
      errorCode: 'ERR_NGROK_2254',
    })
    expect((await bench.request(known)).outcome.kind).toBe('continue')
  })
})
