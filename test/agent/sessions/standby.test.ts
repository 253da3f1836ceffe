import { describe, expect, it } from 'vitest'
import { PoisonedError } from '../../../src/agent/connector.ts'
import { networkProblem, ProblemError } from '../../../src/agent/problem.ts'
import { DEFAULT_TIMINGS } from '../../../src/agent/timings.ts'
import { type FakeConnector, type FakeSession, refusal } from '../../helpers/fake-connector.ts'
import { linkOnFake } from '../../helpers/link-on-fake.ts'

const TIMINGS = DEFAULT_TIMINGS.link
const [HOME, OTHER] = ['a.test:1', 'b.test:1']

interface HeldConnect {
  readonly to: string | undefined
  readonly open: () => void
  readonly fail: (error: Error) => void
}

/** Each connect waits from now on until the test opens it or lets it fail. */
function holdConnects(connector: FakeConnector): HeldConnect[] {
  const held: HeldConnect[] = []
  connector.onConnect = ({ serverAddr: to }) =>
    new Promise((open, fail) => held.push({ to, open, fail }))
  return held
}

/** A link whose names are held by the first of two gateways. Connects wait from now on. */
async function atHome() {
  const on = linkOnFake({ serverAddrs: [HOME as string, OTHER as string] })
  const { link, connector, clock, start } = on
  await start()
  const [serving, standby] = connector.sessions as [FakeSession, FakeSession]
  link.tried(serving, undefined)
  await clock.advance(TIMINGS.quickAfterMs)
  return {
    ...{ ...on, serving, standby, held: holdConnects(connector) },
    open: () => connector.sessions.filter(({ isClosed }) => !isClosed),
  }
}

/** The standby is connecting to the gateway that holds the names, and the link has no session. */
async function standbyIsComingHome() {
  const on = await atHome()
  on.serving.lose()
  await on.clock.advance(TIMINGS.quickMs)
  on.standby.lose()
  expect(on.held.map(({ to }) => to)).toEqual([HOME])
  expect(on.link.status.state).toBe('waiting')
  const [coming] = on.held as [HeldConnect]
  return { ...on, coming }
}

/** The standby is connecting to the other gateway, and the link to the gateway that holds the names. */
async function bothAreComing() {
  const on = await atHome()
  on.standby.lose()
  await on.clock.advance(0)
  await on.clock.advance(TIMINGS.backoffBaseMs)
  on.serving.lose()
  await on.clock.advance(0)
  await on.clock.advance(TIMINGS.quickMs)
  expect(on.held.map(({ to }) => to)).toEqual([OTHER, HOME])
  const [elsewhere, home] = on.held as [HeldConnect, HeldConnect]
  return { ...on, elsewhere, home }
}

