import { describe, expect, it } from 'vitest'
import { CONTINUE, type Outcome, respond } from '../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../src/policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../../src/policy/policy.ts'
import { fieldsOf } from '../../helpers/raw-http.ts'
import { startHandSite } from './hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const INNER = 'cam.internal'
const request = (method = 'GET', more = '') =>
  `${method} /x HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`
const post = (content: string) => request('POST', `Content-Length: ${content.length}\r\n`) + content
type Judge = (exchange: PolicyExchange) => Outcome | Promise<Outcome>
const judging = (onHttpRequest: Judge, onHttpResponse?: Judge): Partial<CompiledPolicy> => ({
  hasRequestRules: true,
  onHttpRequest,
  ...(onHttpResponse && { hasResponseRules: true, onHttpResponse }),
})
const PASS: Judge = () => CONTINUE
const HAND_ON: Judge = () => ({ kind: 'forward', url: `http://${INNER}` })

describe('a request that is handed on', () => {
  it('counts at each endpoint that it comes through', async () => {
    const { device, site, visit, read } = await startHandSite({ policy: judging(HAND_ON) })
    const inner = site.bind(INNER, { onHttpRequest: PASS })
    const client = await visit(post('hello'))
    expect([site.endpoint.traffic.active, inner.traffic.active]).toEqual([1, 1])
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    for (const { traffic } of [site.endpoint, inner]) {
      expect(traffic).toMatchObject({
        requests: 1,
        active: 0,
        refused: 0,
        bytesIn: device.last.text.length,
        bytesOut: OK.length,
      })
      expect(traffic.stats?.classes).toEqual([0, 0, 1, 0, 0, 0])
    }
    expect(site.endpoint.traffic.outcomes.counts.answered).toBe(0)
    expect(inner.traffic.outcomes.counts.answered).toBe(1)
  })

  it('counts a refusal at each of them', async () => {
    const { site, visit, read } = await startHandSite({ policy: judging(HAND_ON) })
    const inner = site.bind(INNER, {
      onHttpRequest: () =>
        respond({ status: 403, headers: [], body: 'no', errorCode: 'ERR_NGROK_9' }),
    })
    expect(await read(await visit(request()))).toMatch(/^HTTP\/1\.1 403 /)
    for (const { traffic } of [site.endpoint, inner]) {
      expect(traffic).toMatchObject({ requests: 1, active: 0, refused: 1 })
      expect([...traffic.errors]).toEqual([['ERR_NGROK_9', 1]])
    }
  })

  it('keeps what the first policy has made of it, and the time it came', async () => {
    const seen: unknown[] = []
    const { device, site, visit } = await startHandSite({
      policy: judging(async (exchange) => {
        const { request: asked } = exchange
        seen.push(asked?.receivedAt, asked?.bodyReceivedAt)
        if (asked) asked.target = '/y'
        asked?.headers.append('x-outer', '1')
        await site.clock.advance(500)
        return { kind: 'forward', url: `http://${INNER}` }
      }),
    })
    const at = site.clock.now()
    site.bind(INNER, {
      onHttpRequest: ({ request: asked }) => {
        seen.push(asked?.receivedAt, asked?.bodyReceivedAt)
        return CONTINUE
      },
    })
    await visit(request())
    expect(seen).toEqual([at, at, at, at])
    expect(device.last.text).toMatch(/^GET \/y HTTP\/1\.1\r\n/)
    expect(fieldsOf(device.last.text)).toMatchObject({ host: 'a.test', 'x-outer': '1' })
  })

  it('is 404 where nobody has the name, and the connection goes on', async () => {
    const { site, visit, read } = await startHandSite({ policy: judging(HAND_ON) })
    const client = await visit(request() + request())
    expect((await read(client)).match(/^HTTP\/1\.1 404 |ERR_NGROK_3200\)/gm)).toHaveLength(4)
    expect(client.ending).toBeUndefined()
    expect(site.endpoint.traffic).toMatchObject({ requests: 2, active: 0, refused: 2 })
  })
})

describe('a policy that reads the body', () => {
  it('gets it while it judges the response, when all of it waits', async () => {
    const seen: unknown[] = []
    const { device, site, visit, read } = await startHandSite({
      policy: judging(
        async ({ request: asked }) => {
          seen.push(asked?.bodyReceivedAt)
          seen.push(String(await asked?.readBody(100)))
          seen.push(asked?.bodyReceivedAt)
          return respond({ status: 200, headers: [], body: 'made' }, true)
        },
        async ({ request: asked }) => {
          // What was judged is on its way out by then.
          seen.push(await asked?.readBody(100))
          return CONTINUE
        },
      ),
    })
    const client = await visit(post('hello'))
    expect(await read(client)).toMatch(/made$/)
    expect(device.streams).toEqual([])
    expect(seen).toEqual([undefined, 'hello', site.clock.now(), undefined])
  })

  it('does not get what has gone to the device', async () => {
    const seen: unknown[] = []
    const { device, visit, read } = await startHandSite({
      policy: judging(PASS, async ({ request: asked }) => {
        seen.push(await asked?.readBody(100))
        return CONTINUE
      }),
    })
    const client = await visit(post('hello'))
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(seen).toEqual([undefined])
  })

  it('gets nothing of a request without one, also for the response', async () => {
    const seen: unknown[] = []
    const { device, visit, read } = await startHandSite({
      policy: judging(PASS, async ({ request: asked }) => {
        seen.push(await asked?.readBody(100))
        return CONTINUE
      }),
    })
    const client = await visit(request())
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    expect(seen).toEqual([Buffer.alloc(0)])
  })
})
