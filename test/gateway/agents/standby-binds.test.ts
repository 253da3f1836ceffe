import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred, type Deferred } from '../../../src/base/deferred.ts'
import { HeldByLegError } from '../../../src/gateway/access/name-claims.ts'
import { StandbyBinds } from '../../../src/gateway/agents/standby-binds.ts'
import { ServiceError } from '../../../src/gateway/records/service-error.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

const INTERVAL_MS = 1_000

/** Standbys whose probes wait for an answer of the test. */
function open() {
  const clock = new ManualClock()
  const ending = new AbortController()
  onTestFinished(() => ending.abort())
  const probes: { message: unknown; answer: Deferred<object> }[] = []
  const [bound, closed]: [unknown[], string[]] = [[], []]
  const standbys = new StandbyBinds({
    bind: async (message) => ({ at: bound.push(message) }),
    probe: (message) => {
      const answer = createDeferred<object>()
      probes.push({ message, answer })
      return answer.promise
    },
    close: (id) => closed.push(id),
    onRefused: () => {},
    clock,
    signal: ending.signal,
  })
  return { standbys, clock, probes, bound, closed }
}

describe('StandbyBinds', () => {
  it('closes an endpoint that the agent has unbound while it was taken over', async () => {
    const { standbys, clock, probes, bound, closed } = open()
    standbys.keep('ep_a', 'bind a', true)
    standbys.keep('ep_b', 'bind b', true)
    await clock.advance(INTERVAL_MS)
    expect(standbys.forget('ep_a')).toBe(true)
    probes[0]?.answer.resolve({})
    await clock.advance(0)
    await clock.advance(INTERVAL_MS)
    expect({ bound, closed }).toEqual({ bound: [], closed: ['ep_a'] })
    // The other endpoint is still a standby.
    expect(probes.map(({ message }) => message)).toEqual(['bind a', 'bind b'])
  })

  it('probes while another connection serves or the gateway does not know, then takes all over', async () => {
    const { standbys, clock, probes, bound, closed } = open()
    standbys.keep('ep_a', 'bind a', true)
    standbys.keep('ep_b', 'bind b', true)
    for (const error of [new HeldByLegError('https://a.test'), new ServiceError(803, 'Later.')]) {
      await clock.advance(INTERVAL_MS)
      probes.at(-1)?.answer.reject(error)
      await clock.advance(0)
    }
    await clock.advance(INTERVAL_MS)
    expect(bound).toEqual([])
    probes.at(-1)?.answer.resolve({})
    await clock.advance(0)
    await clock.advance(INTERVAL_MS)
    expect({ bound, closed, probes: probes.length }).toEqual({
      ...{ bound: ['bind b'], closed: [], probes: 3 },
    })
    expect(clock.sleeping).toBe(0)
  })
})

/** As SDKs bind again: with the options and the token of the answer. */
const again = ({ Id, Proto, Opts, Extra }: RpcAnswer) => ({
  ...{ Id, Proto, Opts, ForwardsTo: 'localhost:1' },
  Extra: { Token: (Extra as { Token: string }).Token, Metadata: '' },
})

it('counts an endpoint once after its connection has taken it over', async () => {
  const running = await startGateway({ agentLimits: { endpointsPerSession: 2 } })
  const connect = async (LegNumber: number, clientId = '') => {
    const agent = await RawAgent.connect(running)
    const answer = await agent.auth(running.authtoken.reveal(), { LegNumber }, clientId)
    return { agent, clientId: String(answer.ClientId) }
  }
  const first = await connect(0)
  const bound = await first.agent.bind('a.site.test')
  const { agent } = await connect(1, first.clientId)
  expect(await agent.rpc(1, again(bound))).toMatchObject({ Id: bound.Id, URL: bound.URL })
  const closed = first.agent.session.closed
  first.agent.cut()
  await closed
  // Taken over before the next bind is answered.
  const other = await agent.bind('b.site.test')
  expect(other).toMatchObject({ URL: expect.stringMatching(/b\.site\.test/) })
  const hosts = [...running.gateway.parts.registry.all()].map(({ host }) => host)
  expect(hosts.sort()).toEqual(['a.site.test', 'b.site.test'])
})
