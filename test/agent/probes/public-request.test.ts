import { once } from 'node:events'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type PublicRequest,
  requestPublic,
  trustBeside,
} from '../../../src/agent/probes/public-request.ts'
import { readServiceDate } from '../../../src/agent/probes/service-time.ts'
import { DeadlineError } from '../../../src/base/deadline.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const { signal } = new AbortController()
const REQUEST: PublicRequest = { method: 'GET', verify: true, deadlineMs: 30_000, signal }

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

const serve = (listener: RequestListener) => listen(createHttpServer(listener))

describe('requestPublic', () => {
  it('says status, body, date and the code of the service', async () => {
    const port = await serve((request, response) => {
      response.setHeader('date', 'Wed, 02 Jan 2030 03:04:05 GMT')
      response.setHeader('ngrok-error-code', 'ERR_NGROK_3200')
      response.writeHead(404).end(`${request.method} ${request.headers.host} ${request.url}`)
    })
    expect(await requestPublic(new URL(`http://a.localhost:${port}/x?y`), REQUEST)).toEqual({
      status: 404,
      body: `GET a.localhost:${port} /x?y`,
      date: Date.UTC(2030, 0, 2, 3, 4, 5),
      serviceCode: 'ERR_NGROK_3200',
    })
  })

  it('connects elsewhere than the name leads when it is told to', async () => {
    const port = await serve((request, response) => response.end(request.headers.host))
    const connectTo = { host: '127.0.0.1', port }
    const url = new URL('http://agent.site.example.com:8443/')
    const { body } = await requestPublic(url, { ...REQUEST, connectTo })
    expect(body).toBe('agent.site.example.com:8443')
  })

  it('trusts the given CA beside the public ones, and nobody else', async () => {
    const { caPem, certPem, keyPem } = await createTlsFixture()
    const server = createHttpsServer({ cert: certPem, key: keyPem }, (_request, response) =>
      response.end('secured'),
    )
    const url = new URL(`https://localhost:${await listen(server)}/`)
    expect((await requestPublic(url, { ...REQUEST, trust: trustBeside(caPem) })).body).toBe(
      'secured',
    )
    expect((await requestPublic(url, { ...REQUEST, verify: false })).body).toBe('secured')
    await expect(requestPublic(url, REQUEST)).rejects.toMatchObject({
      code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    })
  })

  it('gives up at the deadline and when it is aborted, and lets go of the connection', async () => {
    const server = createTcpServer((socket) => socket.on('error', () => {}).resume())
    const url = new URL(`http://localhost:${await listen(server)}/`)
    await expect(requestPublic(url, { ...REQUEST, deadlineMs: 50 })).rejects.toThrow(DeadlineError)
    const controller = new AbortController()
    const asked = requestPublic(url, { ...REQUEST, signal: controller.signal })
    controller.abort(new Error('stopping'))
    await expect(asked).rejects.toThrow('stopping')
  })

  it('does not read an answer without end', async () => {
    const port = await serve((_request, response) => response.end('x'.repeat(10_000)))
    await expect(requestPublic(new URL(`http://localhost:${port}`), REQUEST)).rejects.toThrow(
      'the answer is longer than 4096 bytes',
    )
  })
})

describe('readServiceDate', () => {
  it('asks one URL after the other until one says', async () => {
    const port = await serve((request, response) => {
      expect(request.method).toBe('HEAD')
      response.setHeader('date', 'Wed, 02 Jan 2030 03:04:05 GMT')
      response.writeHead(308).end()
    })
    const sources = [
      { url: 'http://localhost:1' },
      { url: 'http://service.test', connectTo: { host: '127.0.0.1', port } },
    ]
    expect(await readServiceDate(sources, signal)).toBe(Date.UTC(2030, 0, 2, 3, 4, 5))
    expect(await readServiceDate(sources.slice(0, 1), signal)).toBeUndefined()
    expect(await readServiceDate([], signal)).toBeUndefined()
  })
  it('goes on to the next where an answer has no date, and looks at no certificate', async () => {
    const { certPem, keyPem } = await createTlsFixture()
    const dateless = await serve((_request, response) => {
      response.sendDate = false
      response.end()
    })
    const untrusted = createHttpsServer({ cert: certPem, key: keyPem }, (_request, response) => {
      response.setHeader('date', 'Wed, 02 Jan 2030 03:04:05 GMT')
      response.end()
    })
    const sources = [
      { url: `http://localhost:${dateless}` },
      { url: `https://localhost:${await listen(untrusted)}` },
    ]
    expect(await readServiceDate(sources, signal)).toBe(Date.UTC(2030, 0, 2, 3, 4, 5))
  })

  it('asks nobody any more when it is aborted', async () => {
    const controller = new AbortController()
    let asked = 0
    const port = await serve(() => {
      asked += 1
      controller.abort(new Error('stopping'))
    })
    const sources = [{ url: `http://localhost:${port}` }, { url: `http://localhost:${port}` }]
    await expect(readServiceDate(sources, controller.signal)).rejects.toThrow('stopping')
    expect(asked).toBe(1)
  })
})
