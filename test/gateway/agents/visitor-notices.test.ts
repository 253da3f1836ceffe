import { describe, expect, it, onTestFinished } from 'vitest'
import { policyWarningsIn } from '../../../src/agent/sessions/gateway-notice.ts'
import { visitorReportsIn } from '../../../src/agent/upstreams/upstream-state.ts'
import { VisitorNotices } from '../../../src/gateway/agents/visitor-notices.ts'
import { type AgentEndpoint, EndpointTraffic } from '../../../src/gateway/endpoints/endpoint.ts'
import type { VisitorOutcome } from '../../../src/gateway/endpoints/visitor-outcomes.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { Asker, startSlots } from '../../helpers/slots-rig.ts'

interface Told {
  readonly host: string
  readonly state: string
  readonly [counter: string]: unknown
}

function setUp() {
  const clock = new ManualClock()
  const told: Told[][] = []
  const warned: string[] = []
  let fails = false
  const notices = new VisitorNotices({
    clock,
    send: async (notice) => {
      if (fails) throw new Error('no room for a stream')
      const { Version } = notice as { Version: string }
      expect(Buffer.byteLength(JSON.stringify(notice))).toBeLessThanOrEqual(3_000)
      const { visitors } = JSON.parse(Version)['device-agent']
      if (visitors) told.push(visitors)
      else warned.push(Version)
    },
  })
  onTestFinished(() => notices.stop())
  const endpointAt = (host: string, refusedToday: readonly object[] = []) => {
    const streams = { service: undefined }
    const policy = { refusedToday }
    const parts = { host, traffic: new EndpointTraffic(), streams, policy }
    const endpoint = parts as unknown as AgentEndpoint
    notices.watch(endpoint)
    return endpoint
  }
  const visit = ({ traffic }: AgentEndpoint, outcome: VisitorOutcome) => {
    const wait = traffic.outcomes.begin(clock.monotonic())
    traffic.outcomes.end(wait, outcome, clock.monotonic())
  }
  return {
    clock,
    told,
    warned,
    notices,
    endpointAt,
    visit,
    states: () => told.flat().map(({ state }) => state),
    setFailing: (next: boolean) => {
      fails = next
    },
  }
}

