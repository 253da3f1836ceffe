import { expect, it } from 'vitest'
import { EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import { TrafficTotals } from '../../../src/gateway/endpoints/traffic-totals.ts'

const HTTPS = { protocol: 'https', url: 'https://a.test' } as const

it('keeps the sums of endpoints that come and go, not the endpoints', () => {
  const online = new Set<EndpointTraffic>()
  let asked = 0
  const totals = new TrafficTotals((traffic) => {
    asked += 1
    return online.has(traffic)
  })
  for (let n = 0; n < 5_000; n += 1) {
    const traffic = new EndpointTraffic()
    totals.follow(traffic, HTTPS, online.size)
    traffic.requests = 1
  }
  // They were let go of before anybody asked, and in rounds, not each time.
  const before = asked
  expect(totals.byProtocol().get('https')?.requests).toBe(5_000)
  expect(asked - before).toBeLessThanOrEqual(1_001)
  expect(before).toBeLessThan(10_000)
})

it('counts an endpoint once that is changed in its place', () => {
  const online = new Set<EndpointTraffic>()
  const totals = new TrafficTotals((traffic) => online.has(traffic))
  for (let n = 0; n < 1_000; n += 1)
    totals.follow(new EndpointTraffic(), { ...HTTPS, protocol: 'http' }, 0)
  const traffic = new EndpointTraffic()
  totals.follow(traffic, HTTPS, 0)
  traffic.requests = 3
  // It is replaced by itself, and the counters of those that are gone are added up meanwhile.
  totals.follow(traffic, HTTPS, 0)
  online.add(traffic)
  expect(totals.byProtocol().get('https')?.requests).toBe(3)
})
