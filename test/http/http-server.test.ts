import { once } from 'node:events'
import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import {
  Agent,
  createServer as createHttpServer,
  get,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { createDeferred } from '../../src/base/deferred.ts'
import { HttpConnection, HttpServer } from '../../src/http/http-server.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import {
  type ServedHttp,
  sendBytes,
  sendPipelined,
  sendRequest,
  serveHttp,
} from '../helpers/serve-http.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const hello = (_request: unknown, response: ServerResponse) => void response.end('hello')

function newServer(target: { host: string; port: number } | { socketPath: string }): HttpServer {
  const { log } = captureLog()
  return new HttpServer({ name: 'agent API', listener: hello, target, log })
}

describe('HttpServer', () => {
  it('serves on a free port', async () => {
    const { at } = await serveHttp(hello)
    expect((await sendRequest(at)).text).toBe('hello')
  })

  it('serves on a unix socket for this user alone, over what a killed process left', async () => {
    const socketPath = join(temporaryFolder(), 'api.sock')
    writeFileSync(socketPath, '')
    const { at, server } = await serveHttp(hello, { socketPath })
    expect(statSync(socketPath).mode & 0o777).toBe(0o600)
    expect((await sendRequest(at)).text).toBe('hello')
    await server.stop()
    expect(existsSync(socketPath)).toBe(false)
  })

  it('takes the path of another one, which leaves it when it stops', async () => {
    const socketPath = join(temporaryFolder(), 'api.sock')
    const answering = (text: string) => (_request: unknown, response: ServerResponse) =>
      void response.end(text)
    const first = await serveHttp(answering('first'), { socketPath, mode: 0o660 })
    const second = await serveHttp(answering('second'), { socketPath })
    expect((await sendRequest(first.at)).text).toBe('second')
    expect(statSync(socketPath).mode & 0o777).toBe(0o600)
    await first.server.stop()
    expect((await sendRequest(first.at)).text).toBe('second')
    await second.server.stop()
    expect(readdirSync(dirname(socketPath))).toEqual([])
  })

  it('answers once more on each connection that was kept when another process listens in its place', async () => {
    const { server, at } = await serveHttp(hello)
    const agent = new Agent({ keepAlive: true })
    onTestFinished(() => agent.destroy())
    const ask = () =>
      new Promise<IncomingMessage>((resolve, reject) => {
        get({ ...at, host: '127.0.0.1', agent }, (response) => {
          response.resume().on('end', () => resolve(response))
        }).on('error', reject)
      })
    expect((await ask()).headers.connection).toBe('keep-alive')
    server.stopAccepting()
    server.stopAccepting()
    const stopped = server.stop()
    const last = await ask()
    expect([last.statusCode, last.headers.connection]).toEqual([200, 'close'])
    await stopped
    await expect(ask()).rejects.toThrow('ECONNREFUSED')
  })

  it('says who is in the way when the port is taken', async () => {
    const other = createServer().listen(0, '127.0.0.1')
    await once(other, 'listening')
    onTestFinished(() => void other.close())
    const { port } = other.address() as { port: number }
    const start = newServer({ host: '127.0.0.1', port }).start()
    await expect(start).rejects.toThrow(StartError)
    await expect(start).rejects.toThrow(
      `The agent API cannot listen on 127.0.0.1:${port}: the address is already in use.`,
    )
  })

  it('refuses a socket path that the system would cut off', async () => {
    const start = newServer({ socketPath: `/${'a'.repeat(107)}` }).start()
    await expect(start).rejects.toThrow(/exceeds \d+ bytes/)
  })

  it.each([
    ['nonsense', 'nonsense\r\n\r\n', 400, 'malformed-request'],
    [
      'two lengths',
      'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n',
      400,
      'malformed-request',
    ],
    [
      'headers of 20 KiB',
      `GET / HTTP/1.1\r\nhost: a\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers-too-large',
    ],
  ])('answers %s with problem details', async (_title, bytes, status, code) => {
    const { at } = await serveHttp(hello)
    const answer = await sendBytes(at, bytes)
    expect(answer).toMatch(`HTTP/1.1 ${status} `)
    expect(answer).toMatch('content-type: application/problem+json')
    expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({ status, code })
  })
})

describe('the deadlines and limits of HttpServer', () => {
  const target = { host: '127.0.0.1', port: 0 }

  it.each([
    ['headers', 'GET / HTTP/1.1\r\nhost: a\r\n', { headersMs: 50 }],
    [
      'the bytes of a body',
      'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n',
      { requestMs: 50 },
    ],
  ])('answers 408 to %s that do not arrive', async (_title, bytes, timeouts) => {
    const listener = (request: IncomingMessage) => void request.on('error', () => {})
    const { at } = await serveHttp(listener, target, {
      timeouts: { headersMs: 40, requestMs: 50, checkMs: 10, ...timeouts },
    })
    const answer = await sendBytes(at, bytes)
    expect(answer).toMatch('HTTP/1.1 408 ')
    expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({
      code: 'request-timeout',
    })
  })

  it('adds nothing to an answer that has begun', async () => {
    const listener = (_request: unknown, response: ServerResponse) => void response.write('begun')
    const { at } = await serveHttp(listener, target)
    const socket = connect((at as { port: number }).port, '127.0.0.1').setEncoding('utf8')
    socket.on('error', () => {})
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    const [begun] = await once(socket, 'data')
    let rest = ''
    socket.on('data', (text) => {
      rest += text
    })
    socket.write('nonsense\r\n\r\n')
    await once(socket, 'close')
    expect([String(begun).includes('begun'), rest]).toEqual([true, ''])
  })

  it('lets a client go that stops reading', async () => {
    const closed = createDeferred()
    const listener = (_request: unknown, response: ServerResponse) => {
      response.once('close', closed.resolve)
      response.write(Buffer.alloc(32 * 1024 * 1024))
    }
    const { at } = await serveHttp(listener, target, { timeouts: { silenceMs: 100 } })
    const socket = connect((at as { port: number }).port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    socket.on('error', () => {})
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    await closed.promise
  })
})

describe('HttpServer, while an answer takes long', () => {
  const silent = { silenceMs: 50 }

  it('lets the client wait for it', async () => {
    const listener = ({ socket }: IncomingMessage, response: ServerResponse) => {
      let silences = 0
      socket.on('timeout', () => {
        silences += 1
        if (silences === 3) response.end('late')
      })
    }
    const { at } = await serveHttp(listener, undefined, { timeouts: silent })
    expect((await sendRequest(at)).text).toBe('late')
  })

  it('waits for nobody who has not sent all of a request', async () => {
    const { at } = await serveHttp(() => {}, undefined, { timeouts: silent })
    const request = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\na'
    expect(await sendBytes(at, request)).toBe('')
  })

  it('gives up in the end', async () => {
    const { at } = await serveHttp(() => {}, undefined, {
      timeouts: { silenceMs: 50, workMs: 120 },
    })
    await expect(sendRequest(at)).rejects.toMatchObject({ code: 'ECONNRESET' })
  })
})

describe('HttpServer.stop', () => {
  it('lets a request finish and takes no new connection', async () => {
    const [arrived, release] = [createDeferred(), createDeferred()]
    const { at, server } = await serveHttp((_request, response) => {
      arrived.resolve()
      void release.promise.then(() => response.end('late'))
    })
    const answer = sendRequest(at)
    await arrived.promise
    const stopped = server.stop()
    await expect(sendRequest(at)).rejects.toMatchObject({ code: 'ECONNREFUSED' })
    release.resolve()
    expect((await answer).text).toBe('late')
    await stopped
  })

  it('does not wait for kept-alive connections, idle or just served', async () => {
    const [arrived, release] = [createDeferred(), createDeferred()]
    const { at, server } = await serveHttp((request, response) => {
      if (request.url === '/idle') return void response.end()
      response.write('begun')
      arrived.resolve()
      void release.promise.then(() => response.end())
    })
    const agent = new Agent({ keepAlive: true })
    onTestFinished(() => agent.destroy())
    const [idle] = await once(get({ ...at, path: '/idle', agent }), 'response')
    idle.resume()
    await once(idle, 'end')
    const [streaming] = await once(get({ ...at, path: '/streaming', agent }), 'response')
    streaming.resume()
    await arrived.promise

    // Were it to wait for more than that, this test would not end in its time.
    const stopped = server.stop(60_000)
    release.resolve()
    await stopped
  })

  it('cuts off what does not end in time and says so', async () => {
    const arrived = createDeferred()
    const { at, server, lines } = await serveHttp(() => arrived.resolve())
    const answer = sendRequest(at)
    answer.catch(() => {})
    await arrived.promise
    await server.stop(20)
    await expect(answer).rejects.toMatchObject({ code: 'ECONNRESET' })
    expect(lines).toContainEqual(expect.objectContaining({ level: 'warn', requests: 1 }))
  })

  it('counts no request whose connection has ended before its turn came', async () => {
    let count = 0
    const isOver = createDeferred()
    const { at, server, lines } = await serveHttp(({ socket }) => {
      count += 1
      if (count === 10) socket.once('close', () => isOver.resolve())
    })
    const cut = sendPipelined(at, 10)
    await eventually(() => expect(count).toBe(10))
    cut.destroy()
    await isOver.promise
    const behind = sendPipelined(at, 2)
    const closed = once(behind, 'close')
    await eventually(() => expect(count).toBe(12))
    await server.stop(20)
    await closed
    expect(lines).toContainEqual(expect.objectContaining({ level: 'warn', requests: 2 }))
  })

  it('is over at once for a server that never started, and for one that stopped', async () => {
    await newServer({ host: '127.0.0.1', port: 0 }).stop()
    const { server } = await serveHttp(hello)
    await Promise.all([server.stop(), server.stop()])
  })

  it('does not wait for a connection that never asked anything', async () => {
    const { at, server } = await serveHttp(hello)
    const socket = connect((at as { port: number }).port, '127.0.0.1')
    await once(socket, 'connect')
    onTestFinished(() => void socket.destroy())
    await server.stop(200)
  })
})

const FULL = 256
/** A crowd comes from another address of this machine. */
const CROWD = '127.0.0.2'
const SLOW_BODY = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n'

/** Connections that say `bytes` and nothing more. */
async function openMany(
  at: ServedHttp['at'],
  count: number,
  { bytes = '', localAddress = '127.0.0.1' } = {},
): Promise<Socket[]> {
  const where = 'port' in at ? { ...at, host: '127.0.0.1', localAddress } : { path: at.socketPath }
  const sockets = Array.from({ length: count }, () => {
    const socket = connect(where).resume()
    onTestFinished(() => void socket.destroy())
    socket.on('error', () => {})
    socket.write(bytes)
    return socket
  })
  await Promise.all(sockets.map((socket) => once(socket, 'connect')))
  return sockets
}

const openOf = (sockets: readonly Socket[]) => sockets.filter(({ destroyed }) => !destroyed).length

describe('the connections of an HttpServer', () => {
  it('are 256 at once', async () => {
    const { at } = await serveHttp(hello)
    const sockets = await openMany(at, FULL + 1)
    await eventually(() => expect(openOf(sockets)).toBe(FULL))
  })

  it.each([
    ['nothing', ''],
    ['half a head', 'GET / HTTP/1.1\r\nhost: a\r\n'],
    ['half a body', SLOW_BODY],
  ])('shut nobody out who comes after 256 that sent %s', async (_what, bytes) => {
    const slow = (request: IncomingMessage, response: ServerResponse) => {
      request.on('error', () => {})
      if (request.method === 'GET') response.end('hello')
    }
    const { at } = await serveHttp(slow)
    await openMany(at, FULL, { bytes })
    expect((await sendRequest(at)).text).toBe('hello')
  })

  it('go on while they are served, whoever else comes', async () => {
    const [arrived, release] = [createDeferred(), createDeferred()]
    const { at } = await serveHttp((_request, response) => {
      arrived.resolve()
      void release.promise.then(() => response.end('late'))
    })
    const answer = sendRequest(at)
    await arrived.promise
    await openMany(at, 2 * FULL)
    release.resolve()
    expect((await answer).text).toBe('late')
  })

  it('stay while they wait for the next request, when a crowd comes from elsewhere', async () => {
    const target = { host: '127.0.0.1', port: 0 }
    const { at } = await serveHttp(hello, target, { timeouts: { keepAliveMs: 60_000 } })
    const agent = new Agent({ keepAlive: true })
    onTestFinished(() => agent.destroy())
    const ask = async () => {
      const request = get({ ...at, host: '127.0.0.1', agent })
      const [response] = await once(request, 'response')
      response.resume()
      await once(response, 'end')
      return request.reusedSocket
    }
    await ask()
    await openMany(at, 2 * FULL, { localAddress: CROWD })
    expect(await ask()).toBe(true)
  })

  it('are one crowd on a unix socket, which serves newcomers all the same', async () => {
    const { at } = await serveHttp(hello, { socketPath: join(temporaryFolder(), 'api.sock') })
    await openMany(at, FULL)
    expect((await sendRequest(at)).text).toBe('hello')
  })
})

describe('HttpConnection', () => {
  it('waits for its client once the answer is written, however slowly that one reads', async () => {
    const arrived = createDeferred<ServerResponse>()
    const connections: HttpConnection[] = []
    const server = createHttpServer((_request, response) => {
      connections[0]?.track(response)
      arrived.resolve(response)
    })
    server.on('connection', (socket) => connections.push(new HttpConnection(socket)))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
    onTestFinished(() => {
      client.destroy()
      server.close()
    })
    client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    const response = await arrived.promise
    const [connection] = connections
    expect(connection?.stage).toBe('busy')
    // More than the system takes for a client that reads nothing.
    response.end(Buffer.alloc(32_000_000))
    expect(response.writableFinished).toBe(false)
    expect(connection?.stage).toBe('awaited')
    client.resume()
    await once(response, 'close')
    expect(connection?.stage).toBe('idle')
  })
})
