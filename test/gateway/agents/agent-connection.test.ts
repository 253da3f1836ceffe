import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { answer, notify } from '../../../src/muxado/rpc.ts'
import { openTyped } from '../../../src/muxado/session.ts'
import { DEAF, type Stream } from '../../../src/muxado/stream.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { ONE_PER_MINUTE } from '../../helpers/one-per-minute.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { connectSdk, type RunningGateway, startGateway } from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'

/** Why the gateway ended the connection; to the agent it says nothing, the SDK would suffer from it. */
async function closeReason({ logText }: RunningGateway, { session }: RawAgent): Promise<string> {
  const { reason } = await session.closed
  expect(reason).toBe('peer-eof')
  return eventually(() => {
    const closed = logText().match(/^.*"connection closed".*$/gm)
    return JSON.parse(closed?.at(-1) ?? '').message
  })
}

/** An agent, and a gateway whose clock makes every certificate useless while it is broken. */
async function startWithClock() {
  const clock = new ManualClock(Date.now())
  const running = await startGateway({ clock })
  const agent = await RawAgent.connect(running, {
    onStream: (type, stream) => type === 5 && answer(stream, {}),
  })
  await agent.auth(running.authtoken.reveal())
  const aheadMs = Date.UTC(9999, 11, 31) - clock.now()
  return {
    running,
    agent,
    clock,
    // The years of a certificate have four digits (RFC 5280 section 4.1.2.5.2).
    breakClock: () => clock.stepWall(aheadMs),
    mendClock: () => clock.stepWall(-aheadMs),
  }
}

async function connectAgent(running: RunningGateway, metadata = '', clientId = '') {
  const agent = await RawAgent.connect(running)
  const answer = await agent.auth(running.authtoken.reveal(), { Metadata: metadata }, clientId)
  if (answer.Error) throw new Error(answer.Error)
  return { agent, clientId: String(answer.ClientId) }
}

it('acknowledges half a message at once: the SDK keeps the rest back for 40 ms without it', async () => {
  const lines: string[] = []
  const agent = await RawAgent.connect(await startGateway(), { trace: (line) => lines.push(line) })
  openTyped(agent.session, 0, DEAF, Buffer.from('{'))
  await eventually(() => expect(lines.join('\n')).toContain('received WNDINC'))
})

it('has the stream of each heartbeat reset after the echo: the SDK would answer to the end', async () => {
  const lines: string[] = []
  const running = await startGateway()
  const agent = await RawAgent.connect(running, { trace: (line) => lines.push(line) })
  await agent.auth(running.authtoken.reveal())
  const of = (line: RegExp) =>
    lines.map((it) => line.exec(it)?.[1]).filter((id) => id !== undefined)
  // Its first frame has the type of the stream and the bytes.
  const [heartbeat] = await eventually(() => {
    const ids = of(/^received DATA (\d+) SYN 8 bytes$/)
    expect(ids).toHaveLength(1)
    return ids
  })
  await eventually(() => expect(of(/^received RST (\d+) code [^0]/)).toContain(heartbeat))
})

