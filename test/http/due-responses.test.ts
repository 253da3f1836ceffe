import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { describe, expect, it } from 'vitest'
import { DueResponses } from '../../src/http/due-responses.ts'
import { eventually } from '../helpers/eventually.ts'
import { sendPipelined, serveHttp } from '../helpers/serve-http.ts'

async function start() {
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
    const { due, all, at, arrived } = await start()
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
    const { due, at, arrived } = await start()
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
    const { due, all, at, arrived } = await start()
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
    const { all, at, arrived } = await start()
    sendPipelined(at, 1)
    await arrived(1)
    const one = all[0]?.req.socket.listenerCount('close') ?? 0
    sendPipelined(at, 20)
    await arrived(21)
    expect(all[20]?.req.socket.listenerCount('close')).toBe(one)
  })

  it('ends the connections on which one is due, and no other', async () => {
    const { due, all, at, arrived } = await start()
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
