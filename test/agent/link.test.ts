import { describe, expect, it } from 'vitest'
import { PoisonedError, type Session } from '../../src/agent/connector.ts'
import { networkProblem, type Problem, ProblemError } from '../../src/agent/problem.ts'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { type FakeSession, gate, refusal } from '../helpers/fake-connector.ts'
import { linkOnFake, NO_TOKEN } from '../helpers/link-on-fake.ts'

const TIMINGS = DEFAULT_TIMINGS.link
const DNS: Problem = { reason: 'dns', detail: 'no such name', remedy: 'Fix it.', permanent: false }

describe('Link', () => {
  it('connects and hands out the session', async () => {
    const { link, connector, clock, start, changes } = linkOnFake()
    expect(link.session).toBeUndefined()
    await start()
    expect(link.session).toBe(connector.last)
    expect(link.status).toMatchObject({ state: 'up', since: clock.now() })
    expect(link.status.reason).toBeUndefined()
    expect([...new Set(changes)]).toEqual(['connecting', 'up'])
  })

  it('knows how long it has been down, also when the clock is set meanwhile', async () => {
    const { link, connector, clock, start } = linkOnFake()
    connector.onConnect = () => {
      throw refusal(107)
    }
    await start()
    await clock.advance(60_000)
    clock.stepWall(56 * 365 * 86_400_000)
    await clock.advance(60_000)
    expect(link.status).toMatchObject({ state: 'refused', forMs: 120_000 })
  })

  it('shows the latency of the last heartbeat while it is up', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    connector.last.request.onHeartbeat(12)
    expect(link.status.latencyMs).toBe(12)
    connector.last.lose()
    await clock.advance(0)
    expect(link.status.latencyMs).toBeUndefined()
  })

  it('builds a new session within 30 ms when one is lost that was up', async () => {
    for (const chance of [0, 0.5, 0.999]) {
      const { link, connector, clock, start } = linkOnFake({ random: () => chance })
      await start()
      await clock.advance(TIMINGS.quickAfterMs)
      connector.last.lose()
      await clock.advance(0)
      expect(link.status.nextRetryAt).toBe(clock.now() + Math.ceil(30 * (1 - chance)))
      await clock.advance(30)
      expect(link.status.state).toBe('up')
      expect(connector.connects).toBe(2)
    }
  })

  it('backs off when the quick try fails, and when a link breaks as soon as it is up', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    await clock.advance(TIMINGS.quickAfterMs)
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    connector.last.lose()
    await clock.advance(0)
    await clock.advance(30)
    expect(link.status.nextRetryAt).toBe(clock.now() + 500)
    await clock.advance(500)
    expect(link.status.nextRetryAt).toBe(clock.now() + 1_000)
    connector.onConnect = () => {}
    await clock.advance(1_000)
    await clock.advance(TIMINGS.quickAfterMs - 1)
    connector.last.lose()
    await clock.advance(0)
    expect(link.status.nextRetryAt).toBe(clock.now() + 2_000)
  })

  it('builds a new session when the old one is lost, after a short pause', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    const first = connector.last
    first.lose('the wire was cut')
    await clock.advance(0)
    expect(link.session).toBeUndefined()
    expect(link.status).toMatchObject({
      state: 'waiting',
      reason: 'network',
      lastError: 'the wire was cut',
      nextRetryAt: clock.now() + 500,
    })
    expect(first.isClosed).toBe(true)
    await clock.advance(499)
    expect(connector.connects).toBe(1)
    await clock.advance(1)
    expect(link.session).toBe(connector.last)
    expect(connector.sessions).toHaveLength(2)
  })

  it('waits longer and longer, up to 4 s, while it cannot connect', async () => {
    const { link, connector, clock, start } = linkOnFake()
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    await start()
    const pauses: number[] = []
    for (let attempt = 0; attempt < 7; attempt += 1) {
      const pause = (link.status.nextRetryAt ?? 0) - clock.now()
      pauses.push(pause)
      await clock.advance(pause)
    }
    expect(pauses).toEqual([500, 1_000, 2_000, 4_000, 4_000, 4_000, 4_000])
  })

  it('starts from the shortest pause only after it stayed up for a while', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    const pauseAfter = async (upMs: number) => {
      await clock.advance(upMs)
      connector.last.lose()
      await clock.advance(0)
      const pause = (link.status.nextRetryAt ?? 0) - clock.now()
      await clock.advance(pause)
      return pause
    }
    expect(await pauseAfter(999)).toBe(500)
    expect(await pauseAfter(999)).toBe(1_000)
    expect(await pauseAfter(TIMINGS.stableMs - 1)).toBe(30)
    expect(await pauseAfter(999)).toBe(2_000)
    expect(await pauseAfter(TIMINGS.stableMs)).toBe(30)
    expect(await pauseAfter(999)).toBe(500)
  })

  it('counts one outage from its beginning, whatever is tried meanwhile', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    await clock.advance(5_000)
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    connector.last.lose()
    await clock.advance(0)
    const since = clock.now()
    await clock.advance(60_000)
    expect(link.status).toMatchObject({ since, forMs: 60_000 })
    connector.onConnect = () => {
      throw refusal(107)
    }
    await clock.advance(8_000)
    expect(link.status).toMatchObject({ state: 'refused', since, forMs: 68_000 })
    link.authtokenChanged()
    connector.onConnect = () => {}
    await clock.advance(8_000)
    expect(link.status).toMatchObject({ state: 'up' })
    expect(link.status.since).toBeGreaterThan(since)
  })

  it('does not connect before the preflight is through', async () => {
    let problem: Problem | undefined = DNS
    const { link, connector, clock, start } = linkOnFake({
      preflight: async () => {
        if (problem) throw new ProblemError(problem)
      },
    })
    await start()
    expect(link.status).toMatchObject({ state: 'waiting', reason: 'dns', remedy: 'Fix it.' })
    expect(connector.connects).toBe(0)
    problem = undefined
    await clock.advance(500)
    expect(link.status.state).toBe('up')
  })

  it('has a brief preflight after a session, and the whole one after a failure to give the reason', async () => {
    const scopes: string[] = []
    const { link, connector, clock, start } = linkOnFake({
      serverAddrs: ['a.test:1'],
      preflight: async (_address, _signal, scope) => {
        scopes.push(scope)
        if (scopes.length === 5) throw new ProblemError(DNS)
      },
    })
    const lose = async () => {
      await clock.advance(TIMINGS.stableMs)
      connector.last.lose()
      await clock.advance(0)
      await clock.advance(TIMINGS.quickMs)
    }
    await start()
    await lose()
    await lose()
    expect(scopes).toEqual(['whole', 'brief', 'brief'])
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    await lose()
    expect(scopes.slice(3)).toEqual(['brief', 'whole'])
    expect(link.status).toMatchObject({ state: 'waiting', reason: 'dns', remedy: 'Fix it.' })
    await clock.advance(TIMINGS.backoffBaseMs)
    expect(link.status.lastError).toBe('refused')
    connector.onConnect = () => {}
    await clock.advance(2 * TIMINGS.backoffBaseMs)
    expect(link.status.state).toBe('up')
    expect(scopes.slice(5)).toEqual(['whole', 'whole'])
    connector.onConnect = () => {
      throw refusal(107)
    }
    await lose()
    expect(link.status.state).toBe('refused')
    expect(scopes.slice(7)).toEqual(['brief'])
  })

  it('has the whole preflight before each connect to the hosted service, and at another gateway', async () => {
    const scopes: unknown[] = []
    const preflight = async (...args: unknown[]) => void scopes.push([args[0], args[2]])
    const hosted = linkOnFake({ preflight })
    await hosted.start()
    await hosted.clock.advance(TIMINGS.quickAfterMs)
    hosted.connector.last.lose()
    await hosted.clock.advance(0)
    await hosted.clock.advance(TIMINGS.quickMs)
    expect(scopes.splice(0)).toEqual([
      [undefined, 'whole'],
      [undefined, 'whole'],
    ])
    const ours = linkOnFake({ preflight, serverAddrs: TWO, hasStandby: false })
    await ours.start()
    for (let loss = 0; loss < 2; loss += 1) {
      await ours.clock.advance(TIMINGS.quickAfterMs)
      ours.connector.last.lose()
      await ours.clock.advance(0)
      await ours.clock.advance(TIMINGS.quickMs)
    }
    expect(scopes).toEqual([
      ['a.test:1', 'whole'],
      ['b.test:1', 'whole'],
      ['a.test:1', 'brief'],
    ])
  })

  it('waits without trying as long as there is no token, and connects when it comes', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake({ authtoken: () => NO_TOKEN })
    await start()
    await clock.advance(3_600_000)
    expect(connector.connects).toBe(0)
    expect(link.status).toMatchObject({
      state: 'waiting',
      reason: 'auth',
      remedy: 'Put one there.',
      nextRetryAt: undefined,
    })
    setToken(undefined)
    await link.stop({ drainMs: 10_000 })

    const late = linkOnFake()
    late.setToken(undefined)
    await late.start()
    expect(late.connector.connects).toBe(0)
    late.setToken('good')
    await late.clock.advance(0)
    expect(late.link.status.state).toBe('up')
  })

  it.each([
    ['waiting', NO_TOKEN],
    ['refused', { ...NO_TOKEN, permanent: true }],
  ])('tells a new reason for which it goes on being %s', async (state, first) => {
    const told: (string | undefined)[] = []
    let problem = first
    const { link, clock, start } = linkOnFake({
      authtoken: () => problem,
      onChange: () => told.push(link.status.lastError),
    })
    await start()
    problem = { ...first, detail: 'the authtoken is empty' }
    link.authtokenChanged()
    await clock.advance(0)
    expect(link.status.state).toBe(state)
    expect(told).toEqual(['no authtoken', 'the authtoken is empty'])
  })

  it('retries a refused token after 2, 4, 8 … 60 s, and a new one at once', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake()
    connector.onConnect = ({ authtoken }) => {
      if (authtoken.reveal() === 'good') throw refusal(107)
    }
    await start()
    expect(link.status).toMatchObject({
      state: 'refused',
      reason: 'auth',
      serviceCode: 'ERR_NGROK_107',
      nextRetryAt: clock.now() + 2_000,
    })
    const pauses: number[] = []
    for (let attempt = 0; attempt < 7; attempt += 1) {
      const pause = (link.status.nextRetryAt ?? 0) - clock.now()
      pauses.push(pause)
      await clock.advance(pause)
    }
    expect(pauses).toEqual([2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000])
    const { connects } = connector
    setToken('better')
    await clock.advance(0)
    expect(link.status.state).toBe('up')
    expect(connector.connects).toBe(connects + 1)
  })

  it('is back within 15 s when the service was wrong for 8 s, whatever chance says', async () => {
    for (const chance of [0, 0.5, 0.999]) {
      const { link, connector, clock, start } = linkOnFake({ random: () => chance })
      await start()
      await clock.advance(TIMINGS.stableMs)
      connector.onConnect = () => {
        throw refusal(105)
      }
      connector.last.lose()
      await clock.advance(0)
      await clock.advance(8_000)
      expect(link.status.state).toBe('refused')
      connector.onConnect = () => {}
      await clock.advance(7_000)
      expect(link.status.state).toBe('up')
    }
  })

  it('hands over to a session with the new token, and leaves the old one to the service', async () => {
    const { link, connector, clock, start, setToken, changes, sessions } = linkOnFake()
    await start()
    const first = connector.last
    const connecting = gate()
    connector.onConnect = connecting.wait
    changes.length = 0
    setToken('better')
    await clock.advance(0)
    expect(link.session).toBe(first)
    connecting.open()
    await clock.advance(0)
    expect(connector.last.request.authtoken.reveal()).toBe('better')
    expect(link.session).toBe(connector.last)
    expect(sessions.at(-1)).toBe(connector.last)
    expect(new Set(changes)).toEqual(new Set(['up']))
    await clock.advance(TIMINGS.retireMs - 1)
    expect(first.isClosed).toBe(false)
    first.lose('the service ended it')
    await clock.advance(0)
    expect(first.isClosed).toBe(true)
    expect(link.status.state).toBe('up')
    await clock.advance(60_000)
    expect(connector.journal).toEqual(['close session'])
  })

  it('closes a session that the service does not end, a minute after another has its place', async () => {
    const { connector, clock, start, setToken } = linkOnFake()
    await start()
    setToken('better')
    await clock.advance(0)
    await clock.advance(TIMINGS.retireMs)
    expect(connector.sessions.map(({ isClosed }) => isClosed)).toEqual([true, false])
  })

  it('goes on with the old token while the new one is refused, and says so', async () => {
    const { link, connector, clock, start, setToken, captured } = linkOnFake()
    await start()
    const first = connector.last
    connector.onConnect = ({ authtoken }) => {
      if (authtoken.reveal() === 'worse') throw refusal(105, 'no such token')
    }
    setToken('worse')
    await clock.advance(0)
    expect(link.session).toBe(first)
    expect(link.status).toMatchObject({
      state: 'up',
      nextRetryAt: undefined,
      renewal: { reason: 'auth', lastError: 'no such token', nextRetryAt: clock.now() + 2_000 },
    })
    expect(link.status.reason).toBeUndefined()
    await clock.advance(2_000)
    expect(link.status.renewal).toMatchObject({ nextRetryAt: clock.now() + 4_000 })
    expect(captured.lines.filter(({ level }) => level === 'warn')).toMatchObject([
      { detail: 'no such token', msg: 'session renewal failed' },
    ])
    setToken('better')
    await clock.advance(0)
    expect(link.session).toBe(connector.last)
    expect(link.status.renewal).toBeUndefined()
  })

  it('is refused for the new token when the session with the old one ends', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake()
    await start()
    connector.onConnect = () => {
      throw refusal(105, 'no such token')
    }
    setToken('worse')
    await clock.advance(0)
    connector.last.lose()
    await clock.advance(0)
    await clock.advance(4_000)
    expect(link.status).toMatchObject({ state: 'refused', reason: 'auth' })
  })

  it('has no session any more when the token is taken away', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake()
    await start()
    setToken(undefined)
    await clock.advance(0)
    expect(link.session).toBeUndefined()
    expect(link.status).toMatchObject({ state: 'waiting', lastError: 'no authtoken' })
    expect(connector.last.isClosed).toBe(true)
    expect(connector.connects).toBe(1)
  })

  it('does not stay on a session that was opened with a token that changed meanwhile', async () => {
    const { connector, clock, start, setToken } = linkOnFake()
    const connecting = gate()
    connector.onConnect = connecting.wait
    await start()
    setToken('better')
    connecting.open()
    await clock.advance(500)
    expect(connector.last.request.authtoken.reveal()).toBe('better')
    await clock.advance(TIMINGS.retireMs)
    expect(connector.sessions.map(({ isClosed }) => isClosed)).toEqual([true, false])
  })

  it('hands over to another session within 30 ms when the service asks for one', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    await clock.advance(TIMINGS.quickAfterMs)
    const first = connector.last
    first.command('restart')
    await clock.advance(0)
    expect(link.session).toBe(first)
    expect(link.status.state).toBe('up')
    await clock.advance(30)
    expect(link.session).toBe(connector.last)
    expect(connector.last).not.toBe(first)
    expect(first.isClosed).toBe(false)
  })

  it('connects as without a session when that ends before another has its place', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    await clock.advance(TIMINGS.quickAfterMs)
    const connecting = gate()
    connector.onConnect = connecting.wait
    connector.last.command('restart')
    await clock.advance(0)
    await clock.advance(30)
    connector.last.lose('the service went away')
    expect(link.status).toMatchObject({ state: 'waiting', lastError: 'the service went away' })
    expect(link.session).toBeUndefined()
    connecting.open()
    await clock.advance(0)
    expect(link.status.state).toBe('up')
    expect(link.status.lastError).toBeUndefined()
    expect(connector.connects).toBe(2)
  })

  it('counts no loss of a session that the service wanted to replace', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    connector.last.lose('the network went away')
    await clock.advance(TIMINGS.quickAfterMs)
    expect(link.status).toMatchObject({ state: 'up', losses: 1 })
    const connecting = gate()
    connector.onConnect = connecting.wait
    connector.last.command('restart')
    await clock.advance(0)
    connector.last.lose('the service went away')
    expect(link.status).toMatchObject({ state: 'waiting', losses: 1 })
    connecting.open()
  })

  it('keeps three sessions at most that others have replaced', async () => {
    const { connector, clock, start } = linkOnFake()
    await start()
    for (let count = 0; count < 5; count += 1) {
      await clock.advance(TIMINGS.quickAfterMs)
      connector.last.command('restart')
      await clock.advance(0)
      await clock.advance(30)
    }
    expect(connector.sessions.map(({ isClosed }) => isClosed)).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ])
  })

  it('does not spin for a service that asks for a new session again and again', async () => {
    const { connector, clock, start } = linkOnFake()
    connector.onConnect = ({ onCommand }) => onCommand('restart')
    await start()
    await clock.advance(60_000)
    expect(connector.connects).toBeGreaterThan(5)
    expect(connector.connects).toBeLessThan(20)
  })

  it('is parked when the service asks it to stop, until the authtoken changes', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake()
    await start()
    await clock.advance(5_000)
    connector.last.command('stop')
    await clock.advance(0)
    expect(link.session).toBeUndefined()
    expect(link.status).toMatchObject({
      state: 'parked',
      since: clock.now(),
      reason: 'auth',
      remedy: expect.stringMatching(/^To connect again, restart the agent or change the authtoken/),
      nextRetryAt: undefined,
    })
    expect(connector.last.isClosed).toBe(true)
    await clock.advance(86_400_000)
    link.rebuild(networkProblem('the probe failed'))
    expect(connector.connects).toBe(1)
    expect(clock.sleeping).toBe(0)
    setToken('better')
    await clock.advance(0)
    expect(link.status.state).toBe('up')
    expect(connector.last.request.authtoken.reveal()).toBe('better')
  })

  it('obeys a stop that comes right after the connect, or during a restart', async () => {
    const early = linkOnFake()
    early.connector.onConnect = ({ onCommand }) => onCommand('stop')
    await early.start()
    expect(early.link.status.state).toBe('parked')

    const { link, connector, clock, start } = linkOnFake()
    await start()
    const first = connector.last
    const connecting = gate()
    connector.onConnect = connecting.wait
    first.command('restart')
    await clock.advance(500)
    first.command('stop')
    first.command('restart')
    connecting.open()
    await clock.advance(86_400_000)
    expect(link.status.state).toBe('parked')
    expect(link.session).toBeUndefined()
    expect(connector.connects).toBe(2)
    expect(connector.sessions.map(({ isClosed }) => isClosed)).toEqual([true, true])
  })

  it('lets an earlier session command nothing', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake()
    await start()
    const first = connector.last
    setToken('better')
    await clock.advance(0)
    const second = connector.last
    first.command('stop')
    first.command('restart')
    await clock.advance(60_000)
    expect(link.session).toBe(second)
    second.lose()
    await clock.advance(0)
    await clock.advance(500)
    expect(link.status.state).toBe('up')
  })

  it('is suspect while it is distrusted, over a new session too', async () => {
    const { link, connector, clock, start, changes } = linkOnFake()
    await start()
    await clock.advance(1_000)
    link.distrust(networkProblem('the probe failed'))
    expect(link.status).toMatchObject({
      state: 'suspect',
      since: clock.now(),
      reason: 'network',
      lastError: 'the probe failed',
    })
    expect(link.session).toBe(connector.last)
    link.rebuild(networkProblem('the probe failed'))
    await clock.advance(0)
    await clock.advance(500)
    expect(connector.sessions).toHaveLength(2)
    expect(link.status.state).toBe('suspect')
    link.trust()
    expect(link.status.state).toBe('up')
    expect(link.status.reason).toBeUndefined()
    const told = changes.length
    link.trust()
    expect(changes).toHaveLength(told)
  })

  it('does not wait for a lost session that will not close', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    const closing = gate()
    connector.last.close = closing.wait
    connector.last.lose()
    await clock.advance(0)
    await clock.advance(500)
    expect(link.status.state).toBe('up')
    expect(connector.connects).toBe(2)
    closing.open()
  })

  it('hands over when it is to be rebuilt, and goes on when that fails', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    const first = connector.last
    await clock.advance(TIMINGS.quickAfterMs)
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    link.rebuild(networkProblem('the probe failed'))
    await clock.advance(0)
    await clock.advance(30)
    expect(link.session).toBe(first)
    expect(link.status.renewal).toMatchObject({ lastError: 'refused' })
    connector.onConnect = () => {}
    await clock.advance(500)
    expect(link.session).toBe(connector.last)
    expect(connector.last).not.toBe(first)
  })

  it('starts from the shortest pause with a new token', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake()
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    await start()
    for (const pause of [500, 1_000, 2_000]) await clock.advance(pause)
    setToken('better')
    await clock.advance(0)
    expect(link.status.nextRetryAt).toBe(clock.now() + 500)
  })

  it('gives up and says so when the SDK is poisoned', async () => {
    const { link, connector, clock, start, poisoned } = linkOnFake()
    connector.onConnect = () => {
      throw new PoisonedError('connecting took longer than 15000 ms')
    }
    await start()
    expect(poisoned()).toBe(1)
    await clock.advance(600_000)
    expect(connector.connects).toBe(1)
    expect(link.status).toMatchObject({
      state: 'waiting',
      reason: 'internal',
      nextRetryAt: undefined,
    })
  })

  it('stops while it waits, while it checks the way, and while it is up', async () => {
    const waiting = linkOnFake({ preflight: () => Promise.reject(new ProblemError(DNS)) })
    await waiting.start()
    await waiting.link.stop({ drainMs: 10_000 })
    expect(waiting.clock.sleeping).toBe(0)

    const checking = linkOnFake({
      preflight: (_address, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason))
        }),
    })
    await checking.start()
    await checking.link.stop({ drainMs: 10_000 })
    expect(checking.link.status.state).toBe('stopped')
    expect(checking.captured.lines).toEqual([])

    const up = linkOnFake()
    await up.start()
    await up.link.stop({ drainMs: 10_000 })
    expect(up.connector.journal).toEqual(['close session'])
    await up.link.stop({ drainMs: 10_000 })
  })

  it('has stopped only when the sessions that it lost are put away', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    const closing = gate()
    connector.last.close = closing.wait
    connector.last.lose()
    await clock.advance(0)
    await clock.advance(500)
    const journal: string[] = []
    const stopped = link.stop({ drainMs: 10_000 }).then(() => journal.push('stopped'))
    await clock.advance(0)
    journal.push('put away')
    closing.open()
    await stopped
    expect(journal).toEqual(['put away', 'stopped'])
  })

  it('does not wait for a connect when it stops, and closes what still comes of it', async () => {
    const { link, connector, clock, start } = linkOnFake()
    const connecting = gate()
    connector.onConnect = connecting.wait
    await start()
    await link.stop({ drainMs: 10_000 })
    expect(link.status.state).toBe('stopped')
    connecting.open()
    await clock.advance(0)
    expect(connector.last.isClosed).toBe(true)
  })

  it('does not mind a connect that fails after it has stopped', async () => {
    const { link, connector, clock, start } = linkOnFake()
    const connecting = gate()
    connector.onConnect = async () => {
      await connecting.wait()
      throw new ProblemError(networkProblem('too late'))
    }
    await start()
    await link.stop({ drainMs: 10_000 })
    connecting.open()
    await clock.advance(0)
    expect(link.status.state).toBe('stopped')
  })

  it('logs why it is down and for how long it waits, and when it is up again', async () => {
    const { connector, clock, start, captured } = linkOnFake()
    connector.onConnect = () => {
      throw refusal(107)
    }
    await start()
    connector.onConnect = () => {}
    await clock.advance(TIMINGS.refusal.baseMs)
    expect(captured.lines).toMatchObject([
      {
        level: 'warn',
        reason: 'auth',
        detail: 'refused',
        serviceCode: 'ERR_NGROK_107',
        delayMs: TIMINGS.refusal.baseMs,
      },
      { level: 'info', msg: 'link up' },
    ])
  })

  it('says nothing of a next try while it tries', async () => {
    const { link, connector, clock, start } = linkOnFake()
    await start()
    connector.last.lose()
    await clock.advance(0)
    connector.onConnect = () => new Promise(() => {})
    await clock.advance(500)
    expect(link.status).toMatchObject({ state: 'connecting', nextRetryAt: undefined })
  })

  it('logs an outage once, not once per try', async () => {
    const { connector, clock, start, captured } = linkOnFake()
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    await start()
    await clock.advance(3_600_000)
    expect(connector.connects).toBeGreaterThan(400)
    expect(captured.lines.filter(({ level }) => level !== 'debug')).toHaveLength(1)
  })

  it('keeps a session that serves when the SDK is poisoned, and gives up when that ends', async () => {
    const { link, connector, clock, start, poisoned, setToken } = linkOnFake()
    await start()
    connector.onConnect = () => {
      throw new PoisonedError('connecting took longer than 15000 ms')
    }
    setToken('better')
    await clock.advance(600_000)
    expect(connector.connects).toBe(2)
    expect(poisoned()).toBe(0)
    expect(link.status).toMatchObject({ state: 'up', renewal: { reason: 'internal' } })
    connector.last.lose()
    await clock.advance(0)
    expect(poisoned()).toBe(1)
  })

  it('drains the session of our gateway before it closes it', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: ['a.test:1'] })
    await start()
    const draining = gate()
    connector.onDrain = async () => {
      await draining.wait()
      return true
    }
    const stopped = link.stop({ drainMs: 10_000 })
    await clock.advance(5_000)
    expect(connector.journal).toEqual(['drain 10000'])
    draining.open()
    await stopped
    expect(connector.journal).toEqual(['drain 10000', 'close session'])
  })
})

