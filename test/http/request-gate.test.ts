import { once } from 'node:events'
import { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { Request, Response } from 'express'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { DueResponses, RequestGate } from '../../src/http/request-gate.ts'
import { eventually } from '../helpers/eventually.ts'
import { appWith, sendPipelined, sendRequest, serveHttp } from '../helpers/serve-http.ts'

async function start() {
  const gate = new RequestGate()
  const arrived = createDeferred<Response>()
  let posts = 0
  const app = appWith((routes) => {
    routes.use(gate.handler)
    routes.get('/slow', (_request, response) => arrived.resolve(response))
    routes.get('/', (_request, response) => void response.json('served'))
    routes.post('/slow', () => {
      posts += 1
    })
  })
  const { at } = await serveHttp(app)
  const ask = (path = '/', method = 'GET') => sendRequest(at, { path, method })
  /** POSTs in one piece; resolves with their connection when none of them is answered yet. */
  const pipeline = async (count: number) => {
    const socket = sendPipelined(at, count)
    await eventually(() => expect(posts).toBe(count))
    return socket
  }
  return { gate, arrived: arrived.promise, ask, pipeline }
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

  it('waits for no request whose connection has ended before its turn came', async () => {
    const { gate, ask, pipeline } = await start()
    const socket = await pipeline(10)
    socket.destroy()
    // Were one of them waited for, this test would not end in its time.
    await gate.close(120_000)
    expect((await ask()).status).toBe(503)
    gate.open()
    expect((await ask()).status).toBe(200)
  })

  it('breaks off what waits behind another one on the same connection', async () => {
    const { gate, pipeline } = await start()
    const socket = await pipeline(2)
    const closed = once(socket, 'close')
    await gate.close(0)
    await closed
  })

  it('lets everybody in again when something cannot be broken off', async () => {
    const { gate, ask } = await start()
    const response = new ServerResponse(new IncomingMessage(new Socket()))
    // A connection that does not end, whatever it is told.
    response.req.socket.destroy = () => response.req.socket
    gate.handler(response.req as Request, response as Response, () => {})
    await expect(gate.close(0)).rejects.toThrow('closing open requests')
    expect((await ask()).status).toBe(200)
  })
})

async function startDue() {
  const due = new DueResponses()
  const all: ServerResponse[] = []
  const { at } = await serveHttp((_request, response) => {
    due.add(response)
    all.push(response)
  })
  const arrived = (count: number) => eventually(() => expect(all).toHaveLength(count))
  return { due, all, at, arrived }
}

describe('DueResponses', () => {
  it('counts each until it is closed', async () => {
    const { due, all, at, arrived } = await startDue()
    sendPipelined(at, 3)
    await arrived(3)
    expect([due.size, [...due].length]).toEqual([3, 3])
    let hasEnded = false
    const ended = due.ended().then(() => {
      hasEnded = true
    })
    all[0]?.end()
    all[1]?.end()
    await eventually(() => expect(due.size).toBe(1))
    expect([hasEnded, [...due]]).toEqual([false, [all[2]]])
    all[2]?.end()
    await ended
    expect(due.size).toBe(0)
    await due.ended()
  })

  it('forgets those that were never begun when their connection ends', async () => {
    const { due, at, arrived } = await startDue()
    const other = sendPipelined(at, 1)
    await arrived(1)
    const socket = sendPipelined(at, 10)
    await arrived(11)
    socket.destroy()
    await eventually(() => expect(due.size).toBe(1))
    const ended = due.ended()
    other.destroy()
    await ended
    expect([due.size, [...due]]).toEqual([0, []])
  })

  it('does not wait for one that comes when its connection has ended', async () => {
    const { due, all, at, arrived } = await startDue()
    const socket = sendPipelined(at, 2)
    await arrived(2)
    socket.destroy()
    await due.ended()
    const [, behind] = all
    if (!behind) throw new Error('there is no second one')
    await eventually(() => expect(behind.req.socket.closed).toBe(true))
    due.add(behind)
    expect(due.size).toBe(0)
  })

  it('listens to a connection once, however many come on it', async () => {
    const { all, at, arrived } = await startDue()
    sendPipelined(at, 1)
    await arrived(1)
    const one = all[0]?.req.socket.listenerCount('close') ?? 0
    sendPipelined(at, 20)
    await arrived(21)
    expect(all[20]?.req.socket.listenerCount('close')).toBe(one)
  })

  it('ends the connections on which one is due, and no other', async () => {
    const { due, all, at, arrived } = await startDue()
    const answered = sendPipelined(at, 1)
    await arrived(1)
    all[0]?.end()
    await once(answered, 'data')
    const waiting = sendPipelined(at, 2)
    const closed = once(waiting, 'close')
    await arrived(3)
    due.cutOff()
    await Promise.all([closed, due.ended()])
    expect([due.size, all[0]?.req.socket.destroyed]).toEqual([0, false])
  })
})
