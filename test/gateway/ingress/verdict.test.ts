import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { CLOSE, CONTINUE, type Outcome, respond } from '../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../src/policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../../src/policy/policy.ts'
import { turns } from '../../helpers/frame-peer.ts'
import type { MemorySite } from '../../helpers/memory-site.ts'
import { fieldsOf } from '../../helpers/raw-http.ts'
import { startHandSite } from './hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const HALF = 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345'
const get = (more = '', path = '/') => `GET ${path} HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`
const post = (bytes: number) =>
  `POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: ${bytes}\r\n\r\n`
type Judge = (exchange: PolicyExchange) => Outcome | Promise<Outcome>
const onRequest = (onHttpRequest: Judge): Partial<CompiledPolicy> => ({
  hasRequestRules: true,
  onHttpRequest,
})
const onResponse = (onHttpResponse: Judge, onHttpRequest: Judge = () => CONTINUE) => ({
  hasResponseRules: true,
  onHttpRequest,
  onHttpResponse,
})
const messages = (site: MemorySite, msg: string) =>
  site.captured.lines.filter((line) => line.msg === msg)

describe('a verdict', () => {
  it('that fails is 500, told in the log with its endpoint, and the end of the connection', async () => {
    const { site, visit, read } = await startHandSite({
      policy: onRequest(() => Promise.reject(new Error('a bug'))),
    })
    const client = await visit(get())
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 500 .*ERR_NGROK_2254/s)
    expect(fieldsOf(answer).connection).toBe('close')
    expect(messages(site, 'policy failed')).toEqual([
      expect.objectContaining({ endpoint: 'ep_a.test', err: expect.anything() }),
    ])
  })

  it('that fails when its client is gone is told in the log alone', async () => {
    const verdict = createDeferred<Outcome>()
    const { site, visit } = await startHandSite({ policy: onRequest(() => verdict.promise) })
    const client = await visit(get())
    client.reset()
    await turns()
    verdict.reject(new Error('late'))
    await turns()
    expect(site.captured.lines.map(({ msg }) => msg)).toEqual(['policy failed'])
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 0 })
  })

  it('that cannot be followed costs its connection, and no other', async () => {
    const { device, site, visit, read } = await startHandSite({
      policy: onRequest(({ request }) =>
        request?.target === '/bad'
          ? Promise.resolve({ kind: 'forward', url: 'no url' })
          : Promise.resolve(CONTINUE),
      ),
    })
    const good = await visit(get())
    const bad = await visit(get('', '/bad'))
    await read(bad)
    expect(bad.ending).toBe('reset')
    expect(messages(site, 'exchange failed')).toEqual([
      expect.objectContaining({ endpoint: 'ep_a.test', err: expect.anything() }),
    ])
    device.last.send(OK)
    expect(await read(good)).toBe(OK)
    expect(site.endpoint.traffic.active).toBe(0)
  })

  it('that closes does so without a word, and frees the stream', async () => {
    const { device, site, free, visit, read } = await startHandSite({
      policy: onResponse(() => Promise.resolve(CLOSE)),
    })
    const client = await visit(get())
    device.last.send(HALF)
    expect(await read(client)).toBe('')
    expect(client.ending).toBe('reset')
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 0 })
    expect(site.captured.lines).toEqual([])
  })

  it('that answers is counted with its code, and the connection goes on', async () => {
    const { device, site, free, visit, read } = await startHandSite({
      policy: onResponse(() =>
        respond({ status: 418, headers: ['x-a', 'b'], body: 'no', errorCode: 'ERR_NGROK_9' }),
      ),
    })
    const client = await visit(get())
    device.last.send(HALF)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 418 .*\r\nx-a: b\r\n.*\r\n\r\nno$/s)
    expect(fieldsOf(answer)).not.toHaveProperty('connection')
    expect(client.ending).toBeUndefined()
    expect(site.session.freeSlots).toBe(free)
    expect([...site.endpoint.traffic.errors]).toEqual([['ERR_NGROK_9', 1]])
  })
})

describe('what changes a body and fails', () => {
  const failing = {
    isWhole: false,
    create: () =>
      new PassThrough({
        transform(chunk, _encoding, done) {
          if (String(chunk).includes('!')) done(new Error('not that'))
          else done(null, chunk)
        },
      }),
  }
  const policy = onResponse(
    (exchange) => {
      exchange.transformResponse(failing)
      return CONTINUE
    },
    (exchange) => {
      exchange.transformRequest(failing)
      return CONTINUE
    },
  )

  it('is 500 before the request goes on', async () => {
    const { device, site, visit, read } = await startHandSite({ policy, logLevel: 'info' })
    const client = await visit(`${post(5)}1234!`)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 500 .*ERR_NGROK_2254/s)
    expect(fieldsOf(answer)).not.toHaveProperty('connection')
    expect(device.streams).toEqual([])
    expect(messages(site, 'body transformation failed')).toEqual([
      expect.objectContaining({ endpoint: 'ep_a.test', err: expect.anything() }),
    ])
  })

  it('breaks off a response that has begun', async () => {
    const { device, site, free, visit, read } = await startHandSite({ policy })
    const client = await visit(get())
    device.last.send(HALF)
    expect(await read(client)).toMatch(/12345/)
    device.last.send('!')
    await read(client)
    expect(client.ending).toBe('reset')
    expect(site.session.freeSlots).toBe(free)
    expect([...site.endpoint.traffic.errors]).toEqual([['ERR_NGROK_2254', 1]])
  })
})
