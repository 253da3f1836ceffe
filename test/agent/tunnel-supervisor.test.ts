import { describe, expect, it, onTestFinished } from 'vitest'
import { Conflicts } from '../../src/agent/conflicts.ts'
import { networkProblem, ProblemError } from '../../src/agent/problem.ts'
import { serviceProblem } from '../../src/agent/service-error.ts'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { TunnelSupervisor } from '../../src/agent/tunnel-supervisor.ts'
import { Secret } from '../../src/base/secret.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { FakeConnector, type FakeSession, gate, refusal } from '../helpers/fake-connector.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

const TIMINGS = DEFAULT_TIMINGS.tunnel

async function setUp({ isUp = true, random = (): number => 0, lookUp = async () => {} } = {}) {
  const captured = captureLog()
  const connector = new FakeConnector()
  const clock = new ManualClock()
  let session: FakeSession | undefined
  let forwardsTo = 'localhost:1'
  const states: string[] = []
  const supervisor = new TunnelSupervisor({
    session: () => session,
    wanted: async () => {
      const target = forwardsTo
      await lookUp()
      return {
        domain: 'a.test',
        dialUrl: `http://${target}`,
        forwardsTo: target,
        policy: undefined,
      }
    },
    timings: TIMINGS,
    conflicts: new Conflicts({ timings: TIMINGS, random, clock }),
    // Every pause is as long as it can be; ghost retries are the shortest.
    random,
    clock,
    log: captured.log,
    onChange: () => {
      const { state } = supervisor.status
      if (state !== states.at(-1)) states.push(state)
    },
  })
  onTestFinished(() => supervisor.stop())
  const connect = async () => {
    await connector.connect({
      authtoken: new Secret('t'),
      serverAddr: undefined,
      caCert: undefined,
      metadata: '',
      onLost: () => {},
      onHeartbeat: () => {},
      onCommand: () => {},
      onDuplicate: () => {},
    })
    session = connector.last
  }
  const setLink = async (up: boolean) => {
    if (up) await connect()
    else {
      session?.lose()
      session = undefined
    }
    supervisor.linkChanged()
    await clock.advance(0)
  }
  if (isUp) await connect()
  return {
    connector,
    clock,
    supervisor,
    states,
    setLink,
    start: async () => {
      supervisor.start()
      await clock.advance(0)
    },
    want: (target: string) => {
      forwardsTo = target
      supervisor.reopen()
    },
    pause: () => (supervisor.status.nextRetryAt ?? 0) - clock.now(),
    lines: captured.lines,
  }
}

