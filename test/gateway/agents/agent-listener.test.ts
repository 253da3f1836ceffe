import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { codeOf, RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import { type RunningGateway, startGateway } from '../../helpers/running-gateway.ts'

/** Of one address, before answers wait. */
const TRIES = 10
const WAIT_MS = 5_000

async function tryToken(
  running: RunningGateway,
  authtoken = running.authtoken.reveal().replace(/.$/, (last) => (last === 'a' ? 'b' : 'a')),
): Promise<RpcAnswer> {
  const agent = await RawAgent.connect(running)
  return agent.auth(authtoken)
}

/** Connections that say nothing; those that ended are in the result of `closed`. */
async function crowd(running: RunningGateway, count: number) {
  const sockets: Socket[] = []
  for (let n = 0; n < count; n += 1) {
    const socket = connect(running.addresses.agent).resume()
    onTestFinished(() => void socket.destroy())
    socket.on('error', () => {})
    await once(socket, 'connect')
    sockets.push(socket)
  }
  return { sockets, closed: () => sockets.filter(({ destroyed }) => destroyed).length }
}

describe('wrong authtokens', () => {
  it('of one address wait for their answer after ten, and the right one does not', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock })
    for (let n = 0; n < TRIES; n += 1) {
      expect(codeOf(await tryToken(running))).toBe('ERR_NGROK_107')
    }
    let answers = 0
    const waiting = Array.from({ length: 3 }, async () => {
      const answer = await tryToken(running)
      answers += 1
      return codeOf(answer)
    })
    await eventually(() =>
      expect(running.logText().match(/invalid authtoken delayed/g)).toHaveLength(3),
    )
    expect(codeOf(await tryToken(running, running.authtoken.reveal()))).toBeUndefined()
    await clock.advance(WAIT_MS - 1)
    expect(codeOf(await tryToken(running, running.authtoken.reveal()))).toBeUndefined()
    expect(answers).toBe(0)
    await clock.advance(1)
    expect(await Promise.all(waiting)).toEqual(waiting.map(() => 'ERR_NGROK_107'))
  })

  it('are those alone that are wrong: a protocol of long ago is told at once', async () => {
    const running = await startGateway({ clock: new ManualClock(Date.now()) })
    for (let n = 0; n <= TRIES; n += 1) {
      const agent = await RawAgent.connect(running)
      const old = { Version: ['1'], ClientId: '', Extra: {} }
      expect(codeOf(await agent.rpc(0, old))).toBe('ERR_NGROK_811')
    }
  })
})

describe('a full agent listener', () => {
  it('takes the place of who says nothing for an agent', async () => {
    const running = await startGateway({ agentLimits: { connections: 4 } })
    const silent = await crowd(running, 4)
    expect(codeOf(await tryToken(running, running.authtoken.reveal()))).toBeUndefined()
    await eventually(() => expect(silent.closed()).toBe(1))
    expect(running.gateway.parts.sessions.size).toBe(1)
  })

  it('keeps the agents that are online, whoever else comes', async () => {
    const running = await startGateway({ agentLimits: { connections: 3 } })
    const agents = [await RawAgent.connect(running), await RawAgent.connect(running)]
    for (const agent of agents) await agent.auth(running.authtoken.reveal())
    const silent = await crowd(running, 12)
    await eventually(() => expect(silent.closed()).toBe(11))
    expect(codeOf((await agents[0]?.bind('cam.site.test')) ?? {})).toBeUndefined()
    expect(codeOf((await agents[1]?.bind('door.site.test')) ?? {})).toBeUndefined()
  })

  it('drops newcomers when all its places are of agents', async () => {
    const running = await startGateway({ agentLimits: { connections: 1 } })
    const agent = await RawAgent.connect(running)
    await agent.auth(running.authtoken.reveal())
    const late = await crowd(running, 1)
    await eventually(() => expect(late.closed()).toBe(1))
    expect(running.logText()).toContain('agent connection dropped')
    expect(codeOf(await agent.bind('cam.site.test'))).toBeUndefined()
  })
})
