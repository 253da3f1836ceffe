import { describe, expect, it } from 'vitest'
import { type ConnectRequest, PoisonedError } from '../../../src/agent/connector.ts'
import { networkProblem, ProblemError } from '../../../src/agent/problem.ts'
import { HeadStart } from '../../../src/agent/sessions/head-start.ts'
import { Secret } from '../../../src/base/secret.ts'
import { FakeConnector } from '../../helpers/fake-connector.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const ASKED = { authtoken: new Secret('token'), caCert: undefined, metadata: '{}' }

/** What an agent asks for, and what it is told of the session. */
function asked(change: Partial<ConnectRequest> = {}) {
  const told: string[] = []
  const request: ConnectRequest = {
    ...ASKED,
    // Another object of the same text, as it is read anew.
    authtoken: new Secret('token'),
    serverAddr: 'a:1',
    onLost: ({ detail }) => told.push(detail),
    onHeartbeat: (ms) => told.push(`${ms} ms`),
    onCommand: (command) => told.push(command),
    onDuplicate: (ip) => told.push(ip),
    onNotice: (text) => told.push(text),
    ...change,
  }
  return { request, told }
}

/** `silent`: what cannot be connected to, as is known before the SDK would hang on it. */
function start({ silent = [] }: { silent?: string[] } = {}) {
  const connector = new FakeConnector()
  const clock = new ManualClock()
  const looked: (string | undefined)[] = []
  const preflight = async (serverAddr: string | undefined) => {
    looked.push(serverAddr)
    if (silent.includes(`${serverAddr}`)) {
      throw new ProblemError(networkProblem(`${serverAddr} is silent`))
    }
  }
  const ahead = new HeadStart({ connector, preflight, clock })
  const run = (addresses: string[], signal = new AbortController().signal) =>
    ahead.run(addresses, ASKED, signal)
  return { connector, clock, ahead, looked, run }
}

describe('HeadStart', () => {
  it('gives the session that was connected ahead, with what was told of it before and after', async () => {
    const { connector, ahead, run } = start()
    await run(['a:1'])
    const session = connector.last
    session.request.onCommand('restart')
    session.request.onNotice?.('early')
    const { request, told } = asked()
    expect(await ahead.connect(request)).toBe(session)
    expect(told).toEqual(['restart', 'early'])
    session.request.onHeartbeat(7)
    session.request.onDuplicate('192.0.2.9')
    session.request.onLost(networkProblem('lost'))
    expect(told.slice(2)).toEqual(['7 ms', '192.0.2.9', 'lost'])
    expect(connector.connects).toBe(1)
    await ahead.connect(asked().request)
    expect(connector.connects).toBe(2)
  })

  it.each([
    ['token', { authtoken: new Secret('another') }],
    ['address', { serverAddr: 'b:1' }],
    ['authority', { caCert: 'pem' }],
    ['identity', { metadata: '{"device_id":"x"}' }],
  ])('gives another one for another %s', async (_, change) => {
    const { connector, ahead, run } = start()
    await run(['a:1'])
    const session = connector.last
    expect(await ahead.connect(asked(change).request)).not.toBe(session)
    await ahead.stop()
    expect(session.isClosed).toBe(true)
  })

  it('gives another one when that was lost', async () => {
    const { connector, ahead, run } = start()
    await run(['a:1'])
    const lost = connector.last
    lost.isLost = true
    expect(await ahead.connect(asked().request)).not.toBe(lost)
  })

  it('tries one address after the other, and throws what the last one said', async () => {
    const { connector, ahead, run } = start()
    const tried: (string | undefined)[] = []
    connector.onConnect = ({ serverAddr }) => {
      tried.push(serverAddr)
      if (serverAddr !== 'c:1') throw new ProblemError(networkProblem(`not ${serverAddr}`))
    }
    await expect(run(['a:1', 'b:1'])).rejects.toThrow('not b:1')
    expect(await run(['b:1', 'c:1'])).toBe('c:1')
    expect(tried).toEqual(['a:1', 'b:1', 'b:1', 'c:1'])
    expect(await ahead.connect(asked({ serverAddr: 'c:1' }).request)).toBe(connector.last)
  })

  it('goes past an address that is silent, on which the SDK would hang', async () => {
    const { connector, looked, run } = start({ silent: ['a:1', 'c:1'] })
    expect(await run(['a:1', 'b:1', 'c:1'])).toBe('b:1')
    expect([looked, connector.connects]).toEqual([['a:1', 'b:1', 'c:1'], 1])
    await expect(run(['c:1', 'a:1'])).rejects.toThrow('a:1 is silent')
    expect(connector.connects).toBe(1)
  })

  it('tries no other address with an SDK that hangs', async () => {
    const { connector, run } = start()
    connector.onConnect = () => {
      throw new PoisonedError('it hangs')
    }
    await expect(run(['a:1', 'b:1'])).rejects.toThrow('it hangs')
    expect(connector.connects).toBe(1)
  })

  it('tries no other address when it is stopped', async () => {
    const { connector, run } = start()
    const stop = new AbortController()
    connector.onConnect = () => {
      stop.abort()
      throw new ProblemError(networkProblem('not a:1'))
    }
    await expect(run(['a:1', 'b:1'], stop.signal)).rejects.toThrow('not a:1')
    expect(connector.connects).toBe(1)
  })

  it('ends a session that nobody has asked for within a minute', async () => {
    const { connector, clock, ahead, run } = start()
    await run(['a:1'])
    const session = connector.last
    await clock.advance(59_999)
    expect(session.isClosed).toBe(false)
    await clock.advance(1)
    expect(session.isClosed).toBe(true)
    expect(await ahead.connect(asked().request)).not.toBe(session)
  })

  it('leaves a session alone that somebody has asked for', async () => {
    const { connector, clock, ahead, run } = start()
    await run(['a:1'])
    await ahead.connect(asked().request)
    await clock.advance(60_000)
    expect([connector.last.isClosed, clock.sleeping]).toEqual([false, 0])
  })

  it('keeps the newest of each kind that was told, and a stop whatever comes after it', async () => {
    const { connector, ahead, run } = start()
    await run(['a:1'])
    const { request: told } = connector.last
    for (let count = 1; count <= 1_000; count += 1) {
      told.onHeartbeat(count)
      told.onNotice?.(`notice ${count}`)
    }
    told.onCommand('stop')
    told.onCommand('restart')
    const owner = asked()
    await ahead.connect(owner.request)
    expect(owner.told).toEqual(['1000 ms', 'notice 1000', 'stop', 'restart'])
  })
})
