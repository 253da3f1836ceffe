import { describe, expect, it } from 'vitest'
import {
  type DeviceMark,
  type DisconnectedName,
  isSameDevice,
  type NameFacts,
} from '../../../src/gateway/endpoints/disconnected-name.ts'
import type { AgentEndpoint } from '../../../src/gateway/endpoints/endpoint.ts'
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const endpoint = (host: string, ownerId: string | null = null) =>
  ({
    type: 'agent',
    id: `ep_${host} ${ownerId}`,
    host,
    ownerId,
    protocol: 'https',
    url: `https://${host}`,
  }) as AgentEndpoint

const facts = (host: string, change: Partial<NameFacts> = {}): NameFacts => ({
  host,
  ownerId: null,
  protocol: 'https',
  url: `https://${host}`,
  isShared: false,
  credentialId: 'cr_a',
  ...change,
})

function startRegistry(options: { maxDisconnectedNames?: number } = {}) {
  const clock = new ManualClock()
  return { clock, registry: new EndpointRegistry({ clock, holdMs: 10_000, ...options }) }
}

/** Whether a request may wait for it now. */
const waits = (registry: EndpointRegistry, name: DisconnectedName) =>
  registry.wait(name, { network: 'n', bytes: 1, onNameChange: () => {} })

describe('two marks of one account', () => {
  const CAM: DeviceMark = { credentialId: 'cr_1', deviceId: 'cam', instance: 'run 1' }
  it.each([
    ['the same device and authtoken, in another process', { ...CAM, instance: 'run 2' }, true],
    ['the same process with a new authtoken', { ...CAM, credentialId: 'cr_2' }, true],
    [
      'another process with another authtoken',
      { deviceId: 'cam', credentialId: 'cr_2', instance: 'run 2' },
      false,
    ],
    ['another authtoken without a process', { deviceId: 'cam', credentialId: 'cr_2' }, false],
    ['another device with the same authtoken', { ...CAM, deviceId: 'nas' }, false],
    ['no device with the same authtoken', { credentialId: 'cr_1', instance: 'run 1' }, false],
  ])('are of one device or not: %s', (_what, other, isSame) => {
    expect([isSameDevice(CAM, other), isSameDevice(other, CAM)]).toEqual([isSame, isSame])
  })

  it('are of one device by the authtoken alone where neither names a device', () => {
    expect(isSameDevice({ credentialId: 'cr_1' }, { credentialId: 'cr_1' })).toBe(true)
    const run = { instance: 'run 1' }
    expect(isSameDevice({ credentialId: 'cr_1', ...run }, { credentialId: 'cr_2', ...run })).toBe(
      false,
    )
  })
})