describe('the authentication of an agent', () => {
  it('answers with what the SDK reads', async () => {
    const running = await startGateway({ version: '1.2.3' })
    const agent = await RawAgent.connect(running)
    const answer = await agent.auth(running.authtoken.reveal())
    expect(answer).toEqual({
      Version: '3',
      ClientId: expect.stringMatching(/^ts_[0-9A-Za-z]{27}$/),
      Extra: {
        Version: '1.2.3',
        Region: 'self-hosted',
        Cookie: '',
        AccountName: 'site',
        SessionDuration: 0,
        PlanName: 'self-hosted',
        Banner: '',
        AgentSessionID: answer.ClientId,
      },
    })
    const [session] = running.gateway.parts.sessions.all()
    expect(session?.identity).toMatchObject({ os: 'linux', arch: 'arm64', agentVersion: '1.7.0' })
    await eventually(() => expect(session?.latencyMs).toBeGreaterThan(0))
  })

  it('is served by version 2 when it knows no later one', async () => {
    const running = await startGateway()
    const agent = await RawAgent.connect(running)
    const Authtoken = running.authtoken.reveal()
    const answered = await agent.rpc(0, { Version: ['2'], ClientId: '', Extra: { Authtoken } })
    expect(answered).toMatchObject({ Version: '2', ClientId: expect.stringMatching(/^ts_/) })
    expect(await agent.bind('cam.site.test')).toMatchObject({ Proto: 'https' })
    expect(running.logText()).not.toContain(Authtoken)
  })

  it('of version 2 opens TCP and TLS endpoints, and gets what their visitors send', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const came: string[] = []
    const agent = await RawAgent.connect(running, {
      onStream: (_type, stream) => {
        stream.handler = { ...DEAF, onData: (chunk) => void came.push(chunk.toString('latin1')) }
      },
    })
    const Authtoken = running.authtoken.reveal()
    await agent.rpc(0, { Version: ['2'], ClientId: '', Extra: { Authtoken } })
    const tcp = await agent.bind('', { Proto: 'tcp', Opts: { Addr: '' } })
    expect(tcp).toMatchObject({ Proto: 'tcp', URL: expect.stringMatching(/^tcp:\/\/.+:\d+$/) })
    const tls = await agent.bind('', { Proto: 'tls', Opts: { Hostname: 'nas.site.test' } })
    expect(tls).toMatchObject({ Proto: 'tls', URL: expect.stringMatching(/nas\.site\.test/) })
    const visitor = connect(Number(new URL(String(tcp.URL)).port), '127.0.0.1')
    onTestFinished(() => void visitor.destroy())
    visitor.write('SSH-2.0-client')
    await eventually(() => expect(came.join('')).toContain('SSH-2.0-client'))
  })

  const extra = (more: object) => ({ Version: ['3'], ClientId: '', Extra: { ...more } })
  it.each([
    ['no token', extra({}), 'ERR_NGROK_4018'],
    ['an old protocol', { ...extra({}), Version: ['1'] }, 'ERR_NGROK_811'],
    ['long metadata', extra({ Metadata: 'x'.repeat(4_097) }), 'ERR_NGROK_100'],
    ['a hectic heartbeat', extra({ HeartbeatInterval: 1_000_000 }), 'ERR_NGROK_111'],
    ['a hectic tolerance', extra({ HeartbeatTolerance: 1_000_000 }), 'ERR_NGROK_112'],
    ['a field of another type', extra({ OS: 7 }), 'ERR_NGROK_801'],
    ['an endless field', extra({ Hostname: 'x'.repeat(2_000) }), 'ERR_NGROK_801'],
    ['nothing that belongs there', { hello: 'world' }, 'ERR_NGROK_801'],
  ])('refuses %s, then closes', async (_what, message, code) => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock, agentLimits: { authMs: 200 } })
    const agent = await RawAgent.connect(running)
    expect(codeOf(await agent.rpc(0, message))).toBe(code)
    expect(codeOf(await agent.auth(running.authtoken.reveal()))).toBe('ERR_NGROK_801')
    await clock.advance(200)
    expect(await closeReason(running, agent)).toMatch(
      /^(not authenticated|authentication timed out)$/,
    )
  })

  it('is not read beyond its bounds', async () => {
    const running = await startGateway()
    const agent = await RawAgent.connect(running)
    expect(codeOf(await agent.auth('x'.repeat(20_000)))).toBe('ERR_NGROK_812')
  })

  it('happens once', async () => {
    const running = await startGateway()
    const { agent } = await connectAgent(running)
    expect(codeOf(await agent.auth(running.authtoken.reveal()))).toBe('ERR_NGROK_801')
    expect(running.gateway.parts.sessions.size).toBe(1)
  })

  it('is needed before anything else', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock, agentLimits: { authMs: 300 } })
    const agent = await RawAgent.connect(running)
    expect(codeOf(await agent.bind('cam.site.test'))).toBe('ERR_NGROK_4018')
    expect(codeOf(await agent.rpc(2, { Id: 'ep_x' }))).toBe('ERR_NGROK_4018')
    await clock.advance(299)
    expect(running.logText()).not.toContain('connection closed')
    await clock.advance(1)
    expect(await closeReason(running, agent)).toBe('authentication timed out')
  })

  it('has a deadline for the TLS handshake too', async () => {
    const running = await startGateway({ agentLimits: { tlsHandshakeMs: 200 } })
    const socket = connect(running.addresses.agent)
    await once(socket.resume(), 'connect')
    await once(socket, 'close')
  })
})

