import type { Session } from '@ngrok/ngrok'
import { describe, expect, it } from 'vitest'
import { deviceMetadata, forward, startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { codeOf, RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import { RawClient, startRawService } from '../../helpers/raw-http.ts'
import {
  connectSdk,
  inTime,
  type RunningGateway,
  sdkCode,
  startGateway,
} from '../../helpers/running-gateway.ts'

const METADATA = deviceMetadata('process-1')
const message = (within_ms: unknown) => JSON.stringify({ 'device-agent': { drain: { within_ms } } })

/** As our agent asks for it; answers the URL. */
async function drain(session: Session, withinMs: number) {
  const builder = session.httpEndpoint().domain('drain.device-agent.internal')
  const listener = await inTime(builder.metadata(message(withinMs)).listen(), 'drain')
  return listener.url()
}

/** A service that answers when it is told to. */
async function startSlowService() {
  const waiting: (() => void)[] = []
  const url = await startDeviceService((_request, response) => {
    response.write('begun ')
    waiting.push(() => response.end('whole'))
  })
  return { url, waiting }
}

const held = ({ gateway }: RunningGateway, count: number) =>
  eventually(() => expect(gateway.parts.registry.held.size).toBe(count))

describe('an agent that drains', () => {
  it('is answered when what is under way has ended; who comes meanwhile waits for the next one', async () => {
    const running = await startGateway()
    const { sessions } = running.gateway.parts
    const slow = await startSlowService()
    const session = await connectSdk(running, { metadata: METADATA })
    await forward(session, slow.url)
    const first = visit(running)
    await eventually(() => expect(slow.waiting).toHaveLength(1))
    const second = visit(running, { method: 'POST', body: 'x' })
    await eventually(() => expect(slow.waiting).toHaveLength(2))
    let url: string | null | undefined
    const drained = drain(session, 10_000).then((it) => {
      url = it
    })
    await eventually(() => expect(running.logText()).toContain('agent is draining'))
    const waiting = visit(running, { method: 'POST', body: 'hello' })
    await held(running, 1)
    slow.waiting[0]?.()
    await first
    expect(url).toBeUndefined()
    slow.waiting[1]?.()
    await drained
    expect(url).toBe('drain:0')
    expect((await second).text).toBe('begun whole')

    // The process ends: the names stay held, from now on.
    const [ended] = sessions.all()
    ended?.end('the connection closed')
    const back = await connectSdk(running, { metadata: deviceMetadata('process-2') })
    await forward(back, await startDeviceService())
    expect((await waiting).text).toBe('hello')
  })

  it('is told how much is left when the time is up', async () => {
    const running = await startGateway()
    const slow = await startSlowService()
    const session = await connectSdk(running, { metadata: METADATA })
    await forward(session, slow.url)
    const underWay = visit(running)
    await eventually(() => expect(slow.waiting).toHaveLength(1))
    expect(await drain(session, 0)).toBe('drain:1')
    slow.waiting[0]?.()
    expect((await underWay).text).toBe('begun whole')
  })

  it('does not wait for upgraded connections', async () => {
    const running = await startGateway()
    const session = await connectSdk(running, { metadata: METADATA })
    const port = await startRawService((socket) => {
      socket.once('data', () => {
        socket.write(
          'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n',
        )
        socket.pipe(socket)
      })
    })
    await forward(session, `http://127.0.0.1:${port}`)
    const client = RawClient.connect(running.addresses.http.port)
    client.send(
      'GET / HTTP/1.1\r\nHost: cam.site.test\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n',
    )
    await client.receive('101')
    expect(await drain(session, 60_000)).toBe('drain:0')
    client.send('still here')
    await client.receive('still here')
  })

  it('waits a minute at most, whatever it asks for, and its names are held for as long', async () => {
    const clock = new ManualClock(Date.now())
    const agentLimits = { heartbeatIntervalMs: 3_600_000, heartbeatToleranceMs: 3_600_000 }
    const running = await startGateway({ clock, agentLimits })
    const { registry, sessions } = running.gateway.parts
    const streams: number[] = []
    const agent = await RawAgent.connect(running, { onStream: (type) => streams.push(type) })
    await agent.auth(running.authtoken.reveal(), { Metadata: METADATA })
    await agent.bind('cam.site.test')
    const client = RawClient.connect(running.addresses.http.port)
    client.send('GET / HTTP/1.1\r\nHost: cam.site.test\r\n\r\n')
    await eventually(() => expect(streams).toHaveLength(1))
    const draining = agent.bind('x.internal', { Extra: { Metadata: message(3_600_000) } })
    await eventually(() => expect(registry.match('cam.site.test')?.type).toBe('disconnected'))
    let answer: RpcAnswer | undefined
    void draining.then((it) => {
      answer = it
    })
    await clock.advance(59_000)
    expect(answer).toBeUndefined()
    await clock.advance(2_000)
    expect((await draining).URL).toBe('drain:1')
    const name = registry.match('cam.site.test')
    if (name?.type !== 'disconnected') throw new Error('the name is not away')
    expect(name.isHeld(clock.monotonic())).toBe(true)
    await clock.advance(10_000)
    expect(name.isHeld(clock.monotonic())).toBe(false)
    // From its end on, the usual time.
    const [session] = sessions.all()
    session?.end('the connection closed')
    expect(name.isHeld(clock.monotonic() + 9_999)).toBe(true)
    expect(name.isHeld(clock.monotonic() + 10_000)).toBe(false)
  })

  it('withdraws a thousand names with one message, and may bind them again', async () => {
    const running = await startGateway()
    const { registry } = running.gateway.parts
    const agent = await RawAgent.connect(running)
    await agent.auth(running.authtoken.reveal(), { Metadata: METADATA })
    for (let n = 0; n < 1_000; n += 1) await agent.bind(`n${n}.site.test`)
    expect(registry.size).toBe(1_000)
    const answer = await agent.bind('x.internal', { Extra: { Metadata: message(1_000) } })
    expect(answer.URL).toBe('drain:0')
    expect(registry.size).toBe(0)
    expect(registry.match('n999.site.test')?.type).toBe('disconnected')
    expect(codeOf(await agent.bind('n999.site.test'))).toBeUndefined()
    expect(registry.size).toBe(1)
  })

  it.each([message(-1), message('soon'), '{"device-agent":{"dance":{}}}'])(
    'is refused when its message is not one: %s',
    async (metadata) => {
      const running = await startGateway()
      const session = await connectSdk(running, { metadata: METADATA })
      const bound = session.httpEndpoint().domain('cam.site.test').metadata(metadata).listen()
      expect(await sdkCode(bound)).toBe('ERR_NGROK_301')
      expect(running.gateway.parts.registry.size).toBe(0)
    },
  )

  it('is one of ours: the metadata of others stays what it is', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const builder = session.httpEndpoint().domain('cam.site.test').metadata(message(0))
    const listener = await inTime(builder.listen())
    expect(listener.url()).toContain('cam.site.test')
    const ours = await connectSdk(running, { metadata: METADATA })
    await inTime(ours.httpEndpoint().domain('b.site.test').metadata('a device-agent').listen())
    expect(running.gateway.parts.registry.size).toBe(2)
  })
})
