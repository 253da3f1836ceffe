import { expect, it, onTestFinished } from 'vitest'
import { DEFAULT_AGENT_LIMITS } from '../../../src/gateway/agents/agent-deps.ts'
import { AgentHeartbeat } from '../../../src/gateway/agents/agent-heartbeat.ts'
import type { AgentIdentity } from '../../../src/gateway/endpoints/endpoint.ts'
import { SYN } from '../../../src/muxado/frame-codec.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { framedSession } from '../../helpers/framed-session.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

async function beating(ownHeartbeatMs?: number) {
  const { peer, session } = await framedSession()
  const clock = new ManualClock()
  const heartbeat = new AgentHeartbeat({
    session,
    identity: { ownHeartbeatMs } as AgentIdentity,
    limits: DEFAULT_AGENT_LIMITS,
    clock,
    onMissed: () => {},
  })
  heartbeat.start()
  onTestFinished(() => heartbeat.stop())
  await turns()
  const frames = () => peer.only('data').filter(({ flags }) => flags === SYN)
  const beats = () => frames().length
  const echo = async () => {
    const { streamId = 0, body = '' } = frames().at(-1) ?? {}
    // Without the type of the stream.
    peer.data(streamId, Buffer.from(body, 'latin1').subarray(4))
    await turns()
  }
  return { clock, heartbeat, beats, echo }
}

it('calls an agent silent that owes an echo for 1.4 s, or for four round trips', async () => {
  const { clock, heartbeat, echo } = await beating()
  await clock.advance(1_399)
  expect(heartbeat.isSilent).toBe(false)
  await clock.advance(1)
  expect(heartbeat.isSilent).toBe(true)
  await echo()
  expect([heartbeat.isSilent, heartbeat.latencyMs]).toEqual([false, 1_400])
  heartbeat.ask()
  await clock.advance(5_599)
  expect(heartbeat.isSilent).toBe(false)
  await clock.advance(1)
  expect(heartbeat.isSilent).toBe(true)
})

it('believes the answer of an agent on a metered link until its next heartbeat is due', async () => {
  const { clock, heartbeat, beats, echo } = await beating(58_000)
  // It is asked when it connects, as every agent.
  const atStart = beats()
  const first = heartbeat.answers(2_000)
  await turns()
  await echo()
  expect(await first).toBe(true)
  const asked = beats()
  for (let time = 0; time < 8; time += 1) {
    await clock.advance(7_000)
    expect(await heartbeat.answers(2_000)).toBe(true)
  }
  expect([atStart <= asked, beats()]).toEqual([true, asked])
})

it('asks any other agent each time', async () => {
  const { clock, heartbeat, echo } = await beating()
  const first = heartbeat.answers(2_000)
  await echo()
  expect(await first).toBe(true)
  const second = heartbeat.answers(2_000)
  await clock.advance(2_000)
  expect(await second).toBe(false)
})
