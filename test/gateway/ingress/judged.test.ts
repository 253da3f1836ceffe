import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { CONTINUE, type Outcome, respond } from '../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../src/policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../../src/policy/policy.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { fieldsOf } from '../../helpers/raw-http.ts'
import { startHandSite } from './hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const head = (bytes: number) => `HTTP/1.1 200 OK\r\nContent-Length: ${bytes}\r\n\r\n`
const WINDOW_BYTES = 262_144
const request = (method = 'GET', more = '') =>
  `${method} /x HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`
type Judge = (exchange: PolicyExchange) => Outcome | Promise<Outcome>
const judging = (onHttpRequest: Judge, onHttpResponse?: Judge): Partial<CompiledPolicy> => ({
  hasRequestRules: true,
  onHttpRequest,
  ...(onHttpResponse && { hasResponseRules: true, onHttpResponse }),
})
const PASS: Judge = () => CONTINUE

describe('a response whose verdict comes late', () => {
  async function judged() {
    const verdict = createDeferred<Outcome>()
    const parts = await startHandSite({ policy: judging(PASS, () => verdict.promise) })
    const client = await parts.visit(request())
    const settle = () => verdict.resolve(CONTINUE)
    return { ...parts, client, settle }
  }

  it('goes on as it comes, when its head alone has come', async () => {
    const { device, client, settle, read } = await judged()
    device.last.send(head(4))
    await turns()
    settle()
    expect(await read(client)).toBe(head(4))
    device.last.send('ab')
    expect(await read(client)).toBe(`${head(4)}ab`)
    device.last.send('cd')
    expect(await read(client)).toBe(`${head(4)}abcd`)
    // All of it is there: the next one is served.
    client.send(request())
    await turns()
    expect(device.last.text.match(/GET/g)).toHaveLength(2)
  })

  it('goes on with what has come, and all that follows', async () => {
    const { device, client, settle, read } = await judged()
    const total = 3 * WINDOW_BYTES
    device.last.send(head(total))
    for (let at = 0; at < total; at += WINDOW_BYTES / 4) {
      device.last.send('x'.repeat(WINDOW_BYTES / 4))
    }
    await turns()
    settle()
    expect(await read(client)).toHaveLength(head(total).length + total)
  })

  it('keeps no more than a window meanwhile', async () => {
    const { device, site, client, settle, read } = await judged()
    device.last.send(head(2_000_000))
    device.last.send('x'.repeat(2_000_000))
    await turns(50)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBeGreaterThan(WINDOW_BYTES / 2)
    expect(site.buffers.bytes).toBeLessThanOrEqual(WINDOW_BYTES)
    // Nor does a client that does not read get more.
    settle()
    await turns(50)
    expect(site.endpoint.traffic.bytesOut).toBeLessThan(WINDOW_BYTES + 1_000)
    expect(await read(client)).toHaveLength(head(2_000_000).length + 2_000_000)
  })

  it.each([
    ['with a body', OK],
    ['without one', 'HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n'],
  ])('is whole %s when all of it has come before', async (_what, answer) => {
    const { device, site, free, client, settle, read } = await judged()
    device.last.send(answer)
    await turns()
    expect(await read(client)).toBe('')
    // The device is done with it.
    expect(site.session.freeSlots).toBe(free - 1)
    settle()
    expect(await read(client)).toBe(answer)
    expect(site.endpoint.traffic.active).toBe(0)
    client.send(request())
    await turns()
    expect(device.streams).toHaveLength(1)
  })

  it('is not one any more when the device breaks off before', async () => {
    const { device, client, settle, read } = await judged()
    device.last.send(`${head(10)}12345`)
    await turns()
    device.last.end()
    const answer = await read(client)
    expect(answer).toContain('ERR_NGROK_3004')
    settle()
    expect(await read(client)).toBe(answer)
    expect(client.ending).toBeUndefined()
  })
})

it('a device that is lost before the verdict is not asked again', async () => {
  const { device, site, visit, read } = await startHandSite({
    policy: judging(PASS, () => new Promise(() => {})),
  })
  const client = await visit(request())
  device.last.send(head(10))
  await turns()
  site.endpoint.streams.cut()
  expect(await read(client)).toContain('ERR_NGROK_3210')
  expect(site.registry.held.size).toBe(0)
})

describe('a response', () => {
  it('leaves in one piece with the begin of its body, and not before', async () => {
    for (const policy of [{}, judging(PASS, PASS)]) {
      const { device, visit, read } = await startHandSite({ policy })
      const client = await visit(request())
      device.last.send(OK)
      expect(await read(client)).toBe(OK)
      expect(client.received).toHaveLength(1)
    }
  })

  it('leaves with its head alone when that has come alone', async () => {
    for (const policy of [{}, judging(PASS, PASS)]) {
      const { device, visit, read } = await startHandSite({ policy })
      const client = await visit(request())
      device.last.send(head(2))
      expect(await read(client)).toBe(head(2))
      device.last.send('ok')
      expect(await read(client)).toBe(OK)
    }
  })

  it('is no switch of protocols that nobody asked for', async () => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhi',
    )
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 502 .*ERR_NGROK_3004/s)
    expect(answer).not.toContain('connection: close')
    expect(device.last.isEnded).toBe(true)
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 1 })
  })
})