describe('a standby that gets ready while the link has no session', () => {
  it('serves at once, also during a pause of the link', async () => {
    const { link, connector, clock, sessions, coming } = await standbyIsComingHome()
    coming.open()
    await clock.advance(0)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: HOME, nextRetryAt: undefined })
    expect(link.session).toBe(connector.last)
    expect(sessions.at(-1)).toBe(connector.last)
    await clock.advance(TIMINGS.quickMs)
    expect(connector.connects).toBe(3)
  })

  it('is the only connect to that gateway', async () => {
    const { link, connector, clock, held, open, coming } = await standbyIsComingHome()
    await clock.advance(TIMINGS.quickMs)
    expect(link.status).toMatchObject({ state: 'connecting', serverAddr: HOME })
    expect(held).toHaveLength(1)
    coming.open()
    await clock.advance(0)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: HOME, duplicate: undefined })
    expect(open()).toEqual([connector.last])
  })

  it('gets a successor when the names have had time to come back', async () => {
    const { link, clock, held, open, coming } = await standbyIsComingHome()
    coming.open()
    await clock.advance(0)
    await clock.advance(TIMINGS.spareMs - 1)
    expect(held).toHaveLength(1)
    expect(link.status.standby?.state).toBe('idle')
    await clock.advance(1)
    expect(held.map(({ to }) => to)).toEqual([HOME, OTHER])
    held[1]?.open()
    await clock.advance(60_000)
    expect(link.status).toMatchObject({ serverAddr: HOME, standby: { state: 'ready' } })
    expect(open()).toHaveLength(2)
    expect(held).toHaveLength(2)
  })

  it('fails for the link too, which goes on with the other gateway', async () => {
    const { link, clock, held, coming } = await standbyIsComingHome()
    await clock.advance(TIMINGS.quickMs)
    coming.fail(new ProblemError(networkProblem('refused')))
    await clock.advance(0)
    expect(link.status).toMatchObject({
      state: 'waiting',
      lastError: 'refused',
      nextRetryAt: clock.now() + TIMINGS.backoffBaseMs,
    })
    await clock.advance(TIMINGS.backoffBaseMs)
    expect(held.map(({ to }) => to)).toEqual([HOME, OTHER])
  })

  it('asks for a new process when the SDK is poisoned', async () => {
    const { link, clock, held, poisoned, coming } = await standbyIsComingHome()
    await clock.advance(TIMINGS.quickMs)
    coming.fail(new PoisonedError('connecting took longer than 15000 ms'))
    await clock.advance(3_600_000)
    expect(poisoned()).toBeGreaterThan(0)
    expect(link.status).toMatchObject({ state: 'waiting', nextRetryAt: undefined })
    expect(held).toHaveLength(1)
  })

  it.each([
    ['the standby first', [0, 1], OTHER],
    ['the link first', [1, 0], HOME],
  ])('stays beside what the link opens itself: %s', async (_what, order, serving) => {
    for (const pauseMs of [undefined, 0, 20]) {
      const { link, connector, clock, held, open } = await bothAreComing()
      for (const at of order) {
        held[at]?.open()
        if (pauseMs !== undefined) await clock.advance(pauseMs)
      }
      await clock.advance(0)
      const { session } = link
      expect(link.status).toMatchObject({ state: 'up', standby: { state: 'ready' } })
      if (pauseMs !== undefined) expect(link.status.serverAddr).toBe(serving)
      expect(new Set(open().map(({ request }) => request.serverAddr))).toEqual(
        new Set([HOME, OTHER]),
      )
      await clock.advance(60_000)
      expect([connector.connects, link.session, open().length]).toEqual([4, session, 2])
    }
  })

  it.each(['before', 'after'])(
    'leaves to the session at the gateway that holds the names, when it is told %s that is there',
    async (when) => {
      const { link, clock, elsewhere, home, open, held } = await bothAreComing()
      elsewhere.open()
      await clock.advance(0)
      const there = link.session as FakeSession
      expect(link.status.serverAddr).toBe(OTHER)
      const refuse = () => link.tried(there, refusal(803).problem)
      if (when === 'before') refuse()
      await clock.advance(0)
      home.open()
      await clock.advance(0)
      if (when === 'after') refuse()
      expect(link.status).toMatchObject({ state: 'up', serverAddr: HOME })
      expect(there.isClosed).toBe(true)
      for (const { open: answer } of held) answer()
      await clock.advance(0)
      for (const { open: answer } of held) answer()
      await clock.advance(60_000)
      expect(link.status).toMatchObject({ serverAddr: HOME, standby: { serverAddr: OTHER } })
      expect(open().length).toBeLessThanOrEqual(2)
    },
  )

  it('takes no session of the link while it connects itself', async () => {
    const { link, clock, elsewhere, home, open, held } = await bothAreComing()
    elsewhere.open()
    await clock.advance(0)
    await clock.advance(TIMINGS.spareMs)
    expect(held.map(({ to }) => to)).toEqual([OTHER, HOME, HOME])
    home.open()
    await clock.advance(0)
    expect(open()).toEqual([link.session])
    held[2]?.open()
    await clock.advance(0)
    expect(open()).toHaveLength(2)
    expect(link.status).toMatchObject({ serverAddr: OTHER, standby: { serverAddr: HOME } })
  })

  it('reports no failed renewal when the attempt of the link fails afterwards', async () => {
    const { link, clock, elsewhere, home } = await bothAreComing()
    elsewhere.open()
    await clock.advance(0)
    home.fail(new ProblemError(networkProblem('refused')))
    await clock.advance(0)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: OTHER, renewal: undefined })
  })

  it('serves nobody after a stop command, after a stop, or without an authtoken', async () => {
    const parked = await atHome()
    parked.standby.lose()
    await parked.clock.advance(0)
    await parked.clock.advance(TIMINGS.backoffBaseMs)
    parked.serving.command('stop')
    parked.held[0]?.open()
    await parked.clock.advance(86_400_000)
    expect(parked.link.status).toMatchObject({ state: 'parked', standby: { state: 'idle' } })
    expect([parked.open(), parked.held.length]).toEqual([[], 1])

    const stopped = await standbyIsComingHome()
    const end = stopped.link.stop({ drainMs: 10_000 })
    stopped.coming.open()
    await end
    await stopped.clock.advance(0)
    expect(stopped.link.status.state).toBe('stopped')
    expect([stopped.open(), stopped.held.length]).toEqual([[], 1])

    const tokenless = await standbyIsComingHome()
    tokenless.setToken(undefined)
    tokenless.coming.open()
    await tokenless.clock.advance(60_000)
    expect(tokenless.link.status).toMatchObject({ state: 'waiting', lastError: 'no authtoken' })
    expect([tokenless.open(), tokenless.held.length]).toEqual([[], 1])
  })

  it('does not serve with an authtoken that has changed', async () => {
    const { link, clock, setToken, coming, held, open } = await standbyIsComingHome()
    setToken('better')
    await clock.advance(0)
    coming.open()
    await clock.advance(0)
    expect(link.status.state).toBe('connecting')
    held[1]?.open()
    await clock.advance(0)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: HOME })
    expect(open().map(({ request }) => request.authtoken.reveal())).toEqual(['better'])
  })

  it('does not spin for gateways that end each session as soon as it serves', async () => {
    const { link, connector, clock, start } = linkOnFake({
      serverAddrs: [HOME as string, OTHER as string],
    })
    await start()
    for (let step = 0; step < 3_000; step += 1) {
      const session = link.session as FakeSession | undefined
      if (session) link.tried(session, undefined)
      session?.lose()
      await clock.advance(20)
    }
    expect(connector.connects).toBeGreaterThan(10)
    expect(connector.connects).toBeLessThan(100)
  })
})

