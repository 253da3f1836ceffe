import type { Response } from 'express'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { RequestGate, type RequestGateOptions } from '../../src/http/request-gate.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

async function start(options?: RequestGateOptions) {
  const gate = new RequestGate(options)
  const arrived = createDeferred<Response>()
  const app = appWith((routes) => {
    routes.use(gate.handler)
    routes.get('/slow', (_request, response) => arrived.resolve(response))
    routes.get('/', (_request, response) => void response.json('served'))
    routes.post('/', (_request, response) => void response.json('changed'))
  })
  const { at } = await serveHttp(app)
  const ask = (path = '/', method = 'GET') => sendRequest(at, { path, method })
  return { gate, arrived: arrived.promise, ask }
}

describe('RequestGate', () => {
  it('waits for what is under way, and refuses what comes later until it is open again', async () => {
    const { gate, arrived, ask } = await start()
    const slow = ask('/slow')
    const response = await arrived
    let isClosed = false
    const closed = gate.close().then(() => {
      isClosed = true
    })
    const { status, headers } = await ask()
    expect([status, headers['retry-after'], headers.connection]).toEqual([503, '1', 'close'])
    expect(isClosed).toBe(false)
    response.json('late')
    expect((await slow).json).toBe('late')
    await closed
    expect((await ask()).status).toBe(503)
    gate.open()
    expect((await ask()).json).toBe('served')
  })

  it('lets in what changes nothing, and waits for none of that, where it is open for reads', async () => {
    const { gate, arrived, ask } = await start({ isOpenForReads: true })
    const slow = ask('/slow')
    const response = await arrived
    await gate.close()
    expect((await ask()).json).toBe('served')
    expect((await ask('/', 'POST')).status).toBe(503)
    expect((await ask('/', 'HEAD')).status).toBe(200)
    gate.open()
    expect((await ask('/', 'POST')).json).toBe('changed')
    response.json('late')
    expect((await slow).json).toBe('late')
  })

  it('breaks off what does not end', async () => {
    const { gate, arrived, ask } = await start()
    const slow = ask('/slow').catch((error: Error) => error)
    await arrived
    await gate.close(0)
    expect(await slow).toBeInstanceOf(Error)
    expect((await ask()).status).toBe(503)
  })
})
