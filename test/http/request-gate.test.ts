import type { Response } from 'express'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { RequestGate } from '../../src/http/request-gate.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

async function start() {
  const gate = new RequestGate()
  const arrived = createDeferred<Response>()
  const app = appWith((routes) => {
    routes.use(gate.handler)
    routes.get('/slow', (_request, response) => arrived.resolve(response))
    routes.get('/', (_request, response) => void response.json('served'))
  })
  const { at } = await serveHttp(app)
  return { gate, arrived: arrived.promise, ask: (path = '/') => sendRequest(at, { path }) }
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

  it('breaks off what does not end', async () => {
    const { gate, arrived, ask } = await start()
    const slow = ask('/slow').catch((error: Error) => error)
    await arrived
    await gate.close(0)
    expect(await slow).toBeInstanceOf(Error)
    expect((await ask()).status).toBe(503)
  })
})