describe('the messages of an agent', () => {
  it('keeps the id of a tunnel over a reconnect', async () => {
    const running = await startGateway()
    const first = await connectAgent(running)
    const { Id } = await first.agent.bind('cam.site.test')
    const second = await connectAgent(running, '', first.clientId)
    expect(second.clientId).toBe(first.clientId)
    expect(await closeReason(running, first.agent)).toContain('connected again')
    expect(await second.agent.bind('cam.site.test', { Id })).toMatchObject({ Id })
    const foreign = await second.agent.bind('door.site.test', { Id: 'made up' })
    expect(foreign.Id).toMatch(/^ep_[0-9A-Za-z]{27}$/)
    const double = await second.agent.bind('gate.site.test', { Id })
    expect(double.Id).not.toBe(Id)
    const third = await connectAgent(running)
    const stolen = await third.agent.bind('yard.site.test', { Id })
    expect(stolen.Id).not.toBe(Id)
    expect(running.gateway.parts.registry.find(String(Id))?.host).toBe('cam.site.test')
    expect(running.gateway.parts.registry.find(String(stolen.Id))?.host).toBe('yard.site.test')
  })

  it('keeps the counters of a policy over a reconnect', async () => {
    const running = await startGateway()
    const { host, port } = running.addresses.http
    const visit = () => publicRequest({ ingress: `http://${host}:${port}`, host: 'cam.site.test' })
    const limited = { Opts: { Domain: 'cam.site.test', TrafficPolicy: ONE_PER_MINUTE } }
    const first = await connectAgent(running)
    await first.agent.bind('cam.site.test', limited)
    expect([(await visit()).status, (await visit()).status]).toEqual([200, 429])
    const second = await connectAgent(running, '', first.clientId)
    await second.agent.bind('cam.site.test', limited)
    expect((await visit()).status).toBe(429)
  })

  it('gives an endpoint up before it answers, and knows it no more', async () => {
    const running = await startGateway()
    const { agent } = await connectAgent(running)
    const { Id } = await agent.bind('cam.site.test')
    expect(await agent.rpc(2, { Id })).toEqual({})
    expect(running.gateway.parts.registry.size).toBe(0)
    expect(codeOf(await agent.rpc(2, { Id }))).toBe('ERR_NGROK_333')
    // SDKs ask twice; a log full of it would help nobody.
    expect(running.logText()).toMatch(/"level":"debug"[^\n]*"code":333/)
    expect(running.logText()).not.toMatch(/"level":"info"[^\n]*"code":333/)
    expect(running.logText()).toContain('"msg":"tunnel refused"')
    expect(running.logText()).not.toContain('agent refused')
  })

  it.each([
    ['no protocol', { Proto: null }, 'ERR_NGROK_301'],
    ['a foreign protocol', { Proto: 'gopher' }, 'ERR_NGROK_332'],
    ['options of another type', { Opts: 'none' }, 'ERR_NGROK_301'],
    ['both kinds of policy', { Opts: { Policy: '{}', TrafficPolicy: '{}' } }, 'ERR_NGROK_9025'],
    ['only the old kind of policy', { Opts: { Policy: '{}' } }, 'ERR_NGROK_301'],
    ['endless metadata', { Extra: { Metadata: 'x'.repeat(5_000) } }, 'ERR_NGROK_301'],
    ['an inner binding', { Extra: { Bindings: ['kubernetes'] } }, 'ERR_NGROK_301'],
    ['a message beyond all bounds', { ForwardsTo: 'x'.repeat(300_000) }, 'ERR_NGROK_812'],
  ])('refuses a bind with %s', async (_what, more, code) => {
    const running = await startGateway()
    const { agent } = await connectAgent(running)
    expect(codeOf(await agent.bind('cam.site.test', more))).toBe(code)
    expect(running.gateway.parts.registry.size).toBe(0)
  })

  it('leaves nothing behind of a bind whose certificate fails', async () => {
    const { running, agent, breakClock, mendClock } = await startWithClock()
    const { registry } = running.gateway.parts
    breakClock()
    const refused = [await agent.bind('x.cam.site.test'), await agent.bind('x.cam.site.test')]
    expect(refused.map(codeOf)).toEqual(['ERR_NGROK_802', 'ERR_NGROK_802'])
    expect(registry.size).toBe(0)
    mendClock()
    expect(codeOf(await agent.bind('x.cam.site.test'))).toBeUndefined()
    expect([...registry.all()].map(({ host }) => host)).toEqual(['x.cam.site.test'])
  })

  it('refuses a bind whose leave is taken back before its certificate is there', async () => {
    const running = await startGateway()
    const { issuer, registry } = running.gateway.parts
    const { credential, authtoken } = await issuer.createCredential({})
    const agent = await RawAgent.connect(running)
    await agent.auth(authtoken.reveal())
    const binding = agent.bind('x.cam.site.test')
    // The message is there, and the certificate is not.
    await eventually(() => expect(running.logText()).toContain('"agent online"'))
    await issuer.updateCredential(credential, { acl: ['bind:b.site.test'] })
    expect(codeOf(await binding)).toBe('ERR_NGROK_316')
    expect(registry.size).toBe(0)
  })

  it('lives with streams of unknown types and streams that break off', async () => {
    const running = await startGateway()
    const { agent } = await connectAgent(running)
    for (let n = 0; n < 600; n += 1) {
      await eventually(() => notify(agent.session, n % 2 === 0 ? 77 : 1, {}))
    }
    await eventually(async () => expect(codeOf(await agent.bind('cam.site.test'))).toBeUndefined())
  })

  it('reads a bounded number of messages at once', async () => {
    const running = await startGateway()
    const { agent } = await connectAgent(running)
    const closed: string[] = []
    for (let n = 0; n < 17; n += 1) {
      openTyped(
        agent.session,
        1,
        { onData: (chunk) => closed.push(String(chunk)), onEnd() {}, onDrain() {}, onClose() {} },
        Buffer.from('{"Id":'),
      )
    }
    await eventually(() => expect(closed.join()).toContain('too many messages'))
    expect(closed).toHaveLength(1)
  })
})

