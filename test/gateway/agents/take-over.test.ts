import { describe, expect, it } from 'vitest'
import { StreamType } from '../../../src/gateway/agents/control-message.ts'
import { deviceMetadata, forward, startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { RawClient } from '../../helpers/raw-http.ts'
import { connectSdk, inTime, sdkCode, startGateway } from '../../helpers/running-gateway.ts'

const METADATA = deviceMetadata('process-1')
const answering = (text: string) => startDeviceService((_request, response) => response.end(text))

/** A service that answers when it is told to. */
async function startSlowService() {
  const waiting: (() => void)[] = []
  const url = await startDeviceService((_request, response) => {
    response.write('old ')
    waiting.push(() => response.end('whole'))
  })
  return { url, waiting }
}

/** Visits the tunnel as fast as it answers, until `stop()` says what came. */
function keepVisiting(running: Parameters<typeof visit>[0]) {
  const seen: string[] = []
  let isOver = false
  const run = async () => {
    while (!isOver) {
      const { status, text } = await visit(running)
      seen.push(status === 200 ? text : `${status} ${text}`)
    }
  }
  const runs = [run(), run(), run()]
  return {
    seen,
    stop: async () => {
      isOver = true
      await Promise.all(runs)
      return new Set(seen)
    },
  }
}

describe('a second bind of the same name', () => {
  it('takes it over on the same session, without a request that fails', async () => {
    const running = await startGateway()
    const session = await connectSdk(running, { metadata: METADATA })
    const slow = await startSlowService()
    const first = await forward(session, slow.url)
    const underWay = visit(running)
    await eventually(() => expect(slow.waiting).toHaveLength(1))
    const services = await Promise.all([answering('b'), answering('c')])
    const second = await forward(session, services[0])
    await inTime(first.close())
    const visitor = keepVisiting(running)
    const third = await forward(session, services[1])
    await inTime(second.close())
    await eventually(() => expect(visitor.seen).toContain('c'))
    expect([...(await visitor.stop())].sort()).toEqual(expect.arrayContaining(['c']))
    expect(visitor.seen.filter((text) => text !== 'b' && text !== 'c')).toEqual([])
    slow.waiting[0]?.()
    expect((await underWay).text).toBe('old whole')
    expect(running.gateway.parts.registry.size).toBe(1)
    await inTime(third.close())
    expect((await visit(running)).status).toBe(404)
  })

  it('takes it over from an older session of the process, which ends when it is idle', async () => {
    const running = await startGateway()
    const { sessions, issuer } = running.gateway.parts
    const slow = await startSlowService()
    await forward(await connectSdk(running, { metadata: METADATA }), slow.url)
    const underWay = visit(running)
    await eventually(() => expect(slow.waiting).toHaveLength(1))
    const [older] = sessions.all()

    // Another authtoken of the same account, as after a rotation.
    const { ownerId } = older?.identity ?? {}
    const { authtoken } = await issuer.createCredential({
      ownerId: ownerId ?? null,
      acl: ['bind:*.site.test'],
    })
    const newer = await connectSdk(running, { metadata: METADATA, authtoken })
    expect(sessions.size).toBe(2)
    await forward(newer, await answering('new'))
    expect((await visit(running)).text).toBe('new')
    expect(sessions.size).toBe(2)
    slow.waiting[0]?.()
    expect((await underWay).text).toBe('old whole')
    await eventually(() => expect(sessions.size).toBe(1))
    expect(running.logText()).toContain('another session of the agent has taken over')
    expect((await visit(running)).text).toBe('new')
  })

  it('leaves the older session the time that its agent asks for, as one that another process follows', async () => {
    const clock = new ManualClock(Date.now())
    const agentLimits = { heartbeatIntervalMs: 3_600_000, heartbeatToleranceMs: 3_600_000 }
    const running = await startGateway({ clock, agentLimits })
    const { sessions } = running.gateway.parts
    const streams: number[] = []
    const older = await RawAgent.connect(running, { onStream: (type) => streams.push(type) })
    const newer = await RawAgent.connect(running)
    for (const agent of [older, newer]) {
      await agent.auth(running.authtoken.reveal(), { Metadata: METADATA })
    }
    await older.bind('a.site.test')
    const client = RawClient.connect(running.addresses.http.port)
    client.send('GET / HTTP/1.1\r\nHost: a.site.test\r\n\r\n')
    await eventually(() => expect(streams).toContain(StreamType.proxy))
    await newer.bind('a.site.test')
    const message = JSON.stringify({ 'device-agent': { drain: { within_ms: 30_000 } } })
    // It is not answered when the session ends before.
    const drained = older.bind('x.internal', { Extra: { Metadata: message } }).catch(() => {})
    await eventually(() => expect(running.logText()).toContain('agent is draining'))
    await clock.advance(29_000)
    expect(sessions.size).toBe(2)
    // Asked for again, it is the same time.
    const again = older.bind('x.internal', { Extra: { Metadata: message } }).catch(() => {})
    await eventually(() => expect(running.logText().match(/agent is draining/g)).toHaveLength(2))
    await clock.advance(2_000)
    expect(sessions.size).toBe(1)
    await Promise.all([drained, again])
  })

  it('ends the older session after 10 s whatever is under way, and holds what it still has', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock })
    const { sessions, registry } = running.gateway.parts
    const [older, newer] = [await RawAgent.connect(running), await RawAgent.connect(running)]
    for (const agent of [older, newer]) {
      await agent.auth(running.authtoken.reveal(), { Metadata: METADATA })
    }
    for (const domain of ['a.site.test', 'b.site.test']) await older.bind(domain)
    expect(codeOf(await newer.bind('a.site.test'))).toBeUndefined()
    await clock.advance(9_900)
    expect(sessions.size).toBe(2)
    await clock.advance(200)
    expect(sessions.size).toBe(1)
    expect([...registry.all()].map(({ host }) => host)).toEqual(['a.site.test'])
    expect(registry.match('b.site.test')?.type).toBe('disconnected')
  })

  it('leaves everything as it was when it is refused', async () => {
    const running = await startGateway()
    const session = await connectSdk(running, { metadata: METADATA })
    await forward(session, await answering('a'))
    const refused = forward(session, await answering('b'), { policy: '{"on_http_request":{}}' })
    expect(await sdkCode(refused)).toBe('ERR_NGROK_9026')
    expect((await visit(running)).text).toBe('a')
  })

  it('goes on with the counters of the policy', async () => {
    const running = await startGateway()
    const session = await connectSdk(running, { metadata: METADATA })
    const config = { name: 'n', algorithm: 'sliding_window', capacity: 2, rate: '1h' }
    const policy = JSON.stringify({
      on_http_request: [
        {
          actions: [{ type: 'rate-limit', config: { ...config, bucket_key: ['conn.client_ip'] } }],
        },
      ],
    })
    const service = await answering('a')
    await forward(session, service, { policy })
    await visit(running)
    await forward(session, service, { policy })
    const after = [await visit(running), await visit(running)]
    expect(after.map(({ status }) => status)).toEqual([200, 429])
  })

  it('is answered when its first listener is unbound, and withdraws nothing', async () => {
    const running = await startGateway()
    const agent = await RawAgent.connect(running)
    await agent.auth(running.authtoken.reveal(), { Metadata: METADATA })
    const first = await agent.bind('cam.site.test')
    const second = await agent.bind('cam.site.test')
    expect(second.Id).not.toBe(first.Id)
    expect(await agent.rpc(2, { Id: first.Id })).toEqual({})
    expect(codeOf(await agent.rpc(2, { Id: first.Id }))).toBe('ERR_NGROK_333')
    expect(running.gateway.parts.registry.find(String(second.Id))).toBeDefined()
  })

  it.each([
    ['that says nothing of itself', '', ''],
    ['of another device', METADATA, deviceMetadata('process-1', 'device-8')],
    ['of another process that has ended', deviceMetadata('process-0', 'device-9'), METADATA],
  ])('is refused to an agent %s', async (_what, first, second) => {
    const running = await startGateway()
    const holder = await connectSdk(running, { metadata: first })
    await forward(holder, await answering('a'))
    const agents = [await connectSdk(running, { metadata: second })]
    if (!first) agents.push(holder)
    for (const agent of agents) {
      expect(await sdkCode(forward(agent, await answering('b')))).toBe('ERR_NGROK_334')
    }
    expect((await visit(running)).text).toBe('a')
  })

  it('leaves an endpoint of the other protocol alone, which answers elsewhere', async () => {
    const running = await startGateway()
    const session = await connectSdk(running, { metadata: METADATA })
    await forward(session, await answering('a'))
    const plain = session.httpEndpoint().scheme('http').domain('cam.site.test').listen()
    expect((await plain).url()).toMatch(/^http:/)
    expect(running.gateway.parts.registry.size).toBe(2)
  })

  it('is refused to another account, whatever it says', async () => {
    const running = await startGateway()
    const { issuer } = running.gateway.parts
    await forward(await connectSdk(running, { metadata: METADATA }), await answering('a'))
    const stranger = await issuer.createBotUser({ name: 'stranger' })
    const { authtoken } = await issuer.createCredential({
      ownerId: stranger.id,
      acl: ['bind:*.site.test'],
    })
    const other = await connectSdk(running, { metadata: METADATA, authtoken })
    expect(await sdkCode(forward(other, await answering('b')))).toBe('ERR_NGROK_334')
  })
})