describe('VisitorNotices', () => {
  it('tells a change once, with the counts, within seconds', async () => {
    const { clock, told, endpointAt, visit } = setUp()
    const endpoint = endpointAt('a.test')
    visit(endpoint, 'answered')
    await clock.advance(2_000)
    const counts = { answered: 1, abandoned: 0, failed: 0, oldest_wait_ms: 0 }
    expect(told).toEqual([[{ host: 'a.test', state: 'answered', ...counts }]])
    for (let n = 0; n < 100; n += 1) {
      visit(endpoint, 'answered')
      await clock.advance(1_000)
    }
    expect(told).toHaveLength(1)
    for (const outcome of ['garbage', 'unreachable', 'late'] as const) visit(endpoint, outcome)
    visit(endpoint, 'garbage')
    await clock.advance(2_000)
    expect(told[1]).toMatchObject([{ state: 'garbage', answered: 101, failed: 4 }])
  })

  it('says that a service takes no more connections, in a way that older agents read as slow', async () => {
    const { clock, told, notices } = setUp()
    const { createPool, slots, clock: ofSlots } = await startSlots()
    const streams = createPool('ep_a', slots.serviceOf('camera', 1))
    const policy = { refusedToday: [] }
    const parts = { host: 'a.test', traffic: new EndpointTraffic(), streams, policy }
    const endpoint = parts as unknown as AgentEndpoint
    notices.watch(endpoint)
    new Asker(streams, '192.0.2.1').ask().stream?.markSwitched()
    new Asker(streams, '192.0.2.2').ask()
    endpoint.traffic.outcomes.begin(clock.monotonic())
    await ofSlots.advance(5_000)
    await clock.advance(2_000)
    const busy = { connections: 1, streams: 1, waiting: 1 }
    expect(told).toMatchObject([[{ host: 'a.test', state: 'slow', busy }]])
    const [notice] = told
    const text = JSON.stringify({ 'device-agent': { visitors: notice } })
    expect(visitorReportsIn(text).get('a.test')).toMatchObject({ state: 'busy', busy })
  })

  it('tells the first failure at once, and further failures together', async () => {
    const { clock, states, endpointAt, visit } = setUp()
    const endpoint = endpointAt('a.test')
    visit(endpoint, 'answered')
    await clock.advance(10_000)
    for (const outcome of ['unreachable', 'garbage', 'late'] as const) {
      visit(endpoint, outcome)
      await clock.advance(0)
      await clock.advance(200)
      expect(states().at(-1)).toBe('unreachable')
    }
    await clock.advance(2_000)
    expect(states()).toEqual(['answered', 'unreachable', 'garbage'])
  })

  it('tells that a service stopped right after it had answered', async () => {
    const { clock, states, endpointAt, visit } = setUp()
    const endpoint = endpointAt('a.test')
    for (let n = 0; n < 5; n += 1) visit(endpoint, 'answered')
    await clock.advance(0)
    visit(endpoint, 'unreachable')
    await clock.advance(0)
    await clock.advance(200)
    expect(states()).toEqual(['unreachable'])
    visit(endpoint, 'answered')
    await clock.advance(2_000)
    expect(states()).toEqual(['unreachable', 'answered'])
  })

  it('says that visitors wait while they do', async () => {
    const { clock, told, endpointAt } = setUp()
    endpointAt('a.test').traffic.outcomes.begin(clock.monotonic())
    await clock.advance(4_000)
    expect(told).toEqual([])
    await clock.advance(2_000)
    expect(told).toMatchObject([[{ state: 'slow', oldest_wait_ms: expect.any(Number) }]])
  })

  it('tells a trouble that goes on again, and one that nobody meets any more not', async () => {
    const { clock, states, endpointAt, visit } = setUp()
    const endpoint = endpointAt('a.test')
    for (let seconds = 0; seconds < 70; seconds += 1) {
      visit(endpoint, 'garbage')
      await clock.advance(1_000)
    }
    expect(states()).toEqual(['garbage', 'garbage', 'garbage'])
    await clock.advance(600_000)
    expect(states()).toHaveLength(3)
    expect(clock.sleeping).toBe(0)
  })

  it('sends ten notices a minute, and the newest state in the end', async () => {
    const { clock, told, states, endpointAt, visit } = setUp()
    const endpoint = endpointAt('a.test')
    for (let turn = 0; turn < 20; turn += 1) {
      visit(endpoint, turn % 2 === 0 ? 'garbage' : 'answered')
      await clock.advance(2_000)
    }
    expect(told).toHaveLength(10)
    visit(endpoint, 'unreachable')
    await clock.advance(60_000)
    expect(states().at(-1)).toBe('unreachable')
    // The console shows it.
    expect(endpoint.traffic.outcomes.state).toBe('unreachable')
    // The service may be back: the console tells how old this is.
    const ageMs = clock.now() - endpoint.traffic.outcomes.judgedAt
    expect([ageMs > 50_000, ageMs <= 60_000]).toEqual([true, true])
    expect(clock.sleeping).toBe(0)
  })

  it('tells of many endpoints in few notices, and of all of them', async () => {
    const { clock, told, endpointAt, visit } = setUp()
    const label = 'x'.repeat(60)
    const endpoints = Array.from({ length: 40 }, (_, n) =>
      endpointAt(`${n}.${label}.${label}.test`),
    )
    for (const endpoint of endpoints) visit(endpoint, 'answered')
    await clock.advance(20_000)
    expect(new Set(told.flat().map(({ host }) => host)).size).toBe(40)
    expect(told.length).toBeLessThanOrEqual(5)
  })

  it('tells equal warnings about policies once, beside the reports about visitors', async () => {
    const { clock, told, warned, endpointAt, visit } = setUp()
    const problem = (message: string) => [{ severity: 'error', pointer: '', message, code: 'E' }]
    const hosts = Array.from({ length: 40 }, (_, n) => `${n}.${'x'.repeat(20)}.test`)
    const endpoints = hosts.map((host) => endpointAt(host, problem('y'.repeat(400))))
    const different = Array.from({ length: 70 }, (_, n) => `d${n}.test`)
    different.map((host) => endpointAt(host, problem(host.padEnd(500, 'z'))))
    for (let turn = 0; turn < 10; turn += 1) {
      await clock.advance(2_000)
      for (const endpoint of endpoints) visit(endpoint, turn % 2 === 0 ? 'garbage' : 'answered')
    }
    await clock.advance(10_000)
    expect([warned.length, told.length]).toEqual([10, 10])
    const [first] = warned.map((text) => [...policyWarningsIn(text).keys()])
    expect(first).toEqual(expect.arrayContaining(hosts))
    await clock.advance(600_000)
    const names = warned.flatMap((text) => [...policyWarningsIn(text).keys()])
    expect(names.toSorted()).toEqual([...hosts, ...different].toSorted())
  })

  it('tries again when the agent was not told', async () => {
    const { clock, states, endpointAt, visit, setFailing } = setUp()
    const endpoint = endpointAt('a.test')
    setFailing(true)
    visit(endpoint, 'garbage')
    await clock.advance(2_000)
    setFailing(false)
    await clock.advance(2_000)
    expect(states()).toEqual(['garbage'])
  })

  it('says nothing of an endpoint that is gone, and nothing after a stop', async () => {
    const { clock, told, notices, endpointAt, visit } = setUp()
    const gone = endpointAt('gone.test')
    const other = endpointAt('other.test')
    visit(gone, 'garbage')
    notices.unwatch(gone)
    visit(gone, 'garbage')
    await clock.advance(10_000)
    visit(other, 'garbage')
    notices.stop()
    await clock.advance(10_000)
    expect(told).toEqual([])
    expect(clock.sleeping).toBe(0)
  })
})
