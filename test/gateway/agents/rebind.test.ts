import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import type { Secret } from '../../../src/base/secret.ts'
import { DEAF } from '../../../src/muxado/stream.ts'
import { eventually } from '../../helpers/eventually.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { codeOf, RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import {
  bind,
  connectSdk,
  GATEWAY_DEFAULTS,
  type RunningGateway,
  startGateway,
} from '../../helpers/running-gateway.ts'

const STOP_TUNNEL = 9
const ANY_PORT = { host: '127.0.0.1', port: 0 }

/** What a raw agent was told to stop. */
interface Client {
  readonly agent: RawAgent
  readonly clientId: string
  readonly stopped: { Id: string; Message: string; ErrorCode: string }[]
}

async function connect(
  running: RunningGateway,
  authtoken: Secret,
  { clientId = '', ...extra }: { clientId?: string; LegNumber?: number; Metadata?: string } = {},
): Promise<Client> {
  const stopped: Client['stopped'] = []
  const agent = await RawAgent.connect(running, {
    onStream: (type, stream) => {
      if (type !== STOP_TUNNEL) return
      stream.handler = {
        ...DEAF,
        onData: (chunk) => void stopped.push(JSON.parse(chunk.toString())),
      }
    },
  })
  const answer = await agent.auth(authtoken.reveal(), extra, clientId)
  expect(answer.Error ?? '').toBe('')
  return { agent, clientId: String(answer.ClientId), stopped }
}

/** As SDKs bind again: with the options and the token of the answer. */
const again = ({ Id, Proto, Opts, Extra }: RpcAnswer, more: object = {}) => ({
  ...{ Id, Proto, Opts: { ...(Opts as object), ...more }, ForwardsTo: 'localhost:1' },
  Extra: { Token: (Extra as { Token: string }).Token, Metadata: '' },
})

const hostsOf = ({ gateway }: RunningGateway) =>
  [...gateway.parts.registry.all()].map(({ host }) => host).sort()

async function start(options: { dataDir?: string } = {}) {
  const running = await startGateway({ apiListen: ANY_PORT, ...options })
  const { credential, authtoken } = await running.gateway.parts.issuer.createCredential({})
  const withdraw = () =>
    running.gateway.parts.issuer.updateCredential(credential, { acl: ['bind:b.site.test'] })
  return { running, authtoken, credential, withdraw, ...(await managed(running)) }
}

describe('a name that is withdrawn from a session that has reconnected', () => {
  it('is stopped, and the others of the session stay online', async () => {
    const { running, authtoken, withdraw, call } = await start()
    const first = await connect(running, authtoken)
    const bound = [await first.agent.bind('a.site.test'), await first.agent.bind('b.site.test')]
    first.agent.cut()
    const next = await connect(running, authtoken, { clientId: first.clientId })
    for (const answer of bound) await next.agent.rpc(1, again(answer))
    await withdraw()
    await eventually(() => expect(next.stopped).toHaveLength(1))
    expect(next.stopped).toMatchObject([{ Id: bound[0]?.Id, ErrorCode: 'ERR_NGROK_316' }])
    expect(hostsOf(running)).toEqual(['b.site.test'])
    const [session] = running.gateway.parts.sessions.all()
    expect((await call('GET', `/tunnel_sessions/${session?.id}`)).body).toMatchObject({
      refused_endpoints: [
        {
          id: bound[0]?.Id,
          url: expect.stringContaining('https://a.site.test'),
          error_code: 'ERR_NGROK_316',
          text: expect.stringContaining('a.site.test'),
        },
      ],
    })
    await eventually(async () => {
      const { body } = await call('GET', '/events')
      expect(JSON.stringify(body)).toMatch(/device\.refused.*a\.site\.test/)
    })
    expect(await next.agent.rpc(2, { Id: bound[0]?.Id })).toEqual({})
  })

  it('leaves a real SDK its other endpoints', async () => {
    const { running, authtoken, withdraw } = await start()
    const session = await connectSdk(running, { authtoken, reconnects: true })
    await bind(session, 'a.site.test')
    await bind(session, 'b.site.test')
    const [agent] = running.gateway.parts.sessions.all()
    agent?.end('the test ends it')
    await eventually(() => expect(hostsOf(running)).toEqual(['a.site.test', 'b.site.test']))
    await withdraw()
    expect(hostsOf(running)).toEqual(['b.site.test'])
    const [back] = running.gateway.parts.sessions.all()
    back?.end('the test ends it')
    await eventually(() => expect(hostsOf(running)).toEqual(['b.site.test']))
    const [last] = running.gateway.parts.sessions.all()
    await eventually(() => expect(last?.refusedEndpoints()).toMatchObject([{ code: 316 }]))
  })
})

