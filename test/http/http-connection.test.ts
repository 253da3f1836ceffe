import { once } from 'node:events'
import { Agent, get, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
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