describe('the first moment of an endpoint', () => {
  /** A bind whose answer came, with the agent's side of the stream open until `end()`. */
  async function bindUnheard(agent: RawAgent) {
    const answered = createDeferred()
    const stream = openTyped(
      agent.session,
      1,
      { onData: () => answered.resolve(), onEnd() {}, onDrain() {}, onClose() {} },
      Buffer.from('{"Proto":"https","ForwardsTo":"","Opts":{"Domain":"cam.site.test"}}'),
    )
    await answered.promise
    return stream
  }

  async function startScene(options: Parameters<typeof startGateway>[0] = {}) {
    const running = await startGateway(options)
    const streams: Stream[] = []
    const agent = await RawAgent.connect(running, {
      onStream(_type, stream) {
        streams.push(stream)
        stream.handler = {
          ...DEAF,
          onData(chunk) {
            if (!String(chunk).includes('POST / ')) return
            stream.write(Buffer.from('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'))
          },
        }
      },
    })
    await agent.auth(running.authtoken.reveal())
    const { host, port } = running.addresses.http
    const visit = () =>
      publicRequest({ ingress: `http://${host}:${port}`, host: 'cam.site.test', method: 'POST' })
    return { running, agent, streams, visit }
  }

  it('lasts until the agent has read the answer, and visitors of it are not lost', async () => {
    const { running, agent, streams, visit } = await startScene()
    const stream = await bindUnheard(agent)
    const visits = [visit(), visit(), visit()]
    const [endpoint] = running.gateway.parts.registry.all()
    await eventually(() => expect(endpoint?.traffic.active).toBe(3))
    // What the agent would have been sent by now comes before this answer.
    await agent.rpc(2, { Id: 'ep_x' })
    expect(streams).toEqual([])
    stream.end()
    const answers = await Promise.all(visits)
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
    expect(streams).toHaveLength(3)
  })

  it('is over after a second for an agent that leaves its messages open', async () => {
    const { agent, visit } = await startScene()
    await bindUnheard(agent)
    expect((await visit()).status).toBe(200)
  })

  it('ends with the agent, for which visitors then wait', async () => {
    const { running, agent, visit } = await startScene({ holdMs: 1_000 })
    await bindUnheard(agent)
    const refused = visit()
    const [endpoint] = running.gateway.parts.registry.all()
    await eventually(() => expect(endpoint?.traffic.active).toBe(1))
    await agent.session.goAway(0, 'bye')
    expect((await refused).headers['ngrok-error-code']).toBe('ERR_GATEWAY_AWAY')
  })
})

