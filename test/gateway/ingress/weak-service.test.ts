import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type IncomingMessage, type RequestListener, request, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { forward, visit } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { answerOf, connectHttp2, openStream } from '../../helpers/http2-visitor.ts'
import { connectSdk, startGateway } from '../../helpers/running-gateway.ts'
import { startWeakService, type Weakness } from '../../helpers/weak-service.ts'

const CONNECTIONS = 6
const FILES = 40
const HOST = 'cam.site.test'
const ANSWER_MS = 20

/** Files after a while, an endless stream at `/events`, and what was sent at `/echo`. */
const serve =
  (fields: Record<string, string> = {}): RequestListener =>
  (asked, response) => {
    if (asked.url === '/events') response.write('data: 1\n\n')
    else if (asked.url === '/echo') asked.pipe(response)
    else setTimeout(() => response.writeHead(200, fields).end(asked.url), ANSWER_MS)
  }

async function startSite(weakness: Weakness, answer: RequestListener = serve()) {
  const running = await startGateway()
  const service = await startWeakService(CONNECTIONS, weakness, answer)
  const sdk = await connectSdk(running)
  await forward(sdk, service.url, { domain: HOST })
  const caPem = readFileSync(running.addresses.caCertPath, 'utf8')
  const site = { addresses: running.addresses, caPem }
  const h2 = () => connectHttp2(site, { servername: HOST })
  return { running, service, sdk, h2 }
}

const isWeak: readonly Weakness[] = ['refuses', 'closes']
const paths = Array.from({ length: FILES }, (_, at) => `/file/${at}`)

describe.each(isWeak)('a service that takes 6 connections and %s the next', (weakness) => {
  it.each([
    ['keeps connections', {}],
    ['closes each after its response', { connection: 'close' }],
  ])('gives 40 files to one HTTP/2 connection: it %s', async (_how, fields) => {
    const { service, h2 } = await startSite(weakness, serve(fields))
    const session = await h2()
    const answers = await Promise.all(
      paths.map((path) => answerOf(openStream(session, { ':authority': HOST, ':path': path }))),
    )
    expect(answers.map(({ status }) => status)).toEqual(paths.map(() => 200))
    expect(answers.map(({ body }) => body.toString())).toEqual(paths)
    expect(service.most()).toBe(CONNECTIONS)
  })

  it('gives 40 files to 40 connections of HTTP/1.1, and bodies come whole', async () => {
    const { running } = await startSite(weakness)
    const answers = await Promise.all(
      paths.map((path, at) =>
        at % 2 === 0
          ? visit(running, { host: HOST, path })
          : visit(running, { host: HOST, path: '/echo', method: 'PUT', body: path }),
      ),
    )
    expect(answers.map(({ status, text }) => [status, text])).toEqual(
      paths.map((path) => [200, path]),
    )
  })

  it('gives 40 files while a WebSocket and an event stream keep two places', async () => {
    const { running, service, h2 } = await startSite(weakness, serve())
    const { port } = running.addresses.http
    const events = request({ port, path: '/events', headers: { host: HOST }, agent: false })
    onTestFinished(() => void events.destroy())
    const [stream] = (await once(events.end(), 'response')) as [IncomingMessage]
    stream.on('error', () => {}).resume()
    const socket = connect(port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    socket.write(`GET /ws HTTP/1.1\r\nHost: ${HOST}\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n`)
    const [switched] = (await once(socket, 'data')) as [Buffer]
    expect(switched.toString()).toMatch(/^HTTP\/1.1 101 /)
    let isOver = false
    for (const held of [stream, socket]) {
      held.once('close', () => {
        isOver = true
      })
    }
    const session = await h2()
    for (let round = 0; round < 2; round += 1) {
      const answers = await Promise.all(
        paths.map((path) => answerOf(openStream(session, { ':authority': HOST, ':path': path }))),
      )
      expect(answers.filter(({ status }) => status !== 200)).toEqual([])
    }
    expect(isOver).toBe(false)
    expect(service.most()).toBe(CONNECTIONS)
  })
})

describe('a service that closes the connection of one request', () => {
  it.each(['GET', 'POST'])('serves all others at once as before: %s', async (method) => {
    const held: ServerResponse[] = []
    const { running } = await startSite('closes', (asked, response) => {
      if (asked.url === '/crash') asked.socket.destroy()
      else if (asked.url === '/slow') held.push(response)
      else response.end('here')
    })
    const ask = (path: string) => visit(running, { host: HOST, path })
    const first = ask('/slow')
    await eventually(() => expect(held).toHaveLength(1))
    const crashed = await visit(running, { host: HOST, path: '/crash', method })
    expect(crashed.status).toBe(502)
    const more = [ask('/slow'), ask('/slow'), ask('/slow')]
    await eventually(() => expect(held).toHaveLength(4))
    for (const response of held) response.end('done')
    const answers = await Promise.all([first, ...more])
    expect(answers.map(({ text }) => text)).toEqual(Array(4).fill('done'))
  })
})
