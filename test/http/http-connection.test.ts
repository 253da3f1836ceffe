import { once } from 'node:events'
import { Agent, createServer, get, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { HttpConnection } from '../../src/http/http-connection.ts'
import { eventually } from '../helpers/eventually.ts'
import { type ServedHttp, sendRequest, serveHttp } from '../helpers/serve-http.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const FULL = 256
/** A crowd comes from another address of this machine. */
const CROWD = '127.0.0.2'
const SLOW_BODY = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n'
const hello = (_request: unknown, response: ServerResponse) => void response.end('hello')

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
    const server = createServer((_request, response) => {
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