describe('Link as a duplicate', () => {
  it('says so all the time, and serves within 10 s of the end of the other one', async () => {
    for (const chance of [0, 0.999]) {
      const { link, connector, clock, start } = linkOnFake({ random: () => chance })
      connector.onConnect = () => {
        throw refusal(830, 'The device dev_1 is connected already, from 10.0.0.2.')
      }
      await start()
      expect(link.status).toMatchObject({
        state: 'duplicate',
        reason: 'duplicate',
        serviceCode: 'ERR_NGROK_830',
        lastError: 'The device dev_1 is connected already, from 10.0.0.2.',
        remedy: expect.stringMatching(/^Stop the agent on one .* device-agent identity reset/),
      })
      const states = new Set<string>()
      connector.onConnect = () => {
        states.add(link.status.state)
        throw refusal(830, 'The device dev_1 is connected already, from 10.0.0.2.')
      }
      await clock.advance(60_000)
      expect(connector.connects).toBe(chance === 0 ? 13 : 9)
      expect([...states, link.status.state]).toEqual(['duplicate', 'duplicate'])
      connector.onConnect = () => {}
      await clock.advance(7_500)
      expect(link.status.state).toBe('up')
    }
  })

  it('tries at once with another authtoken', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake()
    connector.onConnect = () => {
      throw refusal(830)
    }
    await start()
    connector.onConnect = () => {}
    setToken('better')
    await clock.advance(0)
    expect(link.status.state).toBe('up')
  })

  it('serves on when another one is refused, and shows it until that stays away', async () => {
    const { link, connector, clock, start, captured } = linkOnFake()
    await start()
    connector.last.request.onDuplicate('10.0.0.3')
    connector.last.request.onDuplicate('10.0.0.3')
    expect(link.status).toMatchObject({
      state: 'up',
      duplicate: { ip: '10.0.0.3', seenAt: clock.now() },
    })
    expect(captured.lines.filter(({ level }) => level === 'warn')).toMatchObject([
      {
        ip: '10.0.0.3',
        msg: 'another device has the same identity: stop one of the two, or run device-agent identity reset --yes on the copy',
      },
    ])
    await clock.advance(TIMINGS.duplicateShownMs - 1)
    expect(link.status.duplicate).toBeDefined()
    await clock.advance(1)
    expect(link.status.duplicate).toBeUndefined()
  })
})

