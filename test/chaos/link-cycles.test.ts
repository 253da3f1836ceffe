import { readdirSync, readlinkSync } from 'node:fs'
import { expect, it } from 'vitest'
import { carriesTraffic, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'

/** 200 is the long run: `LINK_CYCLES=200`. */
const CYCLES = Number(process.env.LINK_CYCLES ?? 25)

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

/** Memory beside the engine's heap, which holds the captured logs of gateway and agent. */
function nativeBytes(): number {
  const { rss, heapTotal } = process.memoryUsage()
  return rss - heapTotal
}

it('leaves no socket and no memory behind, however often the link breaks', async () => {
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
  // The allocators of SDK and engine take what they need in the first few turns.
  await cycle(CYCLES / 5)
  await eventually(() => expect(on.proxy.open).toBe(1))
  const before = socketCount()
  const nativeBefore = nativeBytes()
  await cycle(CYCLES)
  await eventually(() => expect(socketCount()).toBeLessThanOrEqual(before + 2))
  expect(nativeBytes() - nativeBefore).toBeLessThan(30_000_000)
  await eventually(() => expect(on.gateway.parts.sessions.size).toBe(1))
  expect(on.gateway.parts.registry.size).toBe(3)
}, 600_000)
