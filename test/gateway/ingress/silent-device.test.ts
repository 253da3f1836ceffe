import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { CONTINUE, type Outcome } from '../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../src/policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../../src/policy/policy.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { fieldsOf } from '../../helpers/raw-http.ts'
import { startHandSite } from './hand-device.ts'

const get = (more = '') => `GET / HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`
const post = (bytes: number) =>
  `POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: ${bytes}\r\n\r\n`
type Judge = (exchange: PolicyExchange) => Outcome | Promise<Outcome>
const onRequest = (onHttpRequest: Judge): Partial<CompiledPolicy> => ({
  hasRequestRules: true,
  onHttpRequest,
})

describe('a device that is silent', () => {
  it('has a minute from when it got the request, not from when a policy did', async () => {
    const verdict = createDeferred<Outcome>()
    const ends: unknown[] = []
    const { site, visit, read } = await startHandSite({
      policy: onRequest((exchange) => {
        exchange.whenUpstreamEnds((status) => ends.push(status))
        return verdict.promise
      }),
    })
    const client = await visit(get())
    await site.advance(100_000)
    verdict.resolve(CONTINUE)
    await turns()
    await site.advance(58_000)
    expect(await read(client)).toBe('')
    await site.advance(5_000)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 504 .*ERR_NGROK_3005/s)
    expect(fieldsOf(answer).connection).toBe('close')
    expect(ends).toEqual([undefined])
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ late: 1 })
  })

  it.each([
    ['as long as its endpoint says', { answerMs: 10_000 }, 20_000, 20_000],
    [
      'as long as the gateway says, though nothing else may be silent for so long',
      { answerMs: 60_000, silenceMs: 30_000 },
      undefined,
      60_000,
    ],
    ['and then as long as the gateway says', { answerMs: 30_000 }, undefined, 30_000],
  ])('has %s', async (_what, limits, answerMs, expectedMs) => {
    const { site, visit, read } = await startHandSite({ limits })
    Object.assign(site.endpoint, { answerMs })
    const client = await visit(get())
    await site.advance(expectedMs - 2_000)
    expect(await read(client)).toBe('')
    await site.advance(5_000)
    expect(await read(client)).toContain('ERR_NGROK_3005')
  })

  it('is broken off in the middle of its answer after five minutes, and not while it moves', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(get())
    device.last.send('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n')
    for (let count = 0; count < 4; count += 1) {
      device.last.send('x')
      await turns()
      await site.advance(200_000)
      await read(client)
      expect(client.ending).toBeUndefined()
    }
    await site.advance(105_000)
    await read(client)
    expect(client.ending).toBe('reset')
    expect([...site.endpoint.traffic.errors]).toEqual([['ERR_NGROK_3005', 1]])
  })

  it('may be silent in an answer without a length for as long as the gateway says', async () => {
    const { device, site, visit, read } = await startHandSite({ limits: { idleMs: 900_000 } })
    const client = await visit(get())
    device.last.send('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n')
    await turns()
    await site.advance(890_000)
    expect(await read(client)).toContain('data: 1')
    expect(client.ending).toBeUndefined()
    await site.advance(15_000)
    await read(client)
    expect(client.ending).toBe('reset')
  })

  it('has time while the client sends, as long as that does not end', async () => {
    const { site, visit, read } = await startHandSite()
    const client = await visit(post(100_000))
    for (let count = 0; count < 10; count += 1) {
      client.send('x'.repeat(2_000))
      await turns()
      await site.advance(25_000)
    }
    expect(await read(client)).toBe('')
    expect(client.ending).toBeUndefined()
  })

  it('is not the one to blame where the policy is', async () => {
    const { device, site, visit, read } = await startHandSite({
      policy: onRequest(() => new Promise(() => {})),
    })
    const client = await visit(get())
    await site.advance(295_000)
    expect(await read(client)).toBe('')
    await site.advance(10_000)
    expect(await read(client)).toContain('ERR_NGROK_3005')
    expect(device.streams).toEqual([])
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ late: 0 })
  })

  it('is not what a slow body is', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(post(100))
    await site.advance(35_000)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 408 .*ERR_GATEWAY_REQUEST_TIMEOUT/s)
    expect(fieldsOf(answer).connection).toBe('close')
    expect(device.last.isEnded).toBe(true)
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ late: 0, abandoned: 0 })
  })
})
