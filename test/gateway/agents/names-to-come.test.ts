import { describe, expect, it } from 'vitest'
import { awaitedIn } from '../../../src/agent/sessions/gateway-notice.ts'
import { awaitedNotice } from '../../../src/gateway/agents/agent-notice.ts'
import { NamesToCome, type NamesToComeOptions } from '../../../src/gateway/agents/names-to-come.ts'
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts'
import { deviceMetadata, forward, startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { RawAgent } from '../../helpers/raw-agent.ts'
import { connectSdk, inTime, startGateway } from '../../helpers/running-gateway.ts'

const HOUR_MS = 3_600_000
const LATE_MS = 30_000
const COMPLETE = JSON.stringify({ 'device-agent': { complete: {} } })
const NAMES = ['a.site.test', 'b.site.test', 'c.site.test'] as const

const metadataOf = (tellsComplete: boolean) =>
  JSON.stringify({
    ...JSON.parse(deviceMetadata('process-1')),
    ...(tellsComplete && { tells_complete: true }),
  })

/** A device with three names, which the gateway then finds dead. */
async function lostDevice({
  tellsComplete = true,
  metadata = metadataOf(tellsComplete),
  ...options
}: {
  tellsComplete?: boolean
  metadata?: string
  holdMs?: number
} = {}) {
  const clock = new ManualClock(Date.now())
  const agentLimits = { heartbeatIntervalMs: HOUR_MS, heartbeatToleranceMs: HOUR_MS }
  const running = await startGateway({ clock, agentLimits, ...options })
  const service = await startDeviceService((_request, response) => void response.end('hello'))
  const before = await connectSdk(running, { metadata })
  for (const domain of NAMES) await forward(before, service, { domain })
  const { sessions, registry } = running.gateway.parts
  for (const session of [...sessions.all()]) session.end('the agent does not answer heartbeats')
  const held = (count: number) => eventually(() => expect(registry.held.size).toBe(count))
  const statusOf = async (host: string) => (await visit(running, { host })).status
  /** As an agent of ours does it. */
  const say = async (agent: RawAgent, message: string) =>
    (await agent.bind('complete.device-agent.internal', { Extra: { Metadata: message } })).URL
  /** A connection of the same device by hand. */
  const back = async () => {
    const agent = await RawAgent.connect(running)
    await agent.auth(running.authtoken.reveal(), { Metadata: metadata })
    return agent
  }
  return {
    ...running,
    running,
    clock,
    service,
    metadata,
    held,
    statusOf,
    say,
    back,
    sessions,
    registry,
  }
}

it('says as many names that visitors wait for as the agent reads, the longest wait first', () => {
  const hosts = Array.from({ length: 40 }, (_, n) => `${n}-${'x'.repeat(200)}.site.test`)
  const due = new Set(hosts)
  const said: string[] = []
  let notices = 0
  while (due.size > 0) {
    const { Version } = awaitedNotice(due) as { Version: string }
    expect(awaitedIn(Version).length).toBeGreaterThan(0)
    said.push(...awaitedIn(Version))
    notices += 1
  }
  expect(said).toEqual(hosts)
  expect(notices).toBeLessThan(5)
})

describe('names that their device has not bound again yet', () => {
  it('are waited for as long as the device goes through its names, and not longer than they are wanted', async () => {
    const on = await lostDevice()
    const session = await connectSdk(on.running, { metadata: on.metadata })
    const [b, c] = [on.statusOf('b.site.test'), on.statusOf('c.site.test')]
    await on.held(2)
    // Longer than the hold, each time.
    await on.clock.advance(LATE_MS)
    await forward(session, on.service, { domain: 'a.site.test' })
    await on.clock.advance(LATE_MS)
    await on.held(2)
    expect(await on.statusOf('a.site.test')).toBe(200)
    await forward(session, on.service, { domain: 'b.site.test' })
    expect(await b).toBe(200)
    const told = session.httpEndpoint().domain('complete.device-agent.internal').metadata(COMPLETE)
    expect((await inTime(told.listen())).url()).toBe('complete:')
    // The device wants it no more: it was deleted meanwhile.
    expect([await c, await on.statusOf('c.site.test')]).toEqual([404, 404])
  })

  it('are held anew when the device is lost again, and get 503 after that', async () => {
    const on = await lostDevice()
    await on.back()
    await on.clock.advance(LATE_MS)
    const waiting = on.statusOf('b.site.test')
    await on.held(1)
    for (const session of [...on.sessions.all()]) session.end('the connection was lost')
    await on.clock.advance(9_000)
    await on.held(1)
    await on.clock.advance(2_000)
    expect([await waiting, await on.statusOf('b.site.test')]).toEqual([503, 503])
  })

  it('get 503 and never 404 from a device that binds nothing more, and serve when it goes on after all', async () => {
    const on = await lostDevice()
    const agent = await on.back()
    await on.clock.advance(61_000)
    expect(await on.statusOf('b.site.test')).toBe(503)
    expect((await agent.bind('a.site.test')).Error ?? '').toBe('')
    const waiting = on.statusOf('b.site.test')
    await on.held(1)
    const session = await connectSdk(on.running, { metadata: on.metadata })
    await forward(session, on.service, { domain: 'b.site.test' })
    expect(await waiting).toBe(200)
  })

  it('are nobody’s when a device that does not say so has bound nothing for a while', async () => {
    const on = await lostDevice({ tellsComplete: false })
    const agent = await on.back()
    await on.clock.advance(9_000)
    await agent.bind('a.site.test')
    await on.clock.advance(9_000)
    await agent.bind('b.site.test')
    const waiting = on.statusOf('c.site.test')
    await on.held(1)
    await on.clock.advance(9_000)
    await on.held(1)
    await on.clock.advance(2_000)
    expect(await waiting).toBe(404)
  })

  it('belong to the device: what another connection of it, or another device, does changes nothing', async () => {
    const on = await lostDevice()
    const [first] = [await on.back(), await on.back()]
    const other = await RawAgent.connect(on.running)
    const metadata = JSON.stringify({ device_id: 'another', instance: 'x', tells_complete: true })
    await other.auth(on.authtoken.reveal(), { Metadata: metadata })
    await on.say(other, COMPLETE)
    await on.clock.advance(LATE_MS)
    const waiting = on.statusOf('b.site.test')
    await on.held(1)
    // One of the two connections is left.
    first?.cut()
    await eventually(() => expect(on.sessions.size).toBe(2))
    await on.clock.advance(LATE_MS - 2_000)
    await on.held(1)
    await on.clock.advance(3_000)
    expect(await waiting).toBe(503)
  })

  it('are free at once when the device completes in the moment after it lost another connection', async () => {
    const on = await lostDevice()
    const [agent, other] = [await on.back(), await on.back()]
    await on.say(agent, '{}')
    await other.bind('d.site.test')
    other.cut()
    await eventually(() => expect(on.sessions.size).toBe(1))
    expect(await eventually(() => on.registry.match('d.site.test')?.type)).toBe('disconnected')
    await on.say(agent, COMPLETE)
    expect(await on.statusOf('d.site.test')).toBe(404)
  })

  it('stay with an authtoken without a device id, which other devices may use too', async () => {
    const on = await lostDevice({ tellsComplete: false, metadata: '{}' })
    const agent = await on.back()
    await agent.bind('a.site.test')
    await on.clock.advance(LATE_MS)
    expect(await on.statusOf('b.site.test')).toBe(503)
  })

  it('are told to an agent of ours once it binds, the longest wait first, on its newest connection', async () => {
    const on = await lostDevice()
    const told = [[], []] as [string[][], string[][]]
    const connect = (index: 0 | 1) =>
      connectSdk(on.running, {
        metadata: on.metadata,
        onUpdate: (version) => {
          const { awaited } = JSON.parse(version)['device-agent']
          // Several sessions are also told which gateway this is.
          if (awaited) told[index].push(awaited)
        },
      })
    const hear = (index: 0 | 1, names: string[][]) =>
      eventually(async () => {
        // The next notice follows 100 ms after the agent has answered to the last.
        await on.clock.advance(20)
        expect(told[index]).toEqual(names)
      })
    const waits = [on.statusOf('c.site.test')]
    await on.held(1)
    waits.push(on.statusOf('b.site.test'), on.statusOf('c.site.test'))
    await on.held(3)
    const first = await connect(0)
    await forward(first, on.service, { domain: 'x.site.test' })
    await hear(0, [['c.site.test', 'b.site.test']])
    waits.push(on.statusOf('a.site.test'))
    await hear(0, [['c.site.test', 'b.site.test'], ['a.site.test']])
    // A lane, or the next connection of a device whose last one is dead and nobody knows it.
    const second = await connect(1)
    await forward(second, on.service, { domain: 'y.site.test' })
    await hear(1, [['c.site.test', 'b.site.test', 'a.site.test']])
    for (const domain of NAMES) await forward(second, on.service, { domain })
    expect(await Promise.all(waits)).toEqual([200, 200, 200, 200])
    expect([told[0].length, told[1].length]).toEqual([2, 1])
  })

  it('are not told to a client that would take it for an order to update itself', async () => {
    const on = await lostDevice({ tellsComplete: false })
    const told: string[] = []
    const waiting = on.statusOf('b.site.test')
    await on.held(1)
    const { metadata } = on
    const session = await connectSdk(on.running, { metadata, onUpdate: (text) => told.push(text) })
    await forward(session, on.service, { domain: 'a.site.test' })
    await on.clock.advance(1_000)
    await forward(session, on.service, { domain: 'b.site.test' })
    expect([await waiting, told]).toEqual([200, []])
  })

  it('are not waited for where nobody waits for devices', async () => {
    const on = await lostDevice({ holdMs: 0 })
    const agent = await on.back()
    expect(await on.statusOf('b.site.test')).toBe(503)
    await on.say(agent, COMPLETE)
    expect(await on.statusOf('b.site.test')).toBe(404)
  })
})

it('reports a complete device to each linked gateway, once for a connection', () => {
  const clock = new ManualClock()
  const asked: unknown[] = []
  const names = new NamesToCome({
    registry: new EndpointRegistry({ clock }),
    identity: { ownerId: null, credentialId: 'cr_a', deviceId: 'cam', instance: 'process-1' },
    limits: { returnMs: 1_000, progressMs: 1_000 },
    clock,
    others: {
      all: () => [
        { id: 'nd_self', isSelf: true, isLinked: true },
        { id: 'nd_linked', isSelf: false, isLinked: true },
        { id: 'nd_lost', isSelf: false, isLinked: false },
      ],
      ask: async (...question: unknown[]) => {
        asked.push(question)
        throw new Error('an older gateway')
      },
    },
  } as unknown as NamesToComeOptions)
  for (let n = 0; n < 3; n += 1) names.complete()
  const mark = { ownerId: null, credentialId: 'cr_a', deviceId: 'cam', instance: 'process-1' }
  expect(asked).toEqual([['nd_linked', 'device-complete', mark]])
})
