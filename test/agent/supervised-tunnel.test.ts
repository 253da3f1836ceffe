import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { linkUp, specOf } from '../helpers/agent-in-folder.ts'
import { agentOnFake } from '../helpers/agent-on-fake.ts'
import { eventually } from '../helpers/eventually.ts'
import { gate } from '../helpers/fake-connector.ts'
import { WallClock } from '../helpers/wall-clock.ts'

/** One tunnel online, whose service nobody asks. */
async function online() {
  const clock = new WallClock()
  const upstream = { timeout: 60, health: 'off' } as const
  const on = await agentOnFake({ clock, upstream })
  await on.agent.start()
  await linkUp(on.agent)
  await on.agent.create(specOf('a'))
  const notice = (state: string) => {
    const counts = { answered: 1, abandoned: 0, failed: 0, oldest_wait_ms: 0 }
    const visitors = [{ host: 'a.site.test', state, ...counts }]
    on.connector.last.request.onNotice?.(JSON.stringify({ 'device-agent': { visitors } }))
  }
  return { ...on, clock, notice }
}

describe('the view of a tunnel', () => {
  it('is the same object for everybody who looks while nothing has changed', async () => {
    const { agent } = await online()
    const before = agent.find('a')
    agent.status()
    expect(agent.list()[0]).toBe(before)
    await agent.create(specOf('b'))
    expect(agent.find('a')).toBe(before)
  })

  it('is another one while the link is away, and when it is back', async () => {
    const { agent, connector } = await online()
    const before = agent.find('a')
    const away = gate()
    connector.onConnect = away.wait
    connector.last.lose()
    await eventually(() => expect(agent.find('a').status.reason).toBe('network'))
    expect(before.status.state).toBe('online')
    const waiting = agent.find('a')
    // The link is between two states now, and nothing of it is new.
    expect(agent.find('a')).toBe(waiting)
    away.open()
    await eventually(() => expect(agent.find('a').status.state).toBe('online'))
    expect(agent.find('a').status).not.toHaveProperty('reason')
  })

  it('is another one when visitors tell something of its service', async () => {
    const { agent, notice } = await online()
    const before = agent.find('a')
    notice('slow')
    const slow = agent.find('a')
    expect(slow.status).toMatchObject({ upstream: 'slow', reason: 'upstream' })
    expect(slow.status.visitors).toMatchObject({ state: 'slow', answered: 1 })
    expect(before.status).toMatchObject({ upstream: 'unknown', visitors: undefined })
    notice('answered')
    expect(agent.find('a').status).toMatchObject({ upstream: 'up', visitors: { failed: 0 } })
  })

  it('says since when the condition lasts, while the state lasts longer', async () => {
    const { agent, notice } = await online()
    const before = agent.find('a').status
    await eventually(() => expect(systemClock.now()).toBeGreaterThan(before.conditionSince + 10))
    notice('slow')
    const slow = agent.find('a').status
    expect(slow.since).toBe(before.since)
    expect(slow.conditionSince).toBeGreaterThan(before.conditionSince)
    notice('slow')
    expect(agent.find('a').status.conditionSince).toBe(slow.conditionSince)
  })

  it('is another one when its row says something else', async () => {
    const { agent } = await online()
    const { id } = agent.find('a')
    await agent.replace('a.site.test', specOf('a', 'localhost:8009'))
    expect(agent.find(id).spec.forwardsTo).toBe('localhost:8009')
  })

  it('is another one when the clock of the device is set', async () => {
    const { agent, clock } = await online()
    const { since } = agent.find('a').status
    clock.aheadMs = 400 * 86_400_000
    const moved = agent.find('a').status.since - since - clock.aheadMs
    // Two clocks are read one after the other.
    expect(Math.abs(moved)).toBeLessThan(1_000)
    clock.aheadMs = 0
    expect(agent.find('a').status.since - systemClock.now()).toBeLessThan(1_000)
  })

  it('is another one when the way to the public address breaks, and is well again', async () => {
    const own = { domain: 'localhost', socketPath: '/run/api.sock' }
    const { agent, setReachable } = await agentOnFake({ own })
    await agent.start()
    await linkUp(agent)
    await agent.create(specOf('a'))
    await eventually(() => expect(agent.find('a').status.reachable).toBe('yes'))
    setReachable(false)
    await eventually(() => expect(agent.find('a').status.reachable).not.toBe('yes'))
    setReachable(true)
    await eventually(() => expect(agent.find('a').status.reachable).toBe('yes'))
  })
})
