import { describe, expect, it } from 'vitest'
import { LinkEchoes } from '../../../src/agent/probes/link-echoes.ts'
import { Secret } from '../../../src/base/secret.ts'
import { FakeConnector } from '../../helpers/fake-connector.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const WITHIN_MS = 13_000

async function setUp() {
  const clock = new ManualClock()
  const connector = new FakeConnector()
  const echoes = new LinkEchoes({ connector, clock, withinMs: WITHIN_MS })
  const latencies: number[] = []
  const connect = () =>
    echoes.connect({
      authtoken: new Secret('good'),
      serverAddr: undefined,
      caCert: undefined,
      metadata: '{}',
      onLost: () => {},
      onHeartbeat: (ms) => latencies.push(ms),
      onCommand: () => {},
      onDuplicate: () => {},
    })
  const session = await connect()
  const ask = (signal = new AbortController().signal) => {
    const said: boolean[] = []
    void echoes
      .watch(session)
      .answers(signal)
      .then((isAlive) => said.push(isAlive))
    return said
  }
  const beat = (latencyMs: number) => connector.sessions[0]?.request.onHeartbeat(latencyMs)
  return { clock, connector, echoes, latencies, connect, session, ask, beat }
}

describe('LinkEchoes', () => {
  it('hears a heartbeat that was sent and answered since', async () => {
    const { clock, ask, beat, latencies } = await setUp()
    const said = ask()
    await clock.advance(10_000)
    expect(said).toEqual([])
    beat(40)
    await clock.advance(0)
    expect(said).toEqual([true])
    expect(latencies).toEqual([40])
  })

  it('does not count what was sent before, however late its answer', async () => {
    const { clock, ask, beat } = await setUp()
    const said = ask()
    await clock.advance(100)
    beat(100)
    await clock.advance(0)
    expect(said).toEqual([])
    await clock.advance(WITHIN_MS)
    expect(said).toEqual([false])
  })

  it('knows what came between the begin of a watch and the question', async () => {
    const { clock, echoes, session, beat } = await setUp()
    const watch = echoes.watch(session)
    await clock.advance(5_000)
    beat(40)
    expect(await watch.answers(new AbortController().signal)).toBe(true)
    expect(clock.sleeping).toBe(0)
  })

  it('waits longer on a link whose round trips are long, and says by how much', async () => {
    const { clock, echoes, session, ask, beat } = await setUp()
    beat(4_000)
    expect(echoes.watch(session).slackMs).toBe(16_000)
    const said = ask()
    await clock.advance(14_500)
    beat(4_000)
    await clock.advance(0)
    expect(said).toEqual([true])
  })

  it('knows a slow link by its connect, before the first heartbeat', async () => {
    const { clock, connector, echoes, connect } = await setUp()
    connector.onConnect = () => clock.sleep(12_000)
    const connecting = connect()
    await clock.advance(12_000)
    expect(echoes.watch(await connecting).slackMs).toBe(12_000)
  })

  it('does not take the answer of another link', async () => {
    const { clock, connector, connect, ask } = await setUp()
    const said = ask()
    await connect()
    await clock.advance(5_000)
    connector.last.request.onHeartbeat(1)
    await clock.advance(WITHIN_MS)
    expect(said).toEqual([false])
  })

  it('knows nothing of no link', async () => {
    const { echoes } = await setUp()
    expect(await echoes.watch(undefined).answers(new AbortController().signal)).toBe(false)
  })

  it('leaves no sleeper when it is not wanted any more', async () => {
    const { clock, ask } = await setUp()
    const over = new AbortController()
    const said = ask(over.signal)
    await clock.advance(0)
    over.abort()
    await clock.advance(0)
    expect(said).toEqual([false])
    expect(clock.sleeping).toBe(0)
  })
})
