import { describe, expect, it } from 'vitest'
import { carriesTraffic, isDown, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import type { Direction } from '../helpers/chaos-proxy.ts'
import { eventually } from '../helpers/eventually.ts'

const NAMES = ['a', 'b', 'c'] as const

describe('the tunnels of a device', () => {
  it.each<Direction>(['up', 'down', 'both'])(
    'are not called online in a black hole (%s), and are back when it is gone',
    async (direction) => {
      const on = await startedOnGateway()
      await on.createTunnels(...NAMES)
      on.proxy.blackHole(direction)
      // One missed heartbeat at 1 s and 1 s; with the default of 10 s and 15 s that is 25 s.
      await isDown(on)
      expect(on.agent.find('a').status).toMatchObject({
        reason: 'network',
        lastError: expect.any(String),
      })
      on.proxy.heal()
      await carriesTraffic(on)
    },
  )

  it('are gone when they were removed while the link was down', async () => {
    const on = await startedOnGateway()
    await on.createTunnels(...NAMES)
    on.proxy.blackHole('both')
    await isDown(on)
    await on.agent.remove('b')
    on.proxy.heal()
    await carriesTraffic(on)
    // The gateway has not heard that it is gone, until the device does not take it back.
    await eventually(async () => expect(await on.visit('b')).toBe(404))
  })

  it('wait out a captive portal that takes connections and says nothing', async () => {
    const on = await startedOnGateway()
    await on.createTunnels(...NAMES)
    on.proxy.mute()
    on.proxy.cut()
    await eventually(() =>
      expect(on.agent.status().link).toMatchObject({
        reason: 'network',
        lastError: expect.stringContaining('did not answer within'),
      }),
    )
    on.proxy.heal()
    await carriesTraffic(on)
  })
})
