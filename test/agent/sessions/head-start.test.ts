import { describe, expect, it } from 'vitest'
import type { ConnectRequest } from '../../../src/agent/connector.ts'
import { networkProblem, ProblemError } from '../../../src/agent/problem.ts'
import { HeadStart } from '../../../src/agent/sessions/head-start.ts'
import { Secret } from '../../../src/base/secret.ts'
import { FakeConnector } from '../../helpers/fake-connector.ts'

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

function start() {
  const connector = new FakeConnector()
  return { connector, ahead: new HeadStart(connector) }
}

describe('HeadStart', () => {
  it('gives the session that was connected ahead, with what was told of it before and after', async () => {
    const { connector, ahead } = start()
    await ahead.run(['a:1'], ASKED)
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
    const { connector, ahead } = start()
    await ahead.run(['a:1'], ASKED)
    const session = connector.last
    expect(await ahead.connect(asked(change).request)).not.toBe(session)
    await ahead.stop()
    expect(session.isClosed).toBe(true)
  })

  it('gives another one when that was lost', async () => {
    const { connector, ahead } = start()
    await ahead.run(['a:1'], ASKED)
    const lost = connector.last
    lost.isLost = true
    expect(await ahead.connect(asked().request)).not.toBe(lost)
  })

  it('tries one address after the other, and throws what the last one said', async () => {
    const { connector, ahead } = start()
    const tried: (string | undefined)[] = []
    connector.onConnect = ({ serverAddr }) => {
      tried.push(serverAddr)
      if (serverAddr !== 'c:1') throw new ProblemError(networkProblem(`not ${serverAddr}`))
    }
    await expect(ahead.run(['a:1', 'b:1'], ASKED)).rejects.toThrow('not b:1')
    await ahead.run(['b:1', 'c:1'], ASKED)
    expect(tried).toEqual(['a:1', 'b:1', 'b:1', 'c:1'])
    expect(await ahead.connect(asked({ serverAddr: 'c:1' }).request)).toBe(connector.last)
  })
})
