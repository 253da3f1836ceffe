import { describe, expect, it } from 'vitest'
import { FAST_TIMINGS, linkUp } from '../helpers/agent-in-folder.ts'
import { agentOnGateway, carriesTraffic, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'

const NAMES = ['a', 'b', 'c'] as const

describe('the tunnels of a device', () => {
  it('are back after the gateway was started again, at once or later', async () => {
    const on = await startedOnGateway()
    await on.createTunnels(...NAMES)
    await carriesTraffic(on)
    await on.restartGateway()
    await carriesTraffic(on)
    await on.restartGateway(1_000)
    await carriesTraffic(on)
  })

  it('are back after each of ten flaps in a row', async () => {
    const on = await startedOnGateway()
    await on.createTunnels(...NAMES)
    for (let flap = 0; flap < 10; flap += 1) {
      const { since } = on.agent.status().link
      if (flap % 2 === 0) on.proxy.reset()
      else on.proxy.cut()
      await eventually(() => {
        const { link } = on.agent.status()
        expect(link.state === 'up' && link.since > since).toBe(true)
      })
      await carriesTraffic(on)
    }
    await eventually(() => expect(on.gateway.parts.sessions.size).toBe(1))
    await eventually(() => expect(on.proxy.open).toBe(1))
  })

  it('work over a slow line that tears everything to pieces', async () => {
    const preflight = { dnsMs: 5_000, connectMs: 5_000, tlsMs: 5_000 }
    const on = await agentOnGateway({ timings: { ...FAST_TIMINGS, preflight } })
    on.proxy.slice(50)
    on.proxy.delay(1)
    await on.agent.start()
    await linkUp(on.agent)
    await on.createTunnels('a')
    await carriesTraffic(on)
  })

  it('come up when the network does, on a device that booted without', async () => {
    const on = await agentOnGateway()
    on.proxy.refuse()
    await on.agent.start()
    await on.createTunnels(...NAMES)
    expect(on.states()).toEqual(['waiting', 'waiting', 'waiting'])
    await eventually(() => expect(on.agent.status().link.reason).toBe('network'))
    on.proxy.heal()
    await carriesTraffic(on)
  })
})
