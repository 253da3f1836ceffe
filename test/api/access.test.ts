import { describe, expect, it } from 'vitest'
import { AGENT_DOMAIN, API_TOKEN, startApi } from './started-api.ts'

const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: 'device1.site.test' }
const NO_TOKEN = { authorization: undefined }
const WRONG_TOKEN = { authorization: 'Bearer wrong' }

describe.each(['call', 'callPublic'] as const)('the listener that answers %s', (listener) => {
  it.each([
    ['GET', '/tunnels'],
    ['POST', '/tunnels'],
    ['GET', '/tunnels/a.test'],
    ['PUT', '/tunnels/a.test'],
    ['DELETE', '/tunnels/a.test'],
    ['GET', '/status'],
    ['GET', '/readyz'],
    ['GET', '/nothing'],
  ])('wants a token for %s %s', async (method, path) => {
    const api = await startApi()
    for (const headers of [NO_TOKEN, WRONG_TOKEN]) {
      const { status, json } = await api[listener](method, path, undefined, headers)
      expect([status, json.code]).toEqual([401, 'unauthenticated'])
    }
  })

  it('takes no token from the query', async () => {
    const api = await startApi()
    const answer = await api[listener]('GET', `/tunnels?token=${API_TOKEN}`, undefined, NO_TOKEN)
    expect(answer.status).toBe(401)
  })

  it('answers /healthz to everybody', async () => {
    const api = await startApi()
    const { status, json } = await api[listener]('GET', '/healthz', undefined, NO_TOKEN)
    expect([status, json]).toEqual([200, { status: 'ok' }])
  })

  it('answers the probe of the agent alone, and without a token', async () => {
    const api = await startApi()
    const path = '/.well-known/device-agent-probe/0123456789abcdef'
    const { status, json } = await api[listener]('GET', path, undefined, NO_TOKEN)
    expect([status, json.code]).toEqual([404, 'not-found'])
  })

  it('refuses a change that a foreign web page sends', async () => {
    const api = await startApi()
    const headers = { origin: 'https://evil.test', 'sec-fetch-site': 'cross-site' }
    const { status, json } = await api[listener]('POST', '/tunnels', SPEC, headers)
    expect([status, json.code]).toEqual([403, 'forbidden'])
  })

  it('allows no other origin to read', async () => {
    const api = await startApi()
    const { headers } = await api[listener]('GET', '/tunnels', undefined, {
      origin: 'https://evil.test',
    })
    expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([])
  })
})

describe('host names', () => {
  it.each([
    ['call', 'localhost', 200],
    ['call', '127.0.0.1:7040', 200],
    ['call', '[::1]:7040', 200],
    ['call', '192.168.1.20:7040', 200],
    ['call', AGENT_DOMAIN, 421],
    ['call', 'rebound.evil.test', 421],
    ['callPublic', AGENT_DOMAIN, 200],
    ['callPublic', `${AGENT_DOMAIN}:8443`, 200],
    ['callPublic', 'localhost', 421],
    ['callPublic', '127.0.0.1', 421],
    ['callPublic', `evil.${AGENT_DOMAIN}`, 421],
  ] as const)('%s for host %s: %i', async (listener, host, status) => {
    const api = await startApi()
    expect((await api[listener]('GET', '/healthz', undefined, { host })).status).toBe(status)
  })

  it.each([
    ['call', /Use localhost or the IP address of the device\.$/],
    ['callPublic', /Use the domain set in AGENT_DOMAIN\.$/],
  ] as const)('%s says which one to use', async (listener, advice) => {
    const api = await startApi()
    const { json } = await api[listener]('GET', '/status', undefined, { host: 'device.local' })
    expect(json.detail).toMatch(advice)
  })
})

describe('wrong tokens', () => {
  const wrongFrom = (address: string) => ({ ...WRONG_TOKEN, 'x-forwarded-for': address })

  it('are counted by the address that the service saw, on the tunnel', async () => {
    const { callPublic } = await startApi()
    for (let n = 0; n < 10; n += 1) {
      await callPublic('GET', '/tunnels', undefined, wrongFrom(`10.0.0.${n}, 203.0.113.1`))
    }
    const again = await callPublic('GET', '/tunnels', undefined, wrongFrom('203.0.113.1'))
    expect([again.status, again.json.code]).toEqual([429, 'too-many-requests'])
    expect(Number(again.headers['retry-after'])).toBeGreaterThan(0)
    const other = await callPublic('GET', '/tunnels', undefined, wrongFrom('203.0.113.2'))
    expect(other.status).toBe(401)
  })

  it('are counted by the real address on the device, whatever a client claims', async () => {
    const { call } = await startApi()
    for (let n = 0; n < 10; n += 1) {
      await call('GET', '/tunnels', undefined, wrongFrom(`203.0.113.${n}`))
    }
    const { status } = await call('GET', '/tunnels', undefined, wrongFrom('203.0.113.99'))
    expect(status).toBe(429)
  })

  it('do not lock out who has the right one', async () => {
    const { call } = await startApi()
    for (let n = 0; n < 30; n += 1) await call('GET', '/tunnels', undefined, WRONG_TOKEN)
    expect((await call('GET', '/tunnels')).status).toBe(200)
  })
})

describe('what leaves the agent', () => {
  it('holds no secret, no stack and no path of the device', async () => {
    const { call, callPublic, service, folder, text } = await startApi()
    service.refuse('refused.site.test', 320)
    const requests: [string, string, unknown?, Record<string, string>?][] = [
      ['POST', '/tunnels', SPEC],
      ['POST', '/tunnels', SPEC],
      ['POST', '/tunnels', { ...SPEC, domain: 'refused.site.test' }],
      ['POST', '/tunnels', '{"broken"'],
      ['POST', '/tunnels', { ...SPEC, forwards_to: '169.254.169.254:80' }],
      ['GET', '/tunnels?view=status'],
      ['GET', '/tunnels/%zz'],
      ['GET', '/tunnels', undefined, { authorization: 'Bearer wrong' }],
      ['GET', '/status'],
      ['GET', '/readyz'],
      ['PATCH', '/status'],
      ['GET', `/nothing/${'x'.repeat(500)}`],
    ]
    for (const [method, path, body, headers] of requests) {
      for (const send of [call, callPublic]) {
        const answer = await send(method, path, body, headers)
        const seen = `${JSON.stringify(answer.headers)} ${answer.text}`
        expect(seen, path).not.toMatch(/canary|\/src\/|node_modules|\.ts:|\bat .*:\d+:\d+/)
        expect(seen, path).not.toContain(folder)
        expect(answer.headers['x-powered-by']).toBeUndefined()
      }
    }
    expect(text()).not.toContain('canary')
  })

  it('is an error of ours without a word about it when the code fails', async () => {
    const { call, agent, lines } = await startApi()
    agent.list = () => {
      throw new Error('canary in the message')
    }
    const { status, json, text } = await call('GET', '/tunnels')
    expect([status, json.code]).toEqual([500, 'internal'])
    expect(text).not.toContain('canary')
    expect(lines.filter(({ level }) => level === 'error')).toHaveLength(1)
  })
})
