import { describe, expect, it, onTestFinished } from 'vitest'
import type { ConnectedAgent } from '../../../../src/gateway/endpoints/endpoint.ts'
import { TrafficHistory } from '../../../../src/gateway/resources/devices/traffic-history.ts'
import { agentWithEndpoint } from '../../../helpers/connected-agent.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

const MINUTE = 60_000
const URL = 'https://press-1.site.test'

function recorded() {
  const clock = new ManualClock()
  const sessions: ConnectedAgent[] = []
  const history = new TrafficHistory({ devices: () => [['device', sessions]], clock })
  history.start()
  onTestFinished(() => history.stop())
  const connect = (suffix = '1') => {
    const { agent, traffic } = agentWithEndpoint(suffix)
    sessions.push(agent)
    return traffic
  }
  const newest = (count: number) => history.of('device', URL)?.requests.slice(-count)
  return { clock, history, sessions, connect, newest, pass: () => clock.advance(MINUTE) }
}

describe('the traffic of an endpoint', () => {
  it('is told minute by minute, the newest last', async () => {
    const { connect, pass, history } = recorded()
    const traffic = connect()
    for (const [requests, errors, bytesIn, bytesOut] of [
      [2, 1, 10, 100],
      [0, 0, 0, 0],
      [3, 2, 0, 7],
    ] as const) {
      traffic.requests += requests
      traffic.refused += errors
      traffic.bytesIn += bytesIn
      traffic.bytesOut += bytesOut
      await pass()
    }
    const { requests, errors, bytes } = history.of('device', URL) ?? {}
    expect(requests).toHaveLength(60)
    expect(requests?.slice(-4)).toEqual([0, 2, 0, 3])
    expect(errors?.slice(-4)).toEqual([0, 1, 0, 2])
    expect(bytes?.slice(-4)).toEqual([0, 110, 0, 7])
    expect(history.of('another', URL)).toBeUndefined()
  })

  it('goes on over a new session, whose counters began anew', async () => {
    const { connect, pass, sessions, newest } = recorded()
    connect().requests = 5
    await pass()
    sessions.pop()
    // As many as before are not none.
    connect().requests = 5
    await pass()
    expect(newest(2)).toEqual([5, 5])
  })

  it('is counted once where two sessions of a device have the endpoint at once', async () => {
    const { connect, pass, newest } = recorded()
    const one = connect()
    const other = connect()
    one.requests = 4
    other.requests = 3
    await pass()
    await pass()
    one.requests = 5
    await pass()
    expect(newest(3)).toEqual([7, 0, 1])
  })

  it('counts what came by two sessions of a device apart', async () => {
    const { connect, pass, history } = recorded()
    connect().requests = 1
    connect('2').requests = 4
    await pass()
    expect(history.of('device', URL)?.requests.at(-1)).toBe(1)
    expect(history.of('device', 'https://press-2.site.test')?.requests.at(-1)).toBe(4)
  })

  it('is nothing where there was none, and none any more an hour later', async () => {
    const { connect, pass, newest } = recorded()
    const traffic = connect()
    await pass()
    expect(newest(1)).toBeUndefined()
    traffic.requests = 1
    await pass()
    for (let minute = 1; minute < 60; minute += 1) await pass()
    expect(newest(60)?.[0]).toBe(1)
    await pass()
    expect(newest(1)).toBeUndefined()
    // What had been counted before is not counted again.
    await pass()
    expect(newest(1)).toBeUndefined()
    traffic.requests = 3
    await pass()
    expect(newest(2)).toEqual([0, 2])
  })

  it('is looked at no more when it was stopped', async () => {
    const { connect, pass, history, newest } = recorded()
    const traffic = connect()
    traffic.requests = 1
    await pass()
    history.stop()
    traffic.requests = 2
    await pass()
    expect(newest(2)).toEqual([0, 1])
  })
})
