import { readdirSync, readlinkSync } from 'node:fs'
import { expect, it } from 'vitest'
import { carriesTraffic, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'

/** Sockets of this process: SDK, gateway, proxy and service alike. */
function socketCount(): number {
  return readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith('socket:')
    } catch {
      return false
    }
  }).length
}

it('leaves no socket behind, however often the link breaks', async () => {
  const on = await startedOnGateway()
  await on.createTunnels('a', 'b', 'c')
  const cycle = async (count: number) => {
    for (let turn = 0; turn < count; turn += 1) {
      const { since } = on.agent.status().link
      if (turn % 2 === 0) on.proxy.cut()
      else on.proxy.reset()
      await eventually(() => {
        const { link } = on.agent.status()
        expect(link.state === 'up' && link.since > since).toBe(true)
      })
    }
    await carriesTraffic(on)
  }
  await cycle(5)
  await eventually(() => expect(on.proxy.open).toBe(1))
  const before = socketCount()
  await cycle(25)
  await eventually(() => expect(socketCount()).toBeLessThanOrEqual(before + 2))
  expect(on.gateway.parts.sessions.size).toBe(1)
  expect(on.gateway.parts.registry.size).toBe(3)
})