describe('a bind after a reconnect', () => {
  it('is accepted, not served and stopped when it is refused, also by another process', async () => {
    const { running, authtoken, withdraw } = await start()
    const first = await connect(running, authtoken)
    const bound = [await first.agent.bind('a.site.test'), await first.agent.bind('b.site.test')]
    const { dataDir } = running
    first.agent.cut()
    await withdraw()
    await running.gateway.stop()
    const later = await startGateway({ dataDir, authtoken: running.authtoken })
    const next = await connect(later, authtoken, { clientId: first.clientId })
    const [refused, served] = [
      await next.agent.rpc(1, again(bound[0] as RpcAnswer)),
      await next.agent.rpc(1, again(bound[1] as RpcAnswer)),
    ]
    expect(refused).toMatchObject({ Id: bound[0]?.Id, URL: 'https://a.site.test' })
    expect(served).toMatchObject({ Id: bound[1]?.Id })
    await eventually(() => {
      expect(next.stopped).toMatchObject([{ Id: bound[0]?.Id, ErrorCode: 'ERR_NGROK_316' }])
    })
    expect(hostsOf(later)).toEqual(['b.site.test'])
  })

  it('with an option that is unknown here is not served, and a first bind is refused', async () => {
    const { running, authtoken } = await start()
    const first = await connect(running, authtoken)
    const bound = await first.agent.bind('a.site.test')
    const Guard = { of: 'tomorrow' }
    const fresh = await first.agent.bind('c.site.test', { Opts: { Domain: 'c.site.test', Guard } })
    expect(codeOf(fresh)).toBe('ERR_NGROK_301')
    expect(fresh.Error).toContain('Guard')
    first.agent.cut()
    const next = await connect(running, authtoken, { clientId: first.clientId })
    expect(await next.agent.rpc(1, again(bound, { Guard }))).toMatchObject({ Id: bound.Id })
    await eventually(() => expect(next.stopped).toHaveLength(1))
    expect(next.stopped[0]?.Message).toContain('Guard')
    expect(hostsOf(running)).toEqual([])
    // It is served once it can be.
    expect(await next.agent.rpc(1, again(bound))).toMatchObject({ Id: bound.Id })
    expect(hostsOf(running)).toEqual(['a.site.test'])
    const [session] = running.gateway.parts.sessions.all()
    expect(session?.refusedEndpoints()).toEqual([])
  })

  it('is a first one when its ids are not of this gateway', async () => {
    const { running, authtoken } = await start()
    const elsewhere = await start()
    const first = await connect(running, authtoken)
    const bound = await first.agent.bind('a.site.test')
    const foreign = await connect(elsewhere.running, elsewhere.authtoken)
    const other = await foreign.agent.bind('a.site.test')
    first.agent.cut()
    const Guard = true
    const cases = [
      { clientId: first.clientId, Id: other.Id },
      { clientId: foreign.clientId, Id: bound.Id },
      { clientId: '', Id: bound.Id },
      { clientId: first.clientId, Id: '' },
      { clientId: first.clientId, Id: 'ep_000000000000000000000000000' },
      { clientId: first.clientId, Id: first.clientId.replace('ts_', 'ep_') },
    ]
    for (const { clientId, Id } of cases) {
      const next = await connect(running, authtoken, { clientId })
      expect(codeOf(await next.agent.rpc(1, { ...again(bound, { Guard }), Id }))).toBe(
        'ERR_NGROK_301',
      )
      next.agent.cut()
    }
  })
})

describe('a bind after a reconnect that is refused for the moment', () => {
  it.each([
    ['binds too often', 'ERR_NGROK_351', { credentialLimits: { bindsPerMinute: 1 } }],
    ['meets a failure of the gateway', 'ERR_NGROK_802', {}],
  ])('is refused, and not stopped, when the agent %s', async (_, code, options) => {
    let isBroken = false
    const clock = Object.create(systemClock, {
      now: {
        value: () => {
          if (!isBroken) return systemClock.now()
          isBroken = false
          throw new Error('there is no time')
        },
      },
    })
    const running = await startGateway({ clock, ...options })
    const first = await connect(running, running.authtoken)
    const bound = await first.agent.bind('a.site.test')
    first.agent.cut()
    const next = await connect(running, running.authtoken, { clientId: first.clientId })
    isBroken = code === 'ERR_NGROK_802'
    expect(codeOf(await next.agent.rpc(1, again(bound)))).toBe(code)
    const [session] = running.gateway.parts.sessions.all()
    expect(session?.refusedEndpoints()).toEqual([])
    // A stop would have come before this answer.
    expect(codeOf(await next.agent.rpc(2, { Id: bound.Id }))).toBe('ERR_NGROK_333')
    expect(next.stopped).toEqual([])
  })
})