describe('the end of an agent session', () => {
  it('comes when the agent stops to answer heartbeats', async () => {
    const running = await startGateway({
      agentLimits: { heartbeatIntervalMs: 50, heartbeatToleranceMs: 1_500 },
    })
    const silent = await RawAgent.connect(running, { isAlive: false })
    const answering = await connectSdk(running)
    await silent.auth(running.authtoken.reveal())
    await silent.bind('cam.site.test')
    expect(await closeReason(running, silent)).toContain('heartbeats')
    expect(running.gateway.parts.registry.size).toBe(0)
    const [other] = running.gateway.parts.sessions.all()
    await eventually(() => expect(other?.latencyMs).toBeGreaterThan(0))
    expect(running.gateway.parts.sessions.size).toBe(1)
    expect(await answering.httpEndpoint().domain('cam.site.test').listen()).toBeDefined()
  })

  it('comes later for an agent that sends heartbeats of its own, and wants none', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock })
    const agent = await RawAgent.connect(running, { isAlive: false })
    const Metadata = JSON.stringify({ heartbeat: { interval_s: 45, tolerance_s: 13 } })
    await agent.auth(running.authtoken.reveal(), { Metadata })
    await clock.advance(58_000 + 14_999)
    expect(running.gateway.parts.sessions.size).toBe(1)
    await clock.advance(1)
    expect(await closeReason(running, agent)).toContain('heartbeats')
  })

  it('comes when an agent that was told to stop has unbound everything and falls silent', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock })
    const agent = await RawAgent.connect(running, {
      onStream: (type, stream) => type === 5 && answer(stream, {}),
    })
    await agent.auth(running.authtoken.reveal())
    const { Id } = await agent.bind('cam.site.test')
    const { sessions, registry } = running.gateway.parts
    const [session] = sessions.all()
    await session?.command('stop')
    await clock.advance(5_000)
    expect(registry.size).toBe(1)
    await agent.rpc(2, { Id })
    await clock.advance(999)
    // The SDK unbinds once more when it closes its session.
    await agent.rpc(2, { Id })
    await clock.advance(999)
    expect(sessions.size).toBe(1)
    await clock.advance(1)
    expect(sessions.size).toBe(0)
    expect(await closeReason(running, agent)).toBe('the agent was stopped by command')
  })

  it('comes for an agent that was told to stop also when its last bind failed', async () => {
    const { running, agent, clock, breakClock } = await startWithClock()
    const { sessions } = running.gateway.parts
    const { Id } = await agent.bind('cam.site.test')
    const [session] = sessions.all()
    await session?.command('stop')
    breakClock()
    // The certificate takes its time: the unbind is through before the bind has failed.
    const [failed, unbound] = await Promise.all([
      agent.bind('x.cam.site.test'),
      agent.rpc(2, { Id }),
    ])
    expect([failed, unbound].map(codeOf)).toEqual(['ERR_NGROK_802', undefined])
    await clock.advance(1_000)
    expect(sessions.size).toBe(0)
  })

  it('takes the endpoints along when the connection breaks', async () => {
    const running = await startGateway()
    const { agent } = await connectAgent(running)
    await agent.bind('cam.site.test')
    await agent.session.goAway(0, 'bye')
    await eventually(() => expect(running.gateway.parts.registry.size).toBe(0))
    expect(running.gateway.parts.sessions.size).toBe(0)
  })
})

