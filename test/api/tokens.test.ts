import { describe, expect, it } from 'vitest'
import { sendRequest } from '../helpers/serve-http.ts'
import { API_TOKEN, type StartedApi, startApi } from './started-api.ts'

const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: 'device1.site.test' }
const FUTURE = '2999-01-31T09:00:00.000Z'

async function startWithTokens() {
  const api = await startApi()
  const create = async (body: object) => (await api.call('POST', '/tokens', body)).json
  const as = (token: string) => ({ authorization: `Bearer ${token}` })
  const statusAs = async (token: string) =>
    (await api.call('GET', '/status', undefined, as(token))).status
  return { ...api, create, as, statusAs }
}

describe('/tokens', () => {
  it('makes a token whose secret is shown this once', async () => {
    const { call, statusAs, text } = await startWithTokens()
    const { status, json, headers } = await call('POST', '/tokens', { name: 'site controller' })
    expect(status).toBe(201)
    expect(json).toEqual({
      id: expect.stringMatching(/^tok_[0-9a-f]{20}$/),
      name: 'site controller',
      scope: 'read',
      source: 'made',
      created_at: expect.any(String),
      expires_at: null,
      last_used_at: null,
      overlap_ends_at: null,
      token: expect.stringMatching(/^dagt_[\w-]{43}$/),
    })
    expect(headers.location).toBe(`/tokens/${json.id}`)
    expect(await statusAs(json.token)).toBe(200)
    const { token: secret, ...shown } = json
    const used = { ...shown, last_used_at: expect.any(String) }
    expect((await call('GET', '/tokens/site%20controller')).json).toEqual(used)
    const list = await call('GET', '/tokens')
    expect(list.json).toContainEqual(used)
    expect(list.text).not.toContain(secret)
    expect(text()).not.toContain(secret)
  })

  it('rotates: the old secret counts for an hour, or for as long as is said', async () => {
    const { call, create, statusAs } = await startWithTokens()
    const { id, token: first } = await create({ name: 'crane', scope: 'write', expires_at: FUTURE })
    const { status, json } = await call('POST', `/tokens/${id}/rotate`)
    expect([status, json.name, json.expires_at]).toEqual([200, 'crane', FUTURE])
    const overlapMs = Date.parse(json.overlap_ends_at) - Date.now()
    expect(overlapMs).toBeGreaterThan(3_500_000)
    expect(overlapMs).toBeLessThanOrEqual(3_600_000)
    expect([await statusAs(first), await statusAs(json.token)]).toEqual([200, 200])
    const again = await call('POST', '/tokens/crane/rotate', { overlap_s: 0, expires_at: null })
    expect([again.json.overlap_ends_at, again.json.expires_at]).toEqual([null, null])
    expect([await statusAs(first), await statusAs(json.token)]).toEqual([401, 401])
    expect(await statusAs(again.json.token)).toBe(200)
  })

  it('revokes at once', async () => {
    const { call, create, statusAs } = await startWithTokens()
    const { id, token } = await create({ name: 'crane' })
    expect((await call('DELETE', `/tokens/${id}`)).status).toBe(204)
    expect(await statusAs(token)).toBe(401)
    const again = await call('DELETE', `/tokens/${id}`)
    expect([again.status, again.json.code]).toEqual([404, 'token-not-found'])
  })

  it.each([
    ['revoked', (api: StartedApi) => api.call('DELETE', '/tokens/crane')],
    ['rotated', (api: StartedApi) => api.call('POST', '/tokens/crane/rotate', { overlap_s: 0 })],
  ])('carries out nothing whose body comes when its token is %s', async (_, end) => {
    const api = await startWithTokens()
    const { token } = await api.create({ name: 'crane', scope: 'write' })
    const { status, json, headers } = await sendRequest(
      { port: api.port },
      {
        method: 'POST',
        path: '/tokens',
        headers: { ...api.as(token), 'content-type': 'application/json' },
        body: JSON.stringify({ name: 'spare', scope: 'write' }),
        beforeBody: () => end(api),
      },
    )
    expect([status, json.code, json.detail]).toEqual([
      401,
      'unauthenticated',
      'The token has expired.',
    ])
    expect(headers['www-authenticate']).toContain('invalid_token')
    expect((await api.call('GET', '/tokens/spare')).status).toBe(404)
    const { entries } = (await api.call('GET', '/audit?who=crane')).json
    expect(entries[0]).toMatchObject({ action: 'token.create', result: 'unauthenticated' })
  })

  it.each([
    [{}, '/name'],
    [{ name: '' }, '/name'],
    [{ name: 'tok_1' }, '/name'],
    [{ name: 'two\nlines' }, '/name'],
    [{ name: ' padded ' }, '/name'],
    [{ name: 'x'.repeat(65) }, '/name'],
    [{ name: 'a', scope: 'admin' }, '/scope'],
    [{ name: 'a', expires_at: 'tomorrow' }, '/expires_at'],
    [{ name: 'a', expires_at: '2020-01-01T00:00:00Z' }, '/expires_at'],
    [{ name: 'a', colour: 'red' }, '/colour'],
  ])('refuses %j and says where', async (body, pointer) => {
    const { call } = await startWithTokens()
    const { status, json } = await call('POST', '/tokens', body)
    expect([status, json.code, json.errors[0].pointer]).toEqual([400, 'invalid-request', pointer])
  })

  it.each([-1, 2_592_001, 1.5, '1h'])('refuses an overlap of %j', async (overlap_s) => {
    const { call, create } = await startWithTokens()
    await create({ name: 'crane' })
    const { status, json } = await call('POST', '/tokens/crane/rotate', { overlap_s })
    expect([status, json.errors[0].pointer]).toEqual([400, '/overlap_s'])
  })

  it('refuses a name that is taken', async () => {
    const { call, create } = await startWithTokens()
    await create({ name: 'crane' })
    const { status, json } = await call('POST', '/tokens', { name: 'crane' })
    expect([status, json.code]).toEqual([409, 'token-name-taken'])
  })

  it('does not change a token that is a setting', async () => {
    const { call } = await startWithTokens()
    for (const [method, path] of [
      ['DELETE', '/tokens/owner'],
      ['POST', '/tokens/owner/rotate'],
    ] as const) {
      const { status, json } = await call(method, path)
      expect([status, json.code]).toEqual([409, 'token-given'])
    }
  })
})

