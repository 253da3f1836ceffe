import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { BufferAccount } from '../../../../src/gateway/streams/buffer-account.ts'
import type { Stream } from '../../../../src/muxado/stream.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { startHttp2Service } from '../../../helpers/http2-service.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { type IngressSiteOptions, startIngressSite } from '../../../helpers/ingress-site.ts'

const MIB = 1_048_576
/** Of a stream, before it has shown what its path and its device can do. */
const LEAST = 262_144
/** Two windows, which came before the device was known to be slow, and what streams of Node hold. */
const MAX_HELD = MIB

async function siteWith(listener: RequestListener, options: Partial<IngressSiteOptions> = {}) {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const service = (server.address() as AddressInfo).port
  const site = await startIngressSite({ service, ...options })
  return { site, session: await connectHttp2(site) }
}

const taking: RequestListener = (request, response) => {
  request.resume().on('end', () => response.end('taken'))
}

const upload = (session: ClientHttp2Session) => openStream(session, { ':method': 'POST' }, false)

/** Resolves when so much more of an upload is on its way. */
async function send(stream: ClientHttp2Stream, bytes: number): Promise<void> {
  await new Promise<void>((resolve, reject) =>
    stream.write(Buffer.alloc(bytes), (error) => (error ? reject(error) : resolve())),
  )
}

const windowOf = (session: ClientHttp2Session) => session.remoteSettings.initialWindowSize as number

const pinged = (session: ClientHttp2Session) =>
  new Promise<void>((resolve) => session.ping(() => resolve()))

describe('the receive window of a connection in HTTP/2', () => {
  it('lets several streams of an upload be on their way from the start', async () => {
    const { session } = await siteWith(taking)
    await eventually(() => expect(session.state.remoteWindowSize).toBeGreaterThanOrEqual(8 * MIB))
    expect(windowOf(session)).toBe(LEAST)
  })

  it('grows while the device takes an upload as it comes', async () => {
    const { session } = await siteWith(taking)
    const stream = upload(session)
    while (windowOf(session) < 2 * MIB) await send(stream, MIB)
    stream.end()
    expect((await answerOf(stream)).body.toString()).toBe('taken')
  })

  it('stays small before a device that takes nothing', async () => {
    const nothing = () => {}
    const serve = (stream: Stream) => {
      stream.handler = { onData: nothing, onEnd: nothing, onDrain: nothing, onClose: nothing }
    }
    const site = await startIngressSite({ service: 1, serve })
    const session = await connectHttp2(site)
    const stream = upload(session)
    stream.write(Buffer.alloc(8 * MIB))
    const { buffers } = site.endpoint.streams
    await eventually(() => expect(buffers.bytes).toBeGreaterThan(LEAST))
    await pinged(session)
    expect(windowOf(session)).toBeLessThanOrEqual(2 * LEAST)
    expect(buffers.bytes).toBeLessThan(MAX_HELD)
    stream.close()
  })

  it('is shared by the uploads of a connection', async () => {
    const { session } = await siteWith(taking)
    const first = upload(session)
    while (windowOf(session) < 2 * MIB) await send(first, MIB)
    const others = Array.from({ length: 15 }, () => upload(session))
    for (const stream of others) stream.write('begun')
    await eventually(() => expect(windowOf(session)).toBe(MIB / 2))
    const answers = [first, ...others].map((stream) => {
      stream.end()
      return answerOf(stream)
    })
    for (const { status } of await Promise.all(answers)) expect(status).toBe(200)
  })

  it('never holds more than the budget of buffers when the device stops', async () => {
    // An endpoint may have half of it.
    const budget = 2 * MIB
    const buffers = new BufferAccount(2 * budget)
    let most = 0
    const add = buffers.add.bind(buffers)
    buffers.add = (bytes) => {
      add(bytes)
      most = Math.max(most, buffers.bytes)
    }
    let isStopped = false
    let device: IncomingMessage | undefined
    const { session } = await siteWith(
      (request) => {
        device = isStopped ? request.pause() : request.resume()
      },
      { buffers },
    )
    const stream = upload(session)
    while (windowOf(session) < 2 * MIB) await send(stream, MIB)
    isStopped = true
    device?.pause()
    const streams = [stream, ...Array.from({ length: 7 }, () => upload(session))]
    for (const each of streams) each.write(Buffer.alloc(8 * MIB))
    await Promise.race(streams.map(answerOf))
    expect(most).toBeGreaterThan(budget / 2)
    // What a few reads of one turn bring is counted before anybody is cut.
    expect(most).toBeLessThan(budget + LEAST)
    for (const each of streams) each.close()
  })
})

describe('the receive window towards a service in HTTP/2', () => {
  it('is more than a stream to the device carries, and holds no more for a slow visitor', async () => {
    const service = await startHttp2Service((stream) => {
      stream.respond({ ':status': 200 })
      stream.end(Buffer.alloc(8 * MIB))
    })
    const site = await startIngressSite({ service: service.port, appProtocol: 'http2' })
    const slow = openStream(await connectHttp2(site))
    slow.pause()
    const { buffers } = site.endpoint.streams
    await eventually(() => expect(buffers.bytes).toBeGreaterThan(LEAST))
    await pinged(service.sessions[0] as never)
    expect(service.sessions[0]?.remoteSettings.initialWindowSize).toBe(2 * LEAST)
    expect(buffers.bytes).toBeLessThan(MAX_HELD)
    slow.close()
  })
})