describe('TunnelSupervisor', () => {
  it('opens what is wanted', async () => {
    const { supervisor, connector, clock, start, states } = await setUp()
    await start()
    await supervisor.settled()
    expect(supervisor.status).toEqual({
      state: 'online',
      since: clock.now(),
      problem: undefined,
      nextRetryAt: undefined,
    })
    expect(supervisor.url).toBe('https://a.test:8443')
    expect(connector.last.endpoints.get('a.test')?.dialUrl).toBe('http://localhost:1')
    expect(states).toEqual(['opening', 'online'])
  })

  it('waits for the link without a problem of its own, and opens when it comes', async () => {
    const { supervisor, setLink, start } = await setUp({ isUp: false })
    await start()
    await supervisor.settled()
    expect(supervisor.status).toMatchObject({ state: 'waiting', problem: undefined })
    await setLink(true)
    expect(supervisor.status.state).toBe('online')
  })

  it('opens again on the next session after the link was lost', async () => {
    const { supervisor, connector, setLink, start, states } = await setUp()
    await start()
    await setLink(false)
    expect(supervisor.status).toMatchObject({ state: 'waiting', problem: undefined })
    await setLink(true)
    expect(connector.online).toEqual(['a.test'])
    expect(states).toEqual(['opening', 'online', 'waiting', 'opening', 'online'])
  })

  it('opens on the new session when it missed the moment without one', async () => {
    const { connector, setLink, start } = await setUp()
    await start()
    await setLink(true)
    expect(connector.last.endpoints.has('a.test')).toBe(true)
    expect(connector.journal).toEqual(['open a.test', 'open a.test'])
  })

  it('retries a failure with growing pauses, up to 30 s', async () => {
    const { connector, clock, start, pause, supervisor } = await setUp()
    connector.onOpen = () => {
      throw new ProblemError(networkProblem('no answer'))
    }
    await start()
    const pauses: number[] = []
    for (let attempt = 0; attempt < 8; attempt += 1) {
      pauses.push(pause())
      await clock.advance(pause())
    }
    expect(pauses).toEqual([500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
    expect(supervisor.status).toMatchObject({ state: 'waiting', problem: { detail: 'no answer' } })
  })

  it('retries a refusal after 2, 4, 8 … 60 s, and at once when something else is wanted', async () => {
    const { supervisor, connector, clock, start, want, pause } = await setUp()
    connector.onOpen = ({ forwardsTo }) => {
      if (forwardsTo === 'localhost:1') throw refusal(316)
    }
    await start()
    await supervisor.settled()
    expect(supervisor.status).toMatchObject({ state: 'refused', problem: { reason: 'acl' } })
    const pauses: number[] = []
    for (let attempt = 0; attempt < 7; attempt += 1) {
      pauses.push(pause())
      await clock.advance(pause())
    }
    expect(pauses).toEqual([2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000])
    expect(connector.online).toEqual([])
    want('localhost:2')
    await supervisor.settled()
    expect(supervisor.status.state).toBe('online')
  })

  it('takes a refusal for its own ghost for a while, then for a conflict', async () => {
    const { supervisor, connector, clock, start } = await setUp()
    connector.onOpen = () => {
      throw refusal(334)
    }
    await start()
    expect(supervisor.status).toMatchObject({ state: 'waiting', problem: { reason: 'conflict' } })
    await clock.advance(TIMINGS.ghostMs - TIMINGS.ghostRetryMs)
    expect(supervisor.status.state).not.toBe('refused')
    await clock.advance(2 * TIMINGS.ghostRetryMs)
    expect(supervisor.status).toMatchObject({ state: 'refused', problem: { reason: 'conflict' } })
    connector.onOpen = () => {}
    await clock.advance(TIMINGS.conflictRetryMs)
    expect(supervisor.status.state).toBe('online')
  })

  it('opens what else is wanted before it closes what is open, and is online throughout', async () => {
    const { supervisor, connector, start, want, clock, states } = await setUp()
    await start()
    const { since } = supervisor.status
    await clock.advance(5_000)
    want('localhost:2')
    await supervisor.settled()
    await clock.advance(0)
    expect(connector.journal).toEqual(['open a.test', 'open a.test', 'close a.test'])
    expect(connector.last.endpoints.get('a.test')?.forwardsTo).toBe('localhost:2')
    expect(states).toEqual(['opening', 'online'])
    expect(supervisor.status.since).toBe(since)
  })

  it('opens nothing when what is wanted is open', async () => {
    const { supervisor, connector, start, want, clock } = await setUp()
    await start()
    want('localhost:1')
    await supervisor.settled()
    await clock.advance(0)
    expect(connector.journal).toEqual(['open a.test'])
  })

  it('closes first where the service lets nobody take over', async () => {
    const { supervisor, connector, start, want, clock, states } = await setUp()
    connector.onOpen = ({ domain }) => {
      if (connector.online.includes(domain)) throw refusal(334)
    }
    await start()
    want('localhost:2')
    await supervisor.settled()
    await clock.advance(0)
    expect(connector.journal).toEqual(['open a.test', 'close a.test', 'open a.test'])
    expect(supervisor.status).toMatchObject({ state: 'online', problem: undefined })
    expect(states).toEqual(['opening', 'online', 'opening', 'online'])
  })

  it('keeps what is open when what is wanted is refused, and goes on trying', async () => {
    const { supervisor, connector, start, want, clock, pause, lines } = await setUp()
    await start()
    connector.onOpen = ({ forwardsTo }) => {
      if (forwardsTo === 'localhost:2') throw refusal(9026, 'bad policy')
    }
    want('localhost:2')
    await supervisor.settled()
    expect(supervisor.status).toMatchObject({ state: 'online', problem: { reason: 'policy' } })
    expect(pause()).toBe(2_000)
    expect(connector.last.endpoints.get('a.test')?.forwardsTo).toBe('localhost:1')
    await clock.advance(2_000)
    expect(pause()).toBe(4_000)
    expect(lines.filter(({ level }) => level === 'warn')).toMatchObject([
      {
        reason: 'policy',
        detail: 'bad policy',
        msg: 'tunnel update failed, previous version stays online',
      },
    ])
    connector.onOpen = () => {}
    await clock.advance(4_000)
    expect(supervisor.status).toMatchObject({ state: 'online', problem: undefined })
    expect(connector.journal).toEqual(['open a.test', 'open a.test', 'close a.test'])
    expect(connector.last.endpoints.get('a.test')?.forwardsTo).toBe('localhost:2')
  })

  it('is content with what is open when that is wanted again after a refusal', async () => {
    const { supervisor, connector, start, want, clock } = await setUp()
    await start()
    connector.onOpen = () => {
      throw refusal(9026)
    }
    want('localhost:2')
    await supervisor.settled()
    want('localhost:1')
    await supervisor.settled()
    await clock.advance(0)
    expect(supervisor.status).toMatchObject({ state: 'online', problem: undefined })
    expect(clock.sleeping).toBe(0)
    expect(connector.journal).toEqual(['open a.test'])
  })

  it('moves to the next session while the one before serves, which it leaves alone', async () => {
    const { connector, setLink, start, states } = await setUp()
    await start()
    const [first] = connector.sessions
    await setLink(true)
    expect(connector.journal).toEqual(['open a.test', 'open a.test'])
    expect(connector.last.endpoints.has('a.test')).toBe(true)
    expect(first?.endpoints.has('a.test')).toBe(true)
    expect(states).toEqual(['opening', 'online'])
  })

  it('moves to the next session by closing first where nobody may take over', async () => {
    const { connector, supervisor, setLink, start } = await setUp()
    connector.onOpen = ({ domain }) => {
      if (connector.online.includes(domain)) throw refusal(334)
    }
    await start()
    await setLink(true)
    expect(connector.journal).toEqual(['open a.test', 'close a.test', 'open a.test'])
    expect(connector.last.endpoints.has('a.test')).toBe(true)
    expect(supervisor.status.state).toBe('online')
  })

  it('is online on the earlier session until that ends, when the next one refuses it', async () => {
    const { connector, supervisor, clock, setLink, start } = await setUp()
    await start()
    const [first] = connector.sessions
    connector.onOpen = () => {
      throw refusal(316)
    }
    await setLink(true)
    expect(supervisor.status).toMatchObject({ state: 'online', problem: { reason: 'acl' } })
    first?.lose()
    supervisor.linkChanged()
    await clock.advance(0)
    expect(supervisor.status).toMatchObject({ state: 'refused', problem: { reason: 'acl' } })
  })

  it('forgets what the service closes while it is being replaced', async () => {
    const { connector, supervisor, clock, start, want } = await setUp()
    await start()
    const before = connector.last.endpoints.get('a.test')
    const opening = gate()
    connector.onOpen = opening.wait
    want('localhost:2')
    await clock.advance(0)
    before?.onDropped(networkProblem('moved away'))
    opening.open()
    await clock.advance(0)
    expect(supervisor.status).toMatchObject({ state: 'online', problem: undefined })
    before?.onDropped(networkProblem('moved away again'))
    await clock.advance(0)
    expect(supervisor.status.state).toBe('online')
    expect(connector.last.endpoints.get('a.test')?.forwardsTo).toBe('localhost:2')
  })

  it('leaves the endpoint open when it is told to leave', async () => {
    const { connector, supervisor, start } = await setUp()
    await start()
    await supervisor.stopKeepingEndpoint()
    expect(connector.journal).toEqual(['open a.test'])
    expect(supervisor.status.state).toBe('closing')
  })

  it('settles on what is wanted last when that changes during an opening', async () => {
    const { supervisor, connector, start, want, clock, states } = await setUp()
    const opening = gate()
    connector.onOpen = opening.wait
    await start()
    want('localhost:2')
    const settled = supervisor.settled()
    opening.open()
    await settled
    await clock.advance(0)
    expect(connector.last.endpoints.get('a.test')?.forwardsTo).toBe('localhost:2')
    expect(states).toEqual(['opening', 'online'])
  })

  it('settles on what is wanted last when that changes before the opening', async () => {
    const looking = gate()
    const { connector, start, want, clock } = await setUp({ lookUp: looking.wait })
    await start()
    want('localhost:2')
    looking.open()
    await clock.advance(0)
    expect(connector.last.endpoints.get('a.test')?.forwardsTo).toBe('localhost:2')
  })

  it('opens again after the gateway closed the endpoint, later each time', async () => {
    const { supervisor, connector, clock, start, pause } = await setUp()
    // A device that is up for a while does not count as a tunnel that is.
    await clock.advance(10 * TIMINGS.stableMs)
    await start()
    const drop = async () => {
      connector.last.drop('a.test', networkProblem('moved away'))
      await clock.advance(0)
      return pause()
    }
    expect(await drop()).toBe(500)
    expect(supervisor.status).toMatchObject({ state: 'waiting', problem: { detail: 'moved away' } })
    await clock.advance(500)
    expect(await drop()).toBe(1_000)
    await clock.advance(1_000)
    expect(supervisor.status.state).toBe('online')
    await clock.advance(TIMINGS.stableMs)
    expect(await drop()).toBe(500)
  })

  it('is refused when the gateway closed the endpoint for good', async () => {
    const { supervisor, connector, clock, start } = await setUp()
    await start()
    connector.last.drop('a.test', serviceProblem('revoked', 'ERR_NGROK_300'))
    await clock.advance(0)
    expect(supervisor.status).toMatchObject({ state: 'refused', problem: { reason: 'auth' } })
  })

  it('notices that the endpoint was closed while it was being opened', async () => {
    const { supervisor, connector, clock, start } = await setUp()
    let drops = 1
    connector.onOpen = ({ onDropped }) => {
      if (drops-- > 0) onDropped(networkProblem('at once'))
    }
    await start()
    expect(supervisor.status).toMatchObject({ state: 'waiting', problem: { detail: 'at once' } })
    await clock.advance(500)
    expect(supervisor.status.state).toBe('online')
  })

  it('blames the link, not the SDK, when both go during an opening', async () => {
    const { supervisor, connector, start, setLink } = await setUp()
    const opening = gate()
    connector.onOpen = async () => {
      await opening.wait()
      throw new ProblemError(networkProblem('failed to open muxado stream'))
    }
    await start()
    await setLink(false)
    opening.open()
    await supervisor.settled()
    expect(supervisor.status).toMatchObject({ state: 'waiting', problem: undefined })
  })

  it('counts one outage from its beginning', async () => {
    const { supervisor, connector, clock, start, setLink } = await setUp()
    await start()
    await clock.advance(5_000)
    await setLink(false)
    const since = clock.now()
    connector.onOpen = () => {
      throw refusal(316)
    }
    await clock.advance(5_000)
    await setLink(true)
    expect(supervisor.status).toMatchObject({ state: 'refused', since })
  })

  it('closes the endpoint when it stops, also one that is still being opened', async () => {
    const open = await setUp()
    await open.start()
    await open.supervisor.stop()
    expect(open.connector.journal).toEqual(['open a.test', 'close a.test'])
    expect(open.supervisor.status.state).toBe('closing')

    const opening = await setUp()
    const hook = gate()
    opening.connector.onOpen = hook.wait
    await opening.start()
    const stopped = opening.supervisor.stop()
    hook.open()
    await stopped
    expect(opening.connector.online).toEqual([])
  })

  it('stops while it waits, and leaves no sleeper', async () => {
    const { supervisor, connector, clock, start } = await setUp()
    connector.onOpen = () => {
      throw refusal(316)
    }
    await start()
    await supervisor.stop()
    expect(clock.sleeping).toBe(0)
    await supervisor.stop()
  })

  it('tells whoever waits for an outcome, also when something else is wanted meanwhile', async () => {
    const { connector, clock, supervisor, start, want } = await setUp()
    const slow = gate()
    connector.onOpen = slow.wait
    await start()
    const outcomes: string[] = []
    void supervisor.settled().then(() => outcomes.push(supervisor.status.state))
    want('localhost:2')
    void supervisor.settled().then(() => outcomes.push(supervisor.status.state))
    slow.open()
    await clock.advance(0)
    expect(outcomes).toEqual(['online', 'online'])
  })

  it('does not hold an earlier refusal against what is wanted now', async () => {
    const { connector, supervisor, clock, start, want } = await setUp()
    const slow = gate()
    onTestFinished(slow.open)
    connector.onOpen = () => {
      throw refusal(316)
    }
    await start()
    expect(supervisor.status.problem).toMatchObject({ reason: 'acl' })
    connector.onOpen = slow.wait
    want('localhost:2')
    await clock.advance(0)
    expect(supervisor.status).toMatchObject({ state: 'opening', problem: undefined })
  })

  it('spreads its pauses by chance: up to half, or by a quarter', async () => {
    const { connector, clock, start, pause, supervisor } = await setUp({ random: () => 0.5 })
    connector.onOpen = () => {
      throw refusal(334)
    }
    await start()
    expect(pause()).toBe(0.75 * TIMINGS.ghostRetryMs)
    while (supervisor.status.state !== 'refused') await clock.advance(pause())
    expect(pause()).toBe(1.25 * TIMINGS.conflictRetryMs)
    connector.onOpen = () => {
      throw refusal(316)
    }
    supervisor.reopen()
    await clock.advance(0)
    expect(pause()).toBe(0.875 * TIMINGS.refusal.baseMs)
  })

  it('takes a domain that is taken for its own ghost again once it was online', async () => {
    const { connector, clock, start, supervisor, setLink } = await setUp()
    connector.onOpen = () => {
      throw refusal(334)
    }
    await start()
    await clock.advance(TIMINGS.ghostMs - 1)
    connector.onOpen = () => {}
    await clock.advance(TIMINGS.ghostRetryMs)
    expect(supervisor.status.state).toBe('online')
    connector.onOpen = () => {
      throw refusal(334)
    }
    await setLink(false)
    await setLink(true)
    expect(supervisor.status.state).toBe('waiting')
  })

  it('has a tunnel back within 15 s that was refused for 8 s', async () => {
    for (const chance of [0, 0.5, 0.999]) {
      const { connector, clock, supervisor, start, setLink } = await setUp({ random: () => chance })
      connector.onOpen = () => {
        throw refusal(316)
      }
      await start()
      await clock.advance(8_000)
      connector.onOpen = () => {}
      await clock.advance(7_000)
      expect(supervisor.status.state).toBe('online')
      // A refusal long after that begins with the shortest pause.
      await clock.advance(TIMINGS.stableMs)
      await setLink(false)
      connector.onOpen = () => {
        throw refusal(316)
      }
      await setLink(true)
      expect((supervisor.status.nextRetryAt ?? 0) - clock.now()).toBeLessThanOrEqual(2_000)
    }
  })

  it('starts from the shortest pause when something else is wanted', async () => {
    const { connector, clock, start, pause, want } = await setUp()
    connector.onOpen = () => {
      throw new ProblemError(networkProblem('no answer'))
    }
    await start()
    for (const ms of [500, 1_000, 2_000]) await clock.advance(ms)
    want('localhost:2')
    await clock.advance(0)
    expect(pause()).toBe(500)
  })

  it('says nothing of a next try while it opens', async () => {
    const { connector, clock, start, supervisor } = await setUp()
    connector.onOpen = () => {
      throw new ProblemError(networkProblem('no answer'))
    }
    await start()
    const opening = gate()
    onTestFinished(opening.open)
    connector.onOpen = opening.wait
    await clock.advance(500)
    // The problem stays until the outcome of this try is known.
    expect(supervisor.status).toMatchObject({
      state: 'opening',
      problem: { detail: 'no answer' },
      nextRetryAt: undefined,
    })
  })

  it('logs an outage once with its reason, and when the tunnel is online again', async () => {
    const { connector, clock, start, lines } = await setUp()
    connector.onOpen = () => {
      throw refusal(316)
    }
    await start()
    await clock.advance(20 * TIMINGS.refusal.capMs)
    connector.onOpen = () => {}
    await clock.advance(TIMINGS.refusal.capMs)
    expect(lines.filter(({ level }) => level !== 'debug')).toMatchObject([
      {
        level: 'warn',
        reason: 'acl',
        detail: 'refused',
        serviceCode: 'ERR_NGROK_316',
        msg: 'tunnel refused',
      },
      { level: 'info', url: 'https://a.test:8443', msg: 'tunnel online' },
    ])
    expect(lines.filter(({ level }) => level === 'debug')).toHaveLength(23)
  })
})