describe('a name that is away', () => {
  it('counts as no endpoint, is taken by the next one, and is not there twice', () => {
    const { registry } = startRegistry()
    const first = endpoint('a.test')
    registry.add(first)
    const name = registry.suspend(first, { credentialId: 'cr_a' })
    expect(registry.suspend(first, { credentialId: 'cr_a' })).toBeUndefined()
    expect(registry.match('a.test')).toBe(name)
    expect([
      registry.size,
      [...registry.all()],
      registry.holdersOf({ protocol: 'https', host: 'a.test' }, null)[0],
    ]).toEqual([0, [], undefined])
    const next = endpoint('a.test', 'bot_b')
    registry.add(next)
    expect(registry.match('a.test')).toBe(next)
    expect(registry.remove(next)).toBe(true)
    expect(registry.match('a.test')).toBeUndefined()
  })

  it('may be held from the start, for names that were online before; nothing that is online is', async () => {
    const { registry, clock } = startRegistry()
    const name = registry.hold(facts('a.test'), 5_000)
    if (!name) throw new Error('not held')
    await clock.advance(14_999)
    expect(waits(registry, name)).toBe(true)
    await clock.advance(1)
    expect(waits(registry, name)).toBe(false)
    registry.add(endpoint('b.test'))
    expect(registry.hold(facts('b.test'))).toBeUndefined()
  })

  it('is held from a later moment on, unless somebody has it by then', async () => {
    const { registry, clock } = startRegistry()
    const [a, b] = [registry.hold(facts('a.test')), registry.hold(facts('b.test'))]
    if (!a || !b) throw new Error('not held')
    registry.add(endpoint('b.test'))
    await clock.advance(9_000)
    registry.holdFromNow(a)
    registry.holdFromNow(b)
    await clock.advance(9_000)
    expect([waits(registry, a), waits(registry, b)]).toEqual([true, false])
  })

  it('tells who waits when it is held anew, which finds the new one', () => {
    const { registry } = startRegistry()
    const first = registry.hold(facts('a.test'))
    const found: unknown[] = []
    const onNameChange = () => found.push(registry.match('a.test'))
    if (first) registry.wait(first, { network: 'n', bytes: 1, onNameChange })
    const second = registry.hold(facts('a.test'))
    expect(found).toEqual([second])
  })

  it('hides the wildcards above it while it is held, and none that is nearer', async () => {
    const { registry, clock } = startRegistry()
    const [far, near] = [endpoint('*.test'), endpoint('*.b.test')]
    registry.add(far)
    registry.add(near)
    const name = registry.hold(facts('a.test'))
    registry.hold(facts('*.c.test'))
    expect(registry.match('a.test')).toBe(name)
    expect(registry.match('x.b.test')).toBe(near)
    expect(registry.match('x.c.test')?.type).toBe('disconnected')
    await clock.advance(10_000)
    expect(registry.match('a.test')).toBe(far)
    expect(registry.match('x.c.test')).toBe(far)
  })

  it('is nobody’s after an hour, or when there are too many of an account', async () => {
    const { registry, clock } = startRegistry({ maxDisconnectedNames: 3 })
    registry.hold(facts('other.test', { ownerId: 'bot_b' }))
    for (const host of ['a.test', 'b.test', 'c.test']) registry.hold(facts(host))
    const known = () =>
      ['other.test', 'a.test', 'b.test', 'c.test'].filter((host) => registry.match(host))
    // The account that has most gives up its oldest.
    expect(known()).toEqual(['other.test', 'b.test', 'c.test'])
    await clock.advance(3_600_000)
    expect(known()).toEqual([])
    registry.hold(facts('d.test'))
    registry.hold(facts('e.test'))
    expect(registry.match('d.test')?.type).toBe('disconnected')
  })

  it('keeps other accounts off for an hour, across HTTP, HTTPS and TLS', async () => {
    const { registry, clock } = startRegistry()
    const first = endpoint('a.test', 'bot_a')
    registry.add(first)
    registry.suspend(first, { credentialId: 'cr_a' })
    const holders = (ownerId: string) =>
      (['http', 'https', 'tls'] as const).map(
        (protocol) => registry.foreignHolder({ protocol, host: 'a.test' }, ownerId)?.ownerId,
      )
    const [theirs, free] = [
      ['bot_a', 'bot_a', 'bot_a'],
      [undefined, undefined, undefined],
    ]
    expect([holders('bot_b'), holders('bot_a')]).toEqual([theirs, free])
    await clock.advance(3_599_999)
    expect(holders('bot_b')).toEqual(theirs)
    await clock.advance(1)
    expect(holders('bot_b')).toEqual(free)
  })

  it('is forgotten with the leave to bind it', () => {
    const { registry } = startRegistry()
    registry.hold(facts('a.test'))
    registry.hold(facts('b.test', { credentialId: 'cr_b' }))
    registry.forgetUnless(({ credentialId }) => credentialId === 'cr_b')
    expect(registry.match('a.test')).toBeUndefined()
    expect(registry.match('b.test')?.type).toBe('disconnected')
  })

  it('stays in its account when it is internal, or with all when it is shared', () => {
    const { registry } = startRegistry()
    const url = new URL('https://cam.internal')
    const shared = endpoint('cam.internal', 'bot_a')
    registry.add(shared, { isShared: true })
    const name = registry.suspend(shared, { credentialId: 'cr_a' })
    expect(registry.matchInternal(url, 'bot_a')).toBe(name)
    expect(registry.matchInternal(url, 'bot_b')).toBe(name)
    expect(registry.match('cam.internal')).toBeUndefined()
    registry.add(endpoint('cam.internal', 'bot_b'))
    expect(registry.matchInternal(url, 'bot_b')?.type).toBe('agent')
    expect(registry.matchInternal(url, 'bot_c')).toBe(name)
    if (name) registry.forget(name)
    expect(registry.matchInternal(url, 'bot_a')).toBeUndefined()
    expect(registry.matchInternal(url, 'bot_c')).toBeUndefined()
  })

  it('is the successor of an endpoint for its own account alone', () => {
    const { registry } = startRegistry()
    const first = endpoint('a.test', 'bot_a')
    registry.add(first)
    expect(registry.successorOf(first)).toBe(first)
    const name = registry.suspend(first, { credentialId: 'cr_a' })
    expect(registry.successorOf(first)).toBe(name)
    registry.add(endpoint('a.test', 'bot_b'))
    expect(registry.successorOf(first)).toBeUndefined()
  })
})