describe('legs of one client', () => {
  it('live side by side, and serve what the one that ends has served', async () => {
    const { running, authtoken } = await start()
    const first = await connect(running, authtoken, { LegNumber: 0 })
    const { clientId } = first
    const bound = await first.agent.bind('a.site.test')
    const second = await connect(running, authtoken, { clientId, LegNumber: 1 })
    expect(running.gateway.parts.sessions.size).toBe(2)
    expect(await second.agent.rpc(1, again(bound))).toMatchObject({ Id: bound.Id, URL: bound.URL })
    const [zero, one] = [...running.gateway.parts.sessions.all()]
    const serving = () => {
      const endpoint = running.gateway.parts.registry.match('a.site.test')
      return endpoint?.type === 'agent' ? endpoint.sessionId : undefined
    }
    expect(serving()).toBe(zero?.id)
    first.agent.cut()
    await eventually(() => expect(serving()).toBe(one?.id))
    const back = await connect(running, authtoken, { clientId, LegNumber: 0 })
    expect(await back.agent.rpc(1, again(bound))).toMatchObject({ Id: bound.Id })
    expect(serving()).toBe(one?.id)
    expect(await second.agent.rpc(2, { Id: bound.Id })).toEqual({})
    expect(await back.agent.rpc(2, { Id: bound.Id })).toEqual({})
    expect(hostsOf(running)).toEqual([])
  })
})

describe('two processes that call themselves one device', () => {
  it('take turns of a second, and are shown', async () => {
    const { running, authtoken } = await start()
    const Metadata = JSON.stringify({ device_id: 'press-7' })
    const [begin, changes] = [performance.now(), 5]
    for (let turn = 0; turn < changes; turn += 1) await connect(running, authtoken, { Metadata })
    // The first needs no turn, and the second comes at once.
    expect(performance.now() - begin).toBeGreaterThanOrEqual((changes - 2) * 1_000)
    expect(running.gateway.parts.sessions.size).toBe(1)
    const [session] = running.gateway.parts.sessions.all()
    expect(session?.duplicate).toMatchObject({ ip: '127.0.0.1' })
  })

  it('wait for nothing when one of them comes back once, or a client reconnects', async () => {
    const { running, authtoken } = await start()
    const Metadata = JSON.stringify({ device_id: 'press-7' })
    await connect(running, authtoken, { Metadata })
    const { clientId } = await connect(running, authtoken, { Metadata })
    for (let time = 0; time < 5; time += 1)
      await connect(running, authtoken, { Metadata, clientId })
    const [session] = running.gateway.parts.sessions.all()
    expect(session?.duplicate).toBeUndefined()
  })
})

describe('the answer to an agent', () => {
  it('names the session, the account and the plan', async () => {
    const { running, authtoken } = await start()
    const { id: ownerId } = await running.gateway.parts.issuer.createBotUser({ name: 'site a' })
    const { authtoken: own } = await running.gateway.parts.issuer.createCredential({ ownerId })
    for (const [token, AccountName] of [
      [authtoken, 'gateway owner'],
      [own, 'site a'],
    ] as const) {
      const agent = await RawAgent.connect(running)
      const { Extra, ClientId } = await agent.auth(token.reveal())
      expect(Extra).toMatchObject({
        ...{
          AgentSessionID: ClientId,
          AccountName,
          PlanName: 'self-hosted',
          Region: 'self-hosted',
        },
      })
    }
  })

  it('tells about the service before the agent authenticates', async () => {
    const running = await startGateway({
      clients: { ...GATEWAY_DEFAULTS.clients, region: 'attic' },
    })
    const agent = await RawAgent.connect(running)
    expect(await agent.rpc(8, {})).toEqual({ Region: 'attic' })
    const { Extra } = await agent.auth(running.authtoken.reveal())
    expect(Extra).toMatchObject({ Region: 'attic' })
  })
})