const TWO = ['a.test:1', 'b.test:1']

describe('Link with two addresses', () => {
  const addressOf = ({ request }: FakeSession) => request.serverAddr

  it('keeps a second session ready at the other one, without endpoints', async () => {
    const { link, connector, start } = linkOnFake({ serverAddrs: TWO })
    await start()
    expect(connector.sessions.map(addressOf)).toEqual(TWO)
    expect(link.session).toBe(connector.sessions[0])
    expect(link.status).toMatchObject({
      state: 'up',
      serverAddr: 'a.test:1',
      standby: { state: 'ready', serverAddr: 'b.test:1' },
    })
  })

  it('serves on the second session in the moment the first one ends', async () => {
    const { link, connector, clock, start, changes, sessions } = linkOnFake({ serverAddrs: TWO })
    await start()
    const [first, second] = connector.sessions
    await clock.advance(TIMINGS.quickAfterMs)
    changes.length = 0
    first?.lose()
    expect(link.session).toBe(second)
    expect(sessions.at(-1)).toBe(second)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: 'b.test:1' })
    expect(new Set(changes)).toEqual(new Set(['up']))
    await clock.advance(0)
    await clock.advance(TIMINGS.quickMs)
    expect(connector.sessions.map(addressOf)).toEqual([...TWO, 'a.test:1'])
    expect(link.status.standby).toMatchObject({ state: 'ready', serverAddr: 'a.test:1' })
    expect(first?.isClosed).toBe(true)
  })

  it('says why the second session is not ready, and goes on trying', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO })
    connector.onConnect = ({ serverAddr }) => {
      if (serverAddr === 'b.test:1') throw refusal(105, 'no such token')
    }
    await start()
    expect(link.status).toMatchObject({
      state: 'up',
      standby: {
        state: 'refused',
        reason: 'auth',
        lastError: 'no such token',
        nextRetryAt: clock.now() + 2_000,
      },
    })
    connector.onConnect = () => {}
    await clock.advance(2_000)
    expect(link.status.standby?.state).toBe('ready')
    expect(link.status.standby?.reason).toBeUndefined()
  })

  it('has another second session when that one ends', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO })
    await start()
    connector.last.lose('the wire was cut')
    expect(link.status).toMatchObject({
      state: 'up',
      standby: { state: 'waiting', lastError: 'the wire was cut' },
    })
    await clock.advance(0)
    await clock.advance(500)
    expect(link.status.standby?.state).toBe('ready')
    expect(connector.sessions[1]?.isClosed).toBe(true)
  })

  it('keeps no second session with a token that changed while it was connected', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake({ serverAddrs: TWO })
    const connecting = gate()
    connector.onConnect = ({ serverAddr }) =>
      serverAddr === 'b.test:1' ? connecting.wait() : undefined
    await start()
    setToken('better')
    connecting.open()
    await clock.advance(0)
    const [old, kept] = connector.sessions.filter((it) => addressOf(it) === 'b.test:1')
    expect([old, kept].map((it) => it?.request.authtoken.reveal())).toEqual(['good', 'better'])
    expect([old?.isClosed, kept?.isClosed, link.status.standby?.state]).toEqual([
      true,
      false,
      'ready',
    ])
  })

  it('keeps no second session where the link has come to serve meanwhile', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO })
    const connecting = gate()
    let isFirst = true
    connector.onConnect = ({ serverAddr }) => {
      if (serverAddr === 'a.test:1' || !isFirst) return
      isFirst = false
      return connecting.wait()
    }
    await start()
    await clock.advance(TIMINGS.quickAfterMs)
    const { onConnect } = connector
    connector.onConnect = () => {
      connector.onConnect = onConnect
      throw new ProblemError(networkProblem('refused'))
    }
    link.rebuild(networkProblem('the probe failed'))
    await clock.advance(0)
    await clock.advance(30)
    await clock.advance(500)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: 'b.test:1' })
    connecting.open()
    await clock.advance(0)
    expect(link.status.standby).toMatchObject({ state: 'ready', serverAddr: 'a.test:1' })
  })

  it('goes first to the gateway that holds the names when both sessions are lost', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO })
    await start()
    const [first, second] = connector.sessions as [FakeSession, FakeSession]
    link.tried(first, undefined)
    await clock.advance(TIMINGS.quickAfterMs)
    first.lose('the wire was cut')
    expect(link.session).toBe(second)
    second.lose('the wire was cut')
    await clock.advance(30)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: 'a.test:1' })
  })

  it('returns to the gateway that holds the names when another one cannot confirm them', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: [...TWO, 'c.test:1'] })
    await start()
    link.tried(connector.sessions[0] as Session, undefined)
    await clock.advance(TIMINGS.quickAfterMs)
    const lost = connector.sessions.slice(0, 2)
    connector.onConnect = ({ serverAddr }) => {
      connector.onConnect = () => {}
      if (serverAddr === 'a.test:1') throw new ProblemError(networkProblem('refused'))
    }
    for (const session of lost.reverse()) session.lose('the wire was cut')
    await clock.advance(30)
    await clock.advance(500)
    const elsewhere = link.session as FakeSession
    expect(link.status).toMatchObject({ serverAddr: 'b.test:1', standby: { state: 'ready' } })
    expect(link.status.standby?.serverAddr).toBe('a.test:1')
    link.tried(elsewhere, refusal(803).problem)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: 'a.test:1' })
    expect(elsewhere.isClosed).toBe(true)
  })

  it('returns as soon as that gateway can be reached, and keeps a session elsewhere until then', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO })
    await start()
    const [first, second] = connector.sessions as [FakeSession, FakeSession]
    link.tried(first, undefined)
    connector.onConnect = () => {
      throw new ProblemError(networkProblem('refused'))
    }
    first.lose()
    await clock.advance(0)
    link.tried(second, refusal(803).problem)
    expect(link.session).toBe(second)
    connector.onConnect = () => {}
    await clock.advance(500)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: 'a.test:1' })
  })

  it('stays where its names are when a new name cannot be confirmed', async () => {
    const { link, connector, start } = linkOnFake({ serverAddrs: TWO })
    await start()
    const [first] = connector.sessions
    link.tried(first as Session, undefined)
    link.tried(first as Session, refusal(803).problem)
    expect(link.session).toBe(first)
  })

  it('returns to that gateway without a standby too, and serves elsewhere until it is there', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO, hasStandby: false })
    await start()
    link.tried(connector.last, undefined)
    await clock.advance(TIMINGS.quickAfterMs)
    connector.last.lose('the wire was cut')
    await clock.advance(30)
    const elsewhere = connector.last
    expect(link.status.serverAddr).toBe('b.test:1')
    connector.onConnect = ({ serverAddr }) => {
      connector.onConnect = () => {}
      if (serverAddr === 'a.test:1') throw new ProblemError(networkProblem('refused'))
    }
    link.tried(elsewhere, refusal(803).problem)
    await clock.advance(500)
    expect(link.session).toBe(elsewhere)
    for (let tries = 0; tries < 2; tries += 1) {
      await clock.advance(4_000)
      link.tried(link.session as Session, refusal(803).problem)
    }
    await clock.advance(4_000)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: 'a.test:1' })
  })

  it('looks for its names at one gateway after another, with pauses, after a start', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO })
    await start()
    const refuse = () => link.tried(link.session as Session, refusal(803).problem)
    refuse()
    expect(link.status.serverAddr).toBe('b.test:1')
    await clock.advance(499)
    refuse()
    expect(link.status.serverAddr).toBe('b.test:1')
    await clock.advance(1)
    refuse()
    expect(link.status.serverAddr).toBe('a.test:1')
    await clock.advance(0)
    expect(connector.sessions.filter(({ isClosed }) => !isClosed)).toHaveLength(2)
  })

  it('tries the other address when one cannot be reached', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO })
    connector.onConnect = ({ serverAddr }) => {
      if (serverAddr === 'a.test:1') throw new ProblemError(networkProblem('refused'))
    }
    await start()
    await clock.advance(500)
    expect(link.status).toMatchObject({ state: 'up', serverAddr: 'b.test:1' })
    expect(link.status.standby).toMatchObject({ state: 'waiting', serverAddr: 'a.test:1' })
  })

  it('renews both with a new token, and the one that is asked to restart', async () => {
    const { link, connector, clock, start, setToken } = linkOnFake({ serverAddrs: TWO })
    await start()
    setToken('better')
    await clock.advance(0)
    const tokens = connector.sessions.map(({ request }) => request.authtoken.reveal())
    expect(tokens).toEqual(['good', 'good', 'better', 'better'])
    const standby = connector.sessions.findLast((session) => addressOf(session) === 'b.test:1')
    expect(link.session).not.toBe(standby)
    standby?.command('restart')
    await clock.advance(0)
    expect(standby?.isClosed).toBe(true)
    expect(connector.sessions).toHaveLength(5)
    expect(link.status.standby).toMatchObject({ state: 'ready', serverAddr: 'b.test:1' })
  })

  it('ends both when the service tells either to stop, or when it stops', async () => {
    const parked = linkOnFake({ serverAddrs: TWO })
    await parked.start()
    parked.connector.last.command('stop')
    await parked.clock.advance(86_400_000)
    expect(parked.link.status).toMatchObject({ state: 'parked', standby: { state: 'idle' } })
    expect(parked.connector.sessions.map(({ isClosed }) => isClosed)).toEqual([true, true])

    const { link, connector, start } = linkOnFake({ serverAddrs: TWO })
    await start()
    await link.stop({ drainMs: 10_000 })
    expect(connector.journal.sort()).toEqual(['close session', 'close session', 'drain 10000'])
    expect(link.status.standby?.state).toBe('stopped')
  })

  it('has no second session where none is wanted, and takes turns nevertheless', async () => {
    const { link, connector, clock, start } = linkOnFake({ serverAddrs: TWO, hasStandby: false })
    await start()
    await clock.advance(TIMINGS.quickAfterMs)
    expect(link.status.standby).toBeUndefined()
    connector.last.lose()
    await clock.advance(0)
    await clock.advance(30)
    expect(connector.sessions.map(addressOf)).toEqual(TWO)
  })

  it('takes turns among the addresses that do not serve', async () => {
    const tried: (string | undefined)[] = []
    const { connector, clock, start } = linkOnFake({ serverAddrs: [...TWO, 'c.test:1'] })
    connector.onConnect = ({ serverAddr }) => {
      tried.push(serverAddr)
      if (serverAddr !== 'a.test:1') throw new ProblemError(networkProblem('refused'))
    }
    await start()
    await clock.advance(1_500)
    expect(tried).toEqual(['a.test:1', 'b.test:1', 'c.test:1', 'b.test:1'])
  })

  it('serves on with one session when the SDK is poisoned by the other', async () => {
    const { link, connector, clock, start, poisoned } = linkOnFake({ serverAddrs: TWO })
    connector.onConnect = ({ serverAddr }) => {
      if (serverAddr === 'b.test:1') throw new PoisonedError('connecting took longer than 15000 ms')
    }
    await start()
    await clock.advance(3_600_000)
    expect(connector.connects).toBe(2)
    expect(poisoned()).toBe(0)
    connector.last.lose()
    expect(poisoned()).toBe(1)
    expect(link.status.state).toBe('waiting')
  })
})