describe('an answer that a policy makes', () => {
  const reply = { status: 202, headers: ['x-a', 'b'], body: 'made', errorCode: 'ERR_NGROK_9' }
  const gone = async ({
    device,
    client,
  }: {
    device: { streams: unknown[] }
    client: { ending: unknown }
  }) => {
    expect(device.streams).toEqual([])
    expect(client.ending).toBeUndefined()
  }

  it.each([
    ['is sent as it is without rules for responses', undefined, true],
    ['is sent as it is where it says so', () => respond({ ...reply, status: 500 }), false],
  ] as const)('%s', async (_what, onHttpResponse, runs) => {
    const { device, site, visit, read } = await startHandSite({
      policy: judging(() => respond(reply, runs), onHttpResponse),
    })
    const client = await visit(request() + request())
    const text = await read(client)
    expect(text).toMatch(/^HTTP\/1\.1 202 .*\r\nx-a: b\r\n.*\r\n\r\nmadeHTTP\/1\.1 202 .*made$/s)
    await gone({ device, client })
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 2 })
    expect([...site.endpoint.traffic.errors]).toEqual([['ERR_NGROK_9', 2]])
  })

  it('goes through the rules for responses, which change it', async () => {
    const { device, site, visit, read } = await startHandSite({
      policy: judging(
        () => respond(reply, true),
        ({ response }) => {
          response?.headers.append('x-seen', String(response.status))
          return CONTINUE
        },
      ),
    })
    const client = await visit(request() + request())
    const text = await read(client)
    expect(text.match(/HTTP\/1\.1 202 /g)).toHaveLength(2)
    expect(fieldsOf(text)).toMatchObject({ 'x-a': 'b', 'x-seen': '202', 'content-length': '4' })
    expect(text).toMatch(/\r\n\r\nmade$/)
    await gone({ device, client })
    expect(site.endpoint.traffic.refused).toBe(2)
  })

  it('is replaced by another that those make', async () => {
    const { device, visit, read } = await startHandSite({
      policy: judging(
        () => respond(reply, true),
        () => respond({ status: 418, headers: [], body: 'other' }),
      ),
    })
    const client = await visit(request() + request())
    expect((await read(client)).match(/HTTP\/1\.1 \d+|other|made/g)).toEqual([
      'HTTP/1.1 418',
      'other',
      'HTTP/1.1 418',
      'other',
    ])
    await gone({ device, client })
  })

  it.each([
    [true, { 'content-length': '4' }, 'MADE'],
    [false, { 'transfer-encoding': 'chunked' }, '4\r\nMADE\r\n0\r\n\r\n'],
  ])('has its body changed by those, as a whole: %s', async (isWhole, fields, body) => {
    const upper = () => {
      let whole = ''
      return new PassThrough({
        transform(chunk, _encoding, done) {
          const text = String(chunk).toUpperCase()
          whole += text
          done(null, isWhole ? undefined : text)
        },
        flush: (done) => done(null, isWhole ? whole : undefined),
      })
    }
    const { device, site, visit, read } = await startHandSite({
      policy: judging(
        () => respond(reply, true),
        (exchange) => {
          exchange.transformResponse({ isWhole, create: upper })
          return CONTINUE
        },
      ),
    })
    const client = await visit(request())
    const text = await read(client)
    expect(text).toMatch(/^HTTP\/1\.1 202 Accepted\r\n/)
    expect(fieldsOf(text)).toMatchObject({ 'x-a': 'b', ...fields })
    expect(text.slice(text.indexOf('\r\n\r\n') + 4)).toBe(body)
    await gone({ device, client })
    expect(site.endpoint.traffic.active).toBe(0)
    client.send(request())
    expect(await read(client)).toBe(text + text)
  })

  it('is taken by a slow reader in its own time', async () => {
    const body = 'x'.repeat(2_000_000)
    const { site, visit, read } = await startHandSite({
      policy: judging(
        () => respond({ ...reply, body }, true),
        (exchange) => {
          exchange.transformResponse({ isWhole: false, create: () => new PassThrough() })
          return CONTINUE
        },
      ),
    })
    const client = await visit(request())
    await site.advance(60_000)
    expect(await read(client)).toMatch(/x\r\n0\r\n\r\n$/)
    const gone = await visit(request())
    await site.advance(5_000)
    gone.reset()
    await read(gone)
    expect(site.endpoint.traffic.active).toBe(0)
  })
})
