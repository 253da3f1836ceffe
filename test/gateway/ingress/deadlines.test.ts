import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { connect as connectTls } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { putNodeBefore } from '../../helpers/hop-site.ts'
import { type IngressSiteOptions, startIngressSite } from '../../helpers/ingress-site.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import {
  fieldsOf,
  RawClient,
  startRawService,
  startScriptedService,
} from '../../helpers/raw-http.ts'

const GET = 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

async function connectTo(options: IngressSiteOptions) {
  const clock = new ManualClock()
  const site = await startIngressSite({ clock, ...options })
  return { clock, site, client: RawClient.connect(site.addresses.http.port) }
}

/** A service that takes everything and says nothing. */
const startSilentService = () =>
  startRawService((socket) => {
    socket.on('data', () => {})
    socket.on('end', () => socket.end())
  })

describe('a deadline', () => {
  it('closes a connection on which no request comes', async () => {
    const { clock, client, site } = await connectTo({ service: 1 })
    await eventually(() => expect(client.socket.connecting).toBe(false))
    client.socket.resume()
    await eventually(async () => {
      await clock.advance(2_000)
      expect(client.ending).toBe('end')
    })
    expect(client.text).toBe('')
    expect(site.endpoint.traffic.requests).toBe(0)
  })

  it('answers a head that takes too long with 408', async () => {
    const { clock, client } = await connectTo({ service: 1 })
    client.send('GET / HTTP/1.1\r\n')
    // Bytes now and then do not help.
    for (let second = 0; second < 20; second += 1) {
      client.send('X: y\r\n')
      await new Promise((resolve) => setTimeout(resolve, 5))
      await clock.advance(1_000)
    }
    expect(await client.receive('ERR_GATEWAY_REQUEST_TIMEOUT)\n')).toMatch(/^HTTP\/1\.1 408 /)
    expect(await client.end()).toBe('end')
  })

  it('closes a kept connection that stays unused', async () => {
    const service = await startScriptedService(OK)
    const { clock, client } = await connectTo({ service: service.port })
    client.send(GET)
    await client.receive('ok')
    await clock.advance(70_000)
    client.send(GET)
    await eventually(() => expect(client.text).toBe(OK.repeat(2)))
    await clock.advance(70_000)
    expect(client.ending).toBeUndefined()
    await clock.advance(10_000)
    expect(await client.end()).toBe('end')
  })

  it('answers a body that hardly grows with 408', async () => {
    const { clock, client, site } = await connectTo({ service: await startSilentService() })
    const free = site.session.freeSlots
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n')
    await eventually(() => expect(site.sdk.connections).toBe(1))
    for (let step = 0; step < 8; step += 1) {
      client.send('slow')
      await new Promise((resolve) => setTimeout(resolve, 5))
      await clock.advance(5_000)
    }
    const answer = await client.receive('ERR_GATEWAY_REQUEST_TIMEOUT)\n')
    expect(answer).toMatch(/^HTTP\/1\.1 408 /)
    expect(fieldsOf(answer).connection).toBe('close')
    await eventually(() => expect(site.session.freeSlots).toBe(free))
  })

  it('does not hurry a client that waits for a 100', async () => {
    const { clock, client, site } = await connectTo({ service: await startSilentService() })
    client.send(
      'POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n',
    )
    await eventually(() => expect(site.sdk.connections).toBe(1))
    await clock.advance(50_000)
    expect(client.text).toBe('')
  })

  it('lets a body take its time that grows enough', async () => {
    const { clock, client, site } = await connectTo({ service: await startSilentService() })
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n')
    for (let sent = 0; sent < 10; sent += 1) {
      client.send('x'.repeat(2_000))
      await eventually(() => expect(site.endpoint.traffic.bytesIn).toBeGreaterThan(sent * 2_000))
      await clock.advance(20_000)
    }
    expect(client.ending).toBeUndefined()
    expect(client.text).toBe('')
  })

  it('answers for a service that is silent for a minute with 504 ERR_NGROK_3005', async () => {
    const { clock, client, site } = await connectTo({ service: await startSilentService() })
    client.send(GET)
    await eventually(() => expect(site.sdk.connections).toBe(1))
    await clock.advance(58_000)
    expect(client.text).toBe('')
    await clock.advance(5_000)
    expect(await client.receive('ERR_NGROK_3005)\n')).toMatch(/^HTTP\/1\.1 504 Gateway Timeout/)
    await eventually(() => expect(site.sdk.connections).toBe(0))
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ late: 1, answered: 0 })
  })

  it('waits as long as the endpoint says', async () => {
    const { clock, client, site } = await connectTo({
      service: await startSilentService(),
      answerMs: 400_000,
    })
    client.send(GET)
    await eventually(() => expect(site.sdk.connections).toBe(1))
    await clock.advance(390_000)
    expect(client.text).toBe('')
    await clock.advance(15_000)
    expect(await client.receive('ERR_NGROK_3005)\n')).toMatch(/^HTTP\/1\.1 504 /)
  })

  it('waits for a gRPC answer as long as for a stream', async () => {
    const { clock, client, site } = await connectTo({ service: await startSilentService() })
    client.send(
      'POST /a.b/C HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n',
    )
    await eventually(() => expect(site.sdk.connections).toBe(1))
    await clock.advance(3_590_000)
    expect(client.ending).toBeUndefined()
    await clock.advance(15_000)
    expect(await client.receive('ERR_NGROK_3005)')).toMatch(/^HTTP\/1\.1 (200|504) /)
  })

  it('leaves the wait for an answer to the gateway of the device', async () => {
    const clock = new ManualClock()
    const service = await startSilentService()
    const site = await startIngressSite({ clock, service, answerMs: 400_000 })
    const tls = {
      served: (): never => {
        throw new Error('no visitor comes by TLS here')
      },
    }
    const first = await putNodeBefore(site, { clock, tls, log: captureLog().log })
    const client = RawClient.connect(first.addresses.http.port)
    client.send(GET)
    await eventually(() => expect(site.sdk.connections).toBe(1))
    await clock.advance(390_000)
    expect(client.text).toBe('')
    await clock.advance(15_000)
    expect(await client.receive('ERR_NGROK_3005)\n')).toMatch(/^HTTP\/1\.1 504 /)
  })

  it('counts from where the request was handed on, and lets an answer that has begun take its time', async () => {
    const port = await startRawService((socket) => {
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart'))
    })
    const { clock, client, site } = await connectTo({ service: port })
    client.send(GET)
    await client.receive('part')
    await clock.advance(120_000)
    expect(client.ending).toBeUndefined()
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ late: 0, answered: 1 })
  })

  it('breaks off a response that stops in the middle', async () => {
    const port = await startRawService((socket) => {
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart'))
    })
    const { clock, client } = await connectTo({ service: port })
    client.send(GET)
    await client.receive('part')
    await clock.advance(305_000)
    expect(await client.end()).toBe('ECONNRESET')
  })

  it('ends the wait for a stream with 503 and a time to come back', async () => {
    const service = await startSilentService()
    const { clock, site, client } = await connectTo({ service, sessionLimits: { openStreams: 1 } })
    client.send(GET)
    await eventually(() => expect(site.sdk.connections).toBe(1))
    const second = RawClient.connect(site.addresses.http.port)
    second.send(GET)
    await eventually(() => expect(site.slots.waiting).toBe(1))
    await clock.advance(6_500)
    expect(second.text).toBe('')
    await clock.advance(1_500)
    const answer = await second.receive('ERR_GATEWAY_SATURATED)\n')
    expect(answer).toMatch(/^HTTP\/1\.1 503 Service Unavailable/)
    expect(fieldsOf(answer)['retry-after']).toBe('1')
    expect(client.text).toBe('')
  })

  it('refuses at once where the line is full', async () => {
    const service = await startSilentService()
    const { site, client } = await connectTo({
      service,
      sessionLimits: { openStreams: 1 },
      slotLimits: { queueLength: 0 },
    })
    client.send(GET)
    await eventually(() => expect(site.sdk.connections).toBe(1))
    const second = RawClient.connect(site.addresses.http.port)
    second.send(GET)
    await second.receive('ERR_GATEWAY_SATURATED)\n')
  })
})