describe('two processes with the identity of one device', () => {
  it('are told apart: the older one serves, the newer one is refused, both hear of it', async () => {
    const running = await startGateway()
    const { sessions } = running.gateway.parts
    const updates: string[] = []
    const onUpdate = (version: string) => updates.push(version)
    const older = await connectSdk(running, { metadata: METADATA, onUpdate })
    await forward(older, await answering('a'))
    const clone = () => connectSdk(running, { metadata: deviceMetadata('process-2') })
    expect(await sdkCode(clone())).toBe('ERR_NGROK_830')
    await expect(clone()).rejects.toThrow('with the same data directory or a copy')
    expect(sessions.size).toBe(1)
    expect((await visit(running)).text).toBe('a')
    await eventually(() => expect(updates).toHaveLength(1))
    expect(JSON.parse(updates[0] ?? '')).toEqual({
      'device-agent': { duplicate: { ip: '127.0.0.1' } },
    })
    const [session] = sessions.all()
    expect(session?.duplicate).toMatchObject({ ip: '127.0.0.1' })
    expect(running.logText()).toContain('the device is already connected')
    // Another device, or an SDK that says nothing, is none of that.
    await connectSdk(running, { metadata: deviceMetadata('process-2', 'device-8') })
    await connectSdk(running)
    expect(sessions.size).toBe(3)
  })

  it('is not what several sessions of one process are: they hear the id of their gateway, once', async () => {
    const running = await startGateway()
    const heard: string[][] = [[], [], [], []]
    const connect = (at: number, metadata: string) =>
      connectSdk(running, { metadata, onUpdate: (version) => heard[at]?.push(version) })
    await connect(0, METADATA)
    await connect(1, METADATA)
    await connect(2, METADATA)
    await connect(3, deviceMetadata('process-1', 'device-8'))
    await eventually(() => expect(heard.slice(0, 3).flat()).toHaveLength(3))
    const [first] = heard.flat()
    expect(heard).toEqual([[first], [first], [first], []])
    expect(JSON.parse(first ?? '')).toEqual({
      'device-agent': { gateway: expect.stringMatching(/^[0-9a-f-]{36}$/) },
    })
  })

  it('are one after the other when the older one does not answer any more', async () => {
    const clock = new ManualClock(Date.now())
    const running = await startGateway({ clock })
    const { sessions, registry } = running.gateway.parts
    const frozen = await RawAgent.connect(running, { isAlive: false })
    await frozen.auth(running.authtoken.reveal(), { Metadata: METADATA })
    await frozen.bind('cam.site.test')
    const agent = await RawAgent.connect(running)
    // When it is answered, the gateway has done with its connection whatever takes time.
    await agent.rpc(2, { Id: 'ep_x' })
    const answer = agent.auth(running.authtoken.reveal(), { Metadata: deviceMetadata('next') })
    const sleeping = clock.sleeping
    await eventually(() => expect(clock.sleeping).toBeGreaterThan(sleeping))
    expect(sessions.size).toBe(1)
    await clock.advance(2_000)
    expect(codeOf(await answer)).toBeUndefined()
    expect(sessions.size).toBe(1)
    expect(registry.match('cam.site.test')?.type).toBe('disconnected')
    expect(codeOf(await agent.bind('cam.site.test'))).toBeUndefined()
  })
})
