import { describe, expect, it } from 'vitest'
import { hostGuard } from '../../src/http/host-guard.ts'
import { appWith, sendBytes, sendRequest, serveHttp } from '../helpers/serve-http.ts'

async function guarded() {
  const guard = hostGuard((hostname) => hostname === 'agent.test' || hostname === '[::1]')
  const app = appWith((it) =>
    it.use(guard).all('/', (_request, response) => void response.end('in')),
  )
  return serveHttp(app)
}

async function statusOf(method: string, headers: Record<string, string>) {
  const { at } = await guarded()
  const { status, json } = await sendRequest(at, { method, headers })
  return json ? `${status} ${json.code}` : String(status)
}

describe('hostGuard', () => {
  it.each([
    ['agent.test', '200'],
    ['AGENT.test:7040', '200'],
    ['[::1]:7040', '200'],
    ['evil.test', '421 misdirected-host'],
    ['agent.test.evil.test', '421 misdirected-host'],
    ['agent.test@evil.test', '421 misdirected-host'],
    ['agent.test:', '421 misdirected-host'],
    ['', '421 misdirected-host'],
  ])('for host %j answers %s', async (host, expected) => {
    expect(await statusOf('GET', { host })).toBe(expected)
  })

  it('refuses a request of HTTP/1.0 without a host', async () => {
    const { at } = await guarded()
    expect(await sendBytes(at, 'GET / HTTP/1.0\r\n\r\n')).toMatch('HTTP/1.1 421 ')
  })

  it.each(['evil.test', 'agent.test'])('refuses two hosts, the second being %s', async (second) => {
    const { at } = await guarded()
    const bytes = `GET / HTTP/1.1\r\nHost: agent.test\r\nHost: ${second}\r\nConnection: close\r\n\r\n`
    const answer = await sendBytes(at, bytes)
    expect(answer).toMatch('HTTP/1.1 400 ')
    expect(answer).toMatch('"malformed-request"')
  })

  it.each([
    ['POST', {}, '200'],
    ['POST', { origin: 'https://agent.test' }, '200'],
    ['POST', { 'sec-fetch-site': 'same-origin', origin: 'http://agent.test' }, '200'],
    ['POST', { 'sec-fetch-site': 'none' }, '200'],
    ['GET', { origin: 'https://evil.test', 'sec-fetch-site': 'cross-site' }, '200'],
    ['POST', { origin: 'https://evil.test' }, '403 forbidden'],
    ['POST', { origin: 'https://agent.test:81' }, '403 forbidden'],
    ['POST', { origin: 'null' }, '403 forbidden'],
    ['DELETE', { 'sec-fetch-site': 'cross-site' }, '403 forbidden'],
    ['PUT', { 'sec-fetch-site': 'same-site' }, '403 forbidden'],
  ])('for %s with %j answers %s', async (method, headers, expected) => {
    const given = headers as Record<string, string>
    expect(await statusOf(method, { host: 'agent.test', ...given })).toBe(expected)
  })
})
