import { describe, expect, it } from 'vitest'
import { EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import { MAX_NAMED } from '../../../src/gateway/endpoints/request-series.ts'
import { DURATION_BOUNDS, RequestStats } from '../../../src/gateway/endpoints/request-stats.ts'
import { TrafficTotals } from '../../../src/gateway/endpoints/traffic-totals.ts'

/** Endpoints that come and go, as a registry tells them. */
function endpoints() {
  const online = new Set<EndpointTraffic>()
  const totals = new TrafficTotals((traffic) => online.has(traffic))
  return {
    come(url: string): EndpointTraffic {
      const traffic = new EndpointTraffic()
      totals.follow(traffic, { protocol: 'https', url }, online.size)
      online.add(traffic)
      return traffic
    },
    go: (traffic: EndpointTraffic) => void online.delete(traffic),
    /** Requests with status 200 by URL. */
    read: () => new Map([...totals.byUrl()].map(([url, { classes }]) => [url, classes[2]])),
  }
}

describe('RequestStats', () => {
  it('counts by class, and by duration what had a response', () => {
    const stats = new RequestStats()
    const ended = [0, 101, 200, 204, 302, 404, 502, 599, 600, 999]
    for (const status of ended) stats.count(status, 20)
    expect(stats.classes).toEqual([3, 1, 2, 1, 1, 2])
    expect(stats.buckets).toEqual([0, 6, ...Array(9).fill(0)])
    expect(stats.sumSeconds).toBeCloseTo(0.12)
  })

  it('counts a duration in the first bucket that is as long', () => {
    const stats = new RequestStats()
    for (const bound of DURATION_BOUNDS) stats.count(200, bound * 1_000)
    stats.count(200, 30_001)
    expect(stats.buckets).toEqual(Array(DURATION_BOUNDS.length + 1).fill(1))
  })
})

describe('the requests of endpoints', () => {
  it('have the URL while one of its endpoints is online, and disappear then', () => {
    const { come, go, read } = endpoints()
    const [first, idle] = [come('https://a.test'), come('https://idle.test')]
    first.countEnd(200, 1)
    expect(read()).toEqual(new Map([['https://a.test', 1]]))
    // The device connects again before its old endpoint is removed.
    const second = come('https://a.test')
    second.countEnd(200, 1)
    expect(read()).toEqual(new Map([['https://a.test', 2]]))
    go(first)
    go(idle)
    expect(read()).toEqual(new Map([['https://a.test', 2]]))
    go(second)
    expect(read()).toEqual(new Map())
  })

  it('lose nothing if the device connects again between two readings', () => {
    const { come, go, read } = endpoints()
    const requests = (traffic: EndpointTraffic, count: number) => {
      for (let n = 0; n < count; n += 1) traffic.countEnd(200, 1)
    }
    const first = come('https://a.test')
    requests(first, 100)
    expect(read().get('https://a.test')).toBe(100)
    requests(first, 50)
    go(first)
    const second = come('https://a.test')
    // Also while the new endpoint has no request.
    expect(read().get('https://a.test')).toBe(150)
    requests(second, 100)
    go(second)
    const third = come('https://a.test')
    requests(third, 10)
    expect(read()).toEqual(new Map([['https://a.test', 260]]))
    // It may be a new endpoint that adds up the removed ones.
    requests(third, 5)
    go(third)
    for (let n = 0; n < 998; n += 1) go(come('https://brief.test'))
    const fourth = come('https://a.test')
    for (let n = 0; n < 10; n += 1) go(come('https://brief.test'))
    requests(fourth, 1)
    expect(read().get('https://a.test')).toBe(266)
  })

  it('wait for the end of what is under way before they disappear', () => {
    const { come, go, read } = endpoints()
    const traffic = come('https://a.test')
    traffic.countBegin()
    traffic.countEnd(200, 1)
    go(traffic)
    expect(read()).toEqual(new Map([['https://a.test', 1]]))
    traffic.active = 0
    expect(read().size).toBe(0)
  })

  it('beyond the limit of URLs are counted together, and never less', () => {
    const { come, go, read } = endpoints()
    const named = Array.from({ length: MAX_NAMED }, (_, n) => come(`https://${n}.test`))
    const others = [come('https://x.test'), come('https://y.test')]
    for (const traffic of [...named, ...others]) traffic.countEnd(200, 1)
    expect(read().size).toBe(MAX_NAMED + 1)
    expect(read().get('other')).toBe(2)
    // A name is free, and is not given to what has counted as another one.
    go(named[0] ?? new EndpointTraffic())
    others[0]?.countEnd(200, 1)
    expect(read().get('other')).toBe(3)
    go(others[1] ?? new EndpointTraffic())
    expect(read().get('other')).toBe(3)
    const late = come('https://late.test')
    late.countEnd(200, 1)
    expect(read().get('https://late.test')).toBe(1)
    expect(read().get('other')).toBe(3)
    // It has come and gone between two readings.
    const brief = come('https://brief.test')
    brief.countEnd(200, 1)
    go(brief)
    expect(read().get('other')).toBe(4)
  })
})
