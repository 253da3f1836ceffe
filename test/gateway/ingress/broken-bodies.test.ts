import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { connectHttp2, openStream } from '../../helpers/http2-visitor.ts'
import { connectSdk, inTime, startGateway } from '../../helpers/running-gateway.ts'

const HOST = 'a.site.test'

/** What the service does behind the first half of its body. */
type Ending = 'reset' | 'end' | 'link breaks'

/** A service of raw bytes: a head, then half of a body. */
async function startService(head: string) {
  const sockets: Socket[] = []
  const server = createServer((socket) => {
    sockets.push(socket)
    socket.on('error', () => {})
    socket.once('data', () => socket.write(`${head}\r\n\r\n`))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return {
    port: (server.address() as AddressInfo).port,
    send: (text: string) => sockets.at(-1)?.write(text),
    end: () => sockets.at(-1)?.end(),
    reset: () => sockets.at(-1)?.resetAndDestroy(),
  }
}

async function siteWith(head: string, ending: Ending) {
  const service = await startService(head)
  const running = await startGateway()
  const link = await ChaosProxy.start(running.addresses.agent)
  const addresses = { ...running.addresses, agent: link.address }
  const sdk = await connectSdk({ ...running, addresses })
  const listener = await inTime(sdk.httpEndpoint().domain(HOST).listen())
  listener.forward(`http://127.0.0.1:${service.port}`).catch(() => {})
  const finish = () => {
    if (ending === 'link breaks') link.reset()
    else service[ending]()
  }
  return { service, running, finish }
}

interface Answer {
  readonly head: string
  readonly body: string
  /** How the visitor's client has seen it end. */
  readonly end: 'whole' | 'broken'
}

type Site = Awaited<ReturnType<typeof siteWith>>
const onHalf = (site: Site, text: string) => {
  if (text.includes('half')) site.finish()
}

/** Over a bare socket: HTTP/1.1 over TCP or TLS. */
function overHttp1(isSecure: boolean, version = '1.1') {
  return async (site: Site): Promise<Answer> => {
    const { addresses } = site.running
    const socket = isSecure
      ? connectTls({
          port: addresses.https?.port,
          servername: HOST,
          ca: readFileSync(addresses.caCertPath),
        } as never)
      : connect(addresses.http.port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    socket.write(`GET / HTTP/${version}\r\nHost: ${HOST}\r\n\r\n`)
    let text = ''
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1')
      if (text.includes('\r\n\r\n') && !text.includes('half')) site.service.send('half')
      onHalf(site, text)
      if (text.endsWith('0\r\n\r\n')) socket.end()
    })
    const error = await new Promise<Error | undefined>((resolve) => {
      socket.on('error', resolve).on('close', () => resolve(undefined))
    })
    const [head = '', body = ''] = text.split('\r\n\r\n', 2)
    const isChunked = /transfer-encoding: chunked/i.test(head)
    const isWhole = isChunked ? text.endsWith('0\r\n\r\n') : error === undefined
    return { head, body, end: isWhole ? 'whole' : 'broken' }
  }
}

async function overHttp2(site: Site): Promise<Answer> {
  const { addresses } = site.running
  const caPem = readFileSync(addresses.caCertPath, 'utf8')
  const session = await connectHttp2({ addresses, caPem }, { servername: HOST })
  const stream = openStream(session, { ':authority': HOST })
  stream.on('error', () => {})
  let body = ''
  stream.on('response', () => site.service.send('half'))
  stream.on('data', (chunk: Buffer) => {
    body += chunk
    onHalf(site, body)
  })
  await new Promise((resolve) => stream.on('close', resolve))
  return { head: '', body, end: stream.rstCode === 0 ? 'whole' : 'broken' }
}

const VISITORS = [
  ['HTTP/1.1', overHttp1(false)],
  ['HTTP/1.1 over TLS', overHttp1(true)],
  ['HTTP/2', overHttp2],
] as const

const NO_LENGTH = 'HTTP/1.1 200 OK'
const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9'

describe.each(VISITORS)('over %s', (_name, visit) => {
  it('a body without a length is whole when the service ends it', async () => {
    const { body, end } = await visit(await siteWith(NO_LENGTH, 'end'))
    expect([body.includes('half'), end]).toEqual([true, 'whole'])
  })

  it('a body without a length is broken when the link breaks', async () => {
    expect((await visit(await siteWith(NO_LENGTH, 'link breaks'))).end).toBe('broken')
  })

  // The SDK ends a stream in the same way for a service that ends and for one that resets, so of a
  // body without a length nobody can tell; of all others the length tells.
  it.each(['end', 'reset', 'link breaks'] as const)(
    'a body in chunks is broken at: %s',
    async (ending) => {
      expect((await visit(await siteWith(CHUNKED, ending))).end).toBe('broken')
    },
  )
})

it('resets the connection of an HTTP/1.0 visitor over TLS, so that a part does not look whole', async () => {
  const { body, end } = await overHttp1(true, '1.0')(await siteWith(NO_LENGTH, 'link breaks'))
  expect([body, end]).toEqual(['half', 'broken'])
})
