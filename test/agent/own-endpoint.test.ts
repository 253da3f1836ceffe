import { describe, expect, it, onTestFinished } from 'vitest'
import { Conflicts } from '../../src/agent/conflicts.ts'
import { OwnEndpoint } from '../../src/agent/own-endpoint.ts'
import type { PublicAnswer } from '../../src/agent/probes/public-request.ts'
import type { Reach } from '../../src/agent/probes/reach.ts'
import { ServiceTime } from '../../src/agent/probes/service-time.ts'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { Secret } from '../../src/base/secret.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { FakeConnector, type FakeSession, refusal } from '../helpers/fake-connector.ts'
import { ManualClock } from '../helpers/manual-clock.ts'

const DOMAIN = 'agent.site.test'

async function setUp() {
  const connector = new FakeConnector()
  const clock = new ManualClock()
  const asked: string[] = []
  const probes: Reach[] = []
  let session: FakeSession | undefined
  let changes = 0
  const own = new OwnEndpoint({
    domain: DOMAIN,
    socketPath: '/run/api.sock',
    urlOf: (domain) => `https://${domain}:9443`,
    session: () => session,
    request: async ({ href, pathname }): Promise<PublicAnswer> => {
      asked.push(href)
      const body = own.probe.answer(pathname.split('/').at(-1) ?? '') ?? ''
      return { status: 200, body, date: undefined, serviceCode: undefined }
    },
    timings: DEFAULT_TIMINGS,
    conflicts: new Conflicts({ timings: DEFAULT_TIMINGS.tunnel, clock }),
    random: () => 0,
    clock,
    log: captureLog().log,
    onChange: () => {
      changes += 1
    },
    watchLink: () => ({ answers: async () => false }),
    serviceTime: new ServiceTime(clock),
    serviceDate: async () => undefined,
    certificateEnd: async () => undefined,
    onProbe: (reach) => probes.push(reach),
    onRebuild: () => {},
  })
  onTestFinished(() => own.stopKeepingEndpoint())
  const connect = async () => {
    await connector.connect({
      authtoken: new Secret('good'),
      serverAddr: undefined,
      caCert: undefined,
      metadata: '{}',
      onLost: () => {
        session = undefined
        own.linkChanged()
      },
      onHeartbeat: () => {},
      onCommand: () => {},
      onDuplicate: () => {},
    })
    session = connector.last
    own.linkChanged()
    await clock.advance(0)
  }
  return { own, connector, clock, asked, probes, connect, changes: () => changes }
}

describe('OwnEndpoint', () => {
  it('leads to the socket of the API, with no policy that could lock people out', async () => {
    const { own, connector, connect } = await setUp()
    own.start()
    await connect()
    expect(connector.last.endpoints.get(DOMAIN)).toMatchObject({
      dialUrl: 'unix:/run/api.sock',
      policy: undefined,
    })
  })

  it('shows where it will be before the service has said it, and then where it is', async () => {
    const { own, clock, connect } = await setUp()
    own.start()
    await clock.advance(0)
    expect(own.status).toMatchObject({
      domain: DOMAIN,
      url: `https://${DOMAIN}:9443`,
      state: 'waiting',
      reachable: 'unknown',
      lastProbeAt: undefined,
    })
    await connect()
    expect(own.status).toMatchObject({
      url: `https://${DOMAIN}:8443`,
      state: 'online',
      since: clock.now(),
      reachable: 'yes',
      lastProbeAt: clock.now(),
    })
  })

  it('probes itself as soon as it is online, and not before', async () => {
    const { own, clock, asked, probes, connect, changes } = await setUp()
    own.start()
    await clock.advance(600_000)
    expect(asked).toEqual([])
    const before = changes()
    await connect()
    expect(asked).toEqual([expect.stringMatching(`^https://${DOMAIN}:8443/`)])
    expect(probes).toEqual([{ name: 'reached' }])
    expect(changes()).toBeGreaterThan(before)
  })

  it('knows no longer whether it is reachable once the gateway refuses it', async () => {
    const { own, connector, clock, connect } = await setUp()
    own.start()
    await connect()
    expect(own.status.reachable).toBe('yes')
    const { problem } = refusal(316, 'not yours any more')
    connector.onOpen = () => {
      throw refusal(316, 'not yours any more')
    }
    connector.last.drop(DOMAIN, problem)
    await clock.advance(0)
    expect(own.status).toMatchObject({
      state: 'refused',
      reason: 'acl',
      lastError: 'not yours any more',
      remedy: problem.remedy,
      reachable: 'unknown',
    })
  })

  it('comes back with the link, and is probed again', async () => {
    const { own, connector, clock, asked, connect } = await setUp()
    own.start()
    await connect()
    connector.last.lose()
    await clock.advance(0)
    expect(own.status.state).toBe('waiting')
    await clock.advance(600_000)
    expect(asked).toHaveLength(1)
    await connect()
    expect(own.status.state).toBe('online')
    expect(asked).toHaveLength(2)
  })

  it('leaves its endpoint to the service when it stops', async () => {
    const { own, connector, clock, connect } = await setUp()
    own.start()
    await connect()
    await own.stopKeepingEndpoint()
    expect(connector.journal).toEqual([`open ${DOMAIN}`])
    expect(clock.sleeping).toBe(0)
  })
})