/** A link to several gateways, with all its sessions open. */
async function upTo(...serverAddrs: string[]) {
  const on = linkOnFake({ serverAddrs })
  await on.start()
  const open = () => on.connector.sessions.filter(({ isClosed }) => !isClosed)
  const places = () => open().map(({ request }) => request.serverAddr)
  return { ...on, open, places }
}

describe('a standby at the gateway that serves', () => {
  it('moves when the link has moved to its gateway', async () => {
    const { link, connector, clock, places } = await upTo(HOME as string, OTHER as string)
    const [serving] = connector.sessions as [FakeSession]
    expect(places()).toEqual([HOME, OTHER])
    // The gateway at home restarts, so the session is replaced elsewhere.
    connector.onConnect = ({ serverAddr }) => {
      if (serverAddr === HOME) throw new ProblemError(networkProblem('refused'))
    }
    serving.command('restart')
    for (let second = 0; second < 60; second += 1) await clock.advance(1_000)
    expect(link.status.serverAddr).toBe(OTHER)
    connector.onConnect = () => {}
    for (let second = 0; second < 120; second += 1) await clock.advance(1_000)
    expect(link.status).toMatchObject({
      serverAddr: OTHER,
      standby: { state: 'ready', serverAddr: HOME },
    })
  })

  it('goes on to another gateway when both addresses lead to one', async () => {
    const { link, connector, clock, places } = await upTo('a.test:1', '10.0.0.1:1', 'b.test:1')
    const [serving, twin] = connector.sessions as [FakeSession, FakeSession]
    twin.request.onGateway?.('gateway-a')
    await clock.advance(0)
    expect(twin.isClosed).toBe(false)
    serving.request.onGateway?.('gateway-a')
    await clock.advance(0)
    expect(twin.isClosed).toBe(true)
    await clock.advance(1_000)
    expect(places()).toEqual(['a.test:1', 'b.test:1'])
    expect(link.status.standby).toMatchObject({ state: 'ready', serverAddr: 'b.test:1' })
    // It does not come back there while the other gateway is away.
    const tried: (string | undefined)[] = []
    connector.onConnect = ({ serverAddr }) => {
      tried.push(serverAddr)
      throw new ProblemError(networkProblem('refused'))
    }
    connector.last.lose()
    for (let minute = 0; minute < 10; minute += 1) await clock.advance(60_000)
    expect(tried.length).toBeGreaterThan(3)
    expect(new Set(tried)).toEqual(new Set(['b.test:1']))
  })

  it('stays when no address leads elsewhere, because it helps when only the link fails', async () => {
    const { link, connector, clock, places } = await upTo('a.test:1', '10.0.0.1:1')
    for (const { request } of connector.sessions) request.onGateway?.('gateway-a')
    await clock.advance(60_000)
    expect(places()).toEqual(['a.test:1', '10.0.0.1:1'])
    expect(link.status.standby).toMatchObject({ state: 'ready' })
    expect(connector.connects).toBe(2)
  })

  it('forgets which addresses those are when another session serves', async () => {
    const { link, connector, clock, places } = await upTo('a.test:1', '10.0.0.1:1', 'b.test:1')
    for (const { request } of connector.sessions) request.onGateway?.('gateway-a')
    await clock.advance(1_000)
    expect(places()).toEqual(['a.test:1', 'b.test:1'])
    const [serving] = connector.sessions as [FakeSession]
    connector.onConnect = ({ serverAddr }) => {
      if (serverAddr !== '10.0.0.1:1') throw new ProblemError(networkProblem('refused'))
    }
    serving.lose()
    for (let second = 0; second < 180; second += 1) await clock.advance(1_000)
    expect(link.status).toMatchObject({
      serverAddr: 'b.test:1',
      standby: { state: 'ready', serverAddr: '10.0.0.1:1' },
    })
  })

  it('names the address that failed, also before an attempt at another address', async () => {
    const { link, connector, clock, start } = linkOnFake({
      serverAddrs: ['a.test:1', 'b.test:1', 'c.test:1'],
    })
    connector.onConnect = ({ serverAddr }) => {
      if (serverAddr !== 'a.test:1') throw new ProblemError(networkProblem(`${serverAddr} refuses`))
    }
    await start()
    const failed = () => link.status.standby
    for (let step = 0; step < 8; step += 1) {
      expect(failed()?.lastError).toBe(`${failed()?.serverAddr} refuses`)
      await clock.advance(TIMINGS.backoffBaseMs)
    }
    expect(connector.connects).toBeGreaterThan(3)
  })

  it('stays beside another gateway, whatever earlier sessions were told', async () => {
    const { link, connector, clock } = await upTo(HOME as string, OTHER as string)
    const [first, second] = connector.sessions as [FakeSession, FakeSession]
    first.request.onGateway?.('gateway-a')
    second.request.onGateway?.('gateway-b')
    await clock.advance(60_000)
    expect(link.status.standby).toMatchObject({ state: 'ready', serverAddr: OTHER })
    expect(connector.connects).toBe(2)
  })
})