describe('a device that comes back', () => {
  const CAM = { ownerId: null, credentialId: 'cr_a', deviceId: 'cam' }
  const QUIET_MS = 60_000

  it('is waited for as long as it goes on, and five minutes at most', async () => {
    const { clock, registry } = startRegistry()
    const name = registry.hold(facts('cam.test', { deviceId: 'cam' })) as DisconnectedName
    const other = registry.hold(facts('nas.test', { deviceId: 'nas' })) as DisconnectedName
    const device = registry.startReturn(CAM, QUIET_MS)
    device.sessions += 1
    for (let minutes = 0; minutes < 4; minutes += 1) {
      await clock.advance(59_000)
      expect([waits(registry, name), waits(registry, other)]).toEqual([true, false])
      expect(registry.startReturn(CAM, QUIET_MS)).toBe(device)
    }
    await clock.advance(59_000)
    registry.startReturn(CAM, QUIET_MS)
    expect(waits(registry, name)).toBe(true)
    await clock.advance(5_000)
    expect([waits(registry, name), name.stateAt(clock.monotonic())]).toEqual([false, 'away'])
  })

  it.each<[where: string, complete: (registry: EndpointRegistry) => void]>([
    ['here', (registry) => registry.endReturn(registry.startReturn(CAM, QUIET_MS))],
    ['at another gateway', (registry) => registry.endReturnElsewhere(CAM)],
  ])('gives up its own names alone when it is complete %s', (_where, complete) => {
    const { registry } = startRegistry()
    const own = registry.hold(facts('cam.test', { deviceId: 'cam' })) as DisconnectedName
    const kept = [
      facts('nas.test', { deviceId: 'nas' }),
      facts('bare.test'),
      facts('other.test', { deviceId: 'cam', ownerId: 'bot_a' }),
      facts('renewed.test', { deviceId: 'cam', credentialId: 'cr_b' }),
    ].map((it) => registry.hold(it) as DisconnectedName)
    complete(registry)
    expect([own, ...kept].map((name) => registry.isAway(name))).toEqual([
      false,
      ...kept.map(() => true),
    ])
    // Forgotten, it takes part in no other return.
    expect(registry.startReturn(CAM, QUIET_MS).names.size).toBe(0)
  })

  it('keeps the names that it is about to bind here when it is complete elsewhere', () => {
    const { registry } = startRegistry()
    const name = registry.hold(facts('cam.test', { deviceId: 'cam' })) as DisconnectedName
    const device = registry.startReturn(CAM, QUIET_MS)
    device.sessions += 1
    registry.endReturnElsewhere(CAM)
    expect(registry.isAway(name)).toBe(true)
    registry.loseReturn(device)
    registry.endReturnElsewhere(CAM)
    expect(registry.isAway(name)).toBe(false)
  })
})