describe('a stop', () => {
  it('serves who was let in and not read, for a moment', async () => {
    const { port } = await startScriptedService(OK)
    const clock = new ManualClock()
    const site = await startIngressSite({ service: port, clock })
    const sockets = ['late', 'mute'].map(() => RawClient.connect(site.addresses.http.port))
    const [late, mute] = sockets as [RawClient, RawClient]
    // The third has been let in after the other two, and is answered; it may send more at any time.
    const served = RawClient.connect(site.addresses.http.port)
    served.send(GET)
    await served.receive('ok')
    let isStopped = false
    void site.ingress.stop(60_000).then(() => {
      isStopped = true
    })
    await clock.advance(20)
    served.send(GET)
    await eventually(() => expect(served.text.match(/^connection: close/gim)).toHaveLength(1))
    expect(await served.end()).toBe('end')
    late.send(GET)
    expect(fieldsOf(await late.receive('ok')).connection).toBe('close')
    expect(mute.ending).toBeUndefined()
    await clock.advance(2_000)
    expect(await mute.end()).toBe('end')
    for (const { socket } of [late, mute, served]) socket.end()
    await eventually(async () => {
      await clock.advance(20)
      expect(isStopped).toBe(true)
    })
  })

  it('waits for a TLS handshake that is under way, and for the request behind it', async () => {
    const { port } = await startScriptedService(OK)
    const clock = new ManualClock()
    const site = await startIngressSite({ service: port, clock })
    const at = { host: '127.0.0.1', port: site.addresses.https.port }
    const [slow, mute] = [connect(at), connect(at)]
    const ended = once(mute.resume(), 'end')
    await Promise.all([once(slow, 'connect'), once(mute, 'connect')])
    const ask = async (socket?: Socket) => {
      const secure = connectTls({ ...(socket ? { socket } : at), rejectUnauthorized: false })
      secure.write('GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n')
      return (await text(secure)).slice(0, 12)
    }
    // Let in after the other two.
    expect(await ask()).toBe('HTTP/1.1 200')
    let isStopped = false
    void site.ingress.stop(60_000).then(() => {
      isStopped = true
    })
    for (let second = 0; second < 8; second += 1) await clock.advance(1_000)
    expect(await ask(slow)).toBe('HTTP/1.1 200')
    expect(mute.readableEnded).toBe(false)
    await eventually(async () => {
      await clock.advance(2_000)
      expect(mute.readableEnded).toBe(true)
    })
    await ended
    mute.destroy()
    await eventually(async () => {
      await clock.advance(20)
      expect(isStopped).toBe(true)
    })
  })

  it('lets a response end, says close, and closes unused connections', async () => {
    let respond: (() => void) | undefined
    const port = await startRawService((socket) => {
      socket.on('data', () => {
        respond = () => socket.write(OK)
      })
    })
    const site = await startIngressSite({ service: port })
    const busy = RawClient.connect(site.addresses.http.port)
    busy.send(GET)
    const unused = RawClient.connect(site.addresses.http.port)
    await eventually(() => expect(respond).toBeDefined())
    const stopped = site.ingress.stop(5_000)
    unused.socket.end()
    expect(await unused.end()).toBe('end')
    const late = RawClient.connect(site.addresses.http.port)
    expect(await late.end()).toBe('ECONNREFUSED')
    respond?.()
    expect(fieldsOf(await busy.receive('ok')).connection).toBe('close')
    busy.socket.end()
    await stopped
  })

  it('breaks off what is not over at its deadline', async () => {
    const { client, site } = await connectTo({
      service: await startSilentService(),
      clock: new ManualClock(),
    })
    client.send(GET)
    await eventually(() => expect(site.sdk.connections).toBe(1))
    await site.ingress.stop(0)
    await client.end()
    await eventually(() => expect(site.sdk.connections).toBe(0))
  })
})
