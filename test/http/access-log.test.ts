import type { Request } from 'express'
import { describe, expect, it } from 'vitest'
import { accessLog, forwardedAddress, peerAddress } from '../../src/http/access-log.ts'
import { securityHeaders } from '../../src/http/host-guard.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

async function logged(path: string, method = 'GET') {
  const { log, lines } = captureLog()
  const clock = new ManualClock()
  const access = accessLog({ log, clock, clientOf: () => 'me', quiet: (it) => it === '/quiet' })
  const app = appWith((it) => {
    it.use(access, securityHeaders)
    it.post('/slow', (_request, response) => void clock.advance(70).then(() => response.end()))
    it.get('/read', (_request, response) => void response.end())
    it.get('/quiet', (_request, response) => void response.end())
    it.get('/broken', (_request, response) => void response.status(503).end())
    it.get('/cut', (_request, response) => void response.destroy())
  })
  const { at } = await serveHttp(app)
  const answer = await sendRequest(at, { path, method }).catch(() => undefined)
  return { answer, line: await eventually(() => lines.at(-1) ?? expect.fail('no line')) }
}

describe('accessLog', () => {
  it('writes one line of facts, without the query', async () => {
    const { answer, line } = await logged('/slow?token=canary', 'POST')
    expect(line).toMatchObject({
      level: 'info',
      method: 'POST',
      path: '/slow',
      status: 200,
      ms: 70,
      client: 'me',
      request_id: answer?.headers['x-request-id'],
      msg: 'request',
    })
    expect(JSON.stringify(line)).not.toContain('canary')
  })

  it.each([
    ['/quiet', 'debug', 200],
    ['/read', 'debug', 200],
    ['/nothing', 'info', 404],
    ['/broken', 'warn', 503],
  ])('logs %s as %s', async (path, level, status) => {
    expect((await logged(path)).line).toMatchObject({ level, status })
  })

  it('marks an answer that did not get through', async () => {
    expect((await logged('/cut')).line).toMatchObject({ level: 'info', aborted: true })
  })
})

describe('securityHeaders', () => {
  it('keeps answers from being stored, sniffed or framed', async () => {
    const { answer } = await logged('/quiet')
    expect(answer?.headers).toMatchObject({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    })
  })
})

async function addressBy(clientOf: (request: Request) => string, forwarded?: string) {
  const app = appWith((it) =>
    it.get('/', (request, response) => void response.json(clientOf(request))),
  )
  const { at } = await serveHttp(app)
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded }
  return (await sendRequest(at, { headers: headers as Record<string, string> })).json
}

describe('forwardedAddress', () => {
  it.each([
    ['203.0.113.7', '203.0.113.7'],
    ['10.0.0.1, 203.0.113.7', '203.0.113.7'],
    ['2001:db8::1', '2001:db8::1'],
    ['"}{"forged', 'unknown'],
    ['', 'unknown'],
    [undefined, 'unknown'],
  ])('takes from %j the part that the service wrote: %s', async (header, address) => {
    expect(await addressBy(forwardedAddress, header)).toBe(address)
  })
})

describe('peerAddress', () => {
  it('does not believe what a caller says of itself', async () => {
    expect(await addressBy(peerAddress, '203.0.113.7')).toMatch(/127\.0\.0\.1$/)
  })
})