describe('the limits of a credential', () => {
  const DEVICE = '{"device_id":"dev_1"}'
  const refusalOf = async (running: RunningGateway) => {
    const agent = await RawAgent.connect(running)
    return codeOf(await agent.auth(running.authtoken.reveal()))
  }

  it('bound its sessions, at once and per minute', async () => {
    const few = await startGateway({ credentialLimits: { sessions: 1 } })
    const { agent } = await connectAgent(few)
    expect(await refusalOf(few)).toBe('ERR_NGROK_108')
    await agent.session.goAway(0, 'bye')
    await eventually(() => expect(few.gateway.parts.sessions.size).toBe(0))
    expect(await refusalOf(few)).toBeUndefined()
    const slow = await startGateway({ credentialLimits: { sessionsPerMinute: 1 } })
    expect([await refusalOf(slow), await refusalOf(slow)]).toEqual([undefined, 'ERR_NGROK_349'])
  })

  it.each([
    ['client id', (clientId: string) => ['', clientId] as const],
    ['device', () => [DEVICE, ''] as const],
  ])('do not count the ghost of an agent that comes back with its %s', async (_what, identity) => {
    const running = await startGateway({ credentialLimits: { sessions: 1 } })
    const first = await connectAgent(running, DEVICE)
    await connectAgent(running, ...identity(first.clientId))
    expect(await closeReason(running, first.agent)).toBe('the device connected again')
    expect(running.gateway.parts.sessions.size).toBe(1)
  })

  it('leave a device the session that it has when they refuse its reconnect', async () => {
    const running = await startGateway({ credentialLimits: { sessionsPerMinute: 1 } })
    const first = await connectAgent(running, DEVICE)
    const again = await RawAgent.connect(running)
    const answer = await again.auth(running.authtoken.reveal(), { Metadata: DEVICE })
    expect(codeOf(answer)).toBe('ERR_NGROK_349')
    expect([...running.gateway.parts.sessions.all()].map(({ clientId }) => clientId)).toEqual([
      first.clientId,
    ])
  })

  it.each([
    ['per session', { agentLimits: { endpointsPerSession: 1 } }, 'ERR_NGROK_324'],
    ['at once', { credentialLimits: { endpoints: 1 } }, 'ERR_NGROK_18021'],
    ['per minute', { credentialLimits: { bindsPerMinute: 1 } }, 'ERR_NGROK_351'],
  ])('bound its endpoints %s', async (_what, limits, code) => {
    const running = await startGateway(limits)
    const { agent } = await connectAgent(running)
    expect(codeOf(await agent.bind('a.site.test'))).toBeUndefined()
    expect(codeOf(await agent.bind('b.site.test'))).toBe(code)
  })
})