describe('a token with the scope read', () => {
  it('reads everything', async () => {
    const { call, create, as } = await startWithTokens()
    const { token } = await create({ name: 'monitor' })
    for (const path of ['/tunnels', '/status', '/readyz', '/tokens', '/audit', '/openapi.json']) {
      expect([path, (await call('GET', path, undefined, as(token))).status]).toEqual([path, 200])
    }
  })

  it.each([
    ['POST', '/tunnels', SPEC],
    ['PUT', '/tunnels/device1.site.test', SPEC],
    ['DELETE', '/tunnels/device1', undefined],
    ['POST', '/tokens', { name: 'more' }],
    ['POST', '/tokens/monitor/rotate', undefined],
    ['DELETE', '/tokens/owner', undefined],
    ['PATCH', '/tunnels', {}],
    ['POST', '/nothing', {}],
  ])('may not %s %s', async (method, path, body) => {
    const { call, callPublic, create, as, agent, tokens } = await startWithTokens()
    const { token } = await create({ name: 'monitor' })
    for (const send of [call, callPublic]) {
      const { status, json, headers } = await send(method, path, body, as(token))
      expect([status, json.code]).toEqual([403, 'insufficient-scope'])
      expect(json.detail).toContain('scope "write"')
      expect(headers['www-authenticate']).toContain('error="insufficient_scope", scope="write"')
    }
    expect(agent.list()).toEqual([])
    expect(tokens.list().map(({ name }) => name)).toEqual(['owner', 'monitor'])
  })
})

describe('a token with the scope write', () => {
  it('changes what the owner may change', async () => {
    const { call, create, as } = await startWithTokens()
    const { token } = await create({ name: 'fleet', scope: 'write' })
    expect((await call('POST', '/tunnels', SPEC, as(token))).status).toBe(200)
    expect((await call('DELETE', '/tunnels/device1', undefined, as(token))).status).toBe(204)
  })
})

it('takes the setting as the token of the owner', async () => {
  const { call, statusAs } = await startWithTokens()
  expect(await statusAs(API_TOKEN)).toBe(200)
  const { json } = await call('GET', '/tokens')
  expect(json).toMatchObject([{ id: 'owner', name: 'owner', scope: 'write', source: 'setting' }])
})
