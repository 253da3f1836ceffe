import { once } from 'node:events'
import { get } from 'node:http'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { createResourceToken } from '../../../src/gateway/records/resource-id.ts'
import { startManagementApi } from '../../helpers/management-client.ts'

const OPERATION = { operation_id: expect.stringMatching(/^op_[0-9A-Za-z]{27}$/) }
const UNKNOWN_ID = 'cr_000000000000000000000000000'

describe('access to the management API', () => {
  it('is refused with 403 and a code, without repeating what was sent', async () => {
    const { call, key, issuer, credentials, apiKeys, logText } = await startManagementApi()
    const { authtoken, credential } = await issuer.createCredential({})
    const [apiKey] = apiKeys.page({ limit: 1 })
    const wrong = createResourceToken(apiKey?.id ?? '')
    const cases: [key: string | null, code: string][] = [
      [null, 'ERR_NGROK_200'],
      ['nonsense', 'ERR_NGROK_202'],
      [wrong.reveal(), 'ERR_NGROK_203'],
      [authtoken.reveal(), 'ERR_NGROK_206'],
      [apiKey?.id ?? '', 'ERR_NGROK_208'],
    ]
    for (const [sent, code] of cases) {
      const { status, body } = await call('GET', '/credentials', { key: sent })
      expect([status, body.error_code, body.status_code]).toEqual([403, code, 403])
      expect(body.details).toEqual(OPERATION)
      if (code === 'ERR_NGROK_202') expect(body.msg).toContain('Check that it was copied')
      if (sent) expect(JSON.stringify(body) + logText()).not.toContain(sent)
    }
    expect(credentials.get(credential.id)).toBeDefined()
    expect((await call('GET', '/credentials', { key })).status).toBe(200)
  })

  it('is told apart from another form of the header', async () => {
    const { baseUrl } = await startManagementApi()
    const said = async (authorization: string) => {
      const headers = { authorization, 'svc-version': '2' }
      const response = await fetch(`${baseUrl}/api_keys`, { headers })
      const { error_code, msg } = (await response.json()) as { error_code: string; msg: string }
      return [error_code, msg]
    }
    const malformed = 'The API key is malformed. Check that it was copied completely.'
    expect(await said('Bearer ak_1234567890')).toEqual(['ERR_NGROK_202', malformed])
    const form = 'The authorization header must have the form Bearer <API key>.'
    expect(await said('Basic YTpi')).toEqual(['ERR_NGROK_202', form])
  })

  it('ends with the key, or with its owner', async () => {
    const { call, issuer } = await startManagementApi()
    const owner = await issuer.createBotUser({ name: 'fleet' })
    const { token, apiKey } = await issuer.createApiKey({ ownerId: owner.id })
    const code = async () => (await call('GET', '/api_keys', { key: token })).body.error_code
    expect(await code()).toBeUndefined()
    await issuer.updateBotUser(owner, { active: false })
    expect(await code()).toBe('ERR_NGROK_636')
    await issuer.deleteApiKey(apiKey)
    expect(await code()).toBe('ERR_NGROK_203')
  })

  it.each([
    [{ 'svc-version': '2' }, 200, undefined],
    [{ 'ngrok-version': '2' }, 200, undefined],
    [{}, 400, 'ERR_NGROK_218'],
    [{ 'svc-version': '1' }, 400, 'ERR_NGROK_217'],
    [{ 'ngrok-version': 'two' }, 400, 'ERR_NGROK_217'],
  ])('with the version headers %j is answered with %i %s', async (version, status, code) => {
    const { baseUrl, key } = await startManagementApi()
    const headers = { authorization: `Bearer ${key.reveal()}`, ...version }
    const response = await fetch(`${baseUrl}/api_keys`, { headers })
    const body = (await response.json()) as { error_code?: string }
    expect([response.status, body.error_code]).toEqual([status, code])
  })

  it('is limited to 300 requests at once for each key, and 80 a second then', async () => {
    const { call, clock, issuer } = await startManagementApi()
    for (let n = 0; n < 300; n += 1) expect((await call('GET', '/nothing')).status).toBe(404)
    const refused = await call('GET', '/api_keys')
    expect([refused.status, refused.body.error_code]).toEqual([429, 'ERR_NGROK_226'])
    expect(refused.headers.get('retry-after')).toBe('1')
    const { token } = await issuer.createApiKey({})
    expect((await call('GET', '/api_keys', { key: token })).status).toBe(200)
    await clock.advance(1_000)
    for (let n = 0; n < 80; n += 1) expect((await call('GET', '/nothing')).status).toBe(404)
    expect((await call('GET', '/nothing')).status).toBe(429)
  })

  it('slows down who tries keys', async () => {
    const { call } = await startManagementApi()
    const codes: string[] = []
    for (let n = 0; n < 12; n += 1) {
      codes.push((await call('GET', '/api_keys', { key: 'x' })).body.error_code)
    }
    expect(codes.slice(0, 10)).toEqual(Array(10).fill('ERR_NGROK_202'))
    expect(codes.slice(10)).toEqual(['ERR_NGROK_226', 'ERR_NGROK_226'])
  })

  it('is not there for a foreign host name or another web origin', async () => {
    const { call, baseUrl } = await startManagementApi()
    const request = get(baseUrl, { headers: { host: 'evil.test' } })
    const [response] = await once(request, 'response')
    expect(response.statusCode).toBe(421)
    expect(JSON.parse(await text(response)).msg).toContain('GATEWAY_API_HOSTS')
    const change = await call('POST', '/api_keys', {
      body: {},
      headers: { origin: 'https://evil.test' },
    })
    expect(change.status).toBe(403)
  })

  it('is there under the host names that it was given', async () => {
    const { baseUrl } = await startManagementApi({ hosts: ['Gateway.lan'] })
    const request = get(`${baseUrl}/healthz`, { headers: { host: 'gateway.lan:8070' } })
    const [response] = await once(request, 'response')
    expect(response.statusCode).toBe(200)
    response.resume()
  })

  it('tells a health check without a key that it is up', async () => {
    const { call } = await startManagementApi()
    expect((await call('GET', '/healthz', { key: null })).body).toEqual({ status: 'ok' })
  })
})

describe('what is wrong with a request', () => {
  const json = { 'content-type': 'application/json' }
  it.each([
    ['POST', '/nothing', { body: {} }, 404, 'ERR_GATEWAY_NOT_FOUND'],
    ['PUT', '/credentials', { body: {} }, 405, 'ERR_GATEWAY_METHOD_NOT_ALLOWED'],
    ['POST', `/credentials/${UNKNOWN_ID}`, { body: {} }, 405, 'ERR_GATEWAY_METHOD_NOT_ALLOWED'],
    ['GET', `/credentials/${UNKNOWN_ID}`, {}, 404, 'ERR_GATEWAY_NOT_FOUND'],
    ['GET', '/credentials/rd_000000000000000000000000000', {}, 404, 'ERR_NGROK_227'],
    ['GET', '/credentials/%zz', {}, 400, 'ERR_NGROK_212'],
    ['GET', '/credentials?order=up', {}, 400, 'ERR_NGROK_231'],
    ['GET', '/credentials?filter=obj.id', {}, 400, 'ERR_NGROK_250'],
    ['GET', '/credentials?limit=1&limit=2', {}, 400, 'ERR_NGROK_232'],
    ['GET', '/credentials?limit=0', {}, 400, 'ERR_NGROK_244'],
    ['GET', '/credentials?limit=101', {}, 400, 'ERR_NGROK_244'],
    ['GET', '/credentials?limit=x', {}, 400, 'ERR_NGROK_244'],
    ...['', 'x', 'ak_000000000000000000000000000', UNKNOWN_ID.slice(0, -1)].map(
      (id): [string, string, object, number, string] => [
        'GET',
        `/credentials?before_id=${id}`,
        {},
        400,
        'ERR_NGROK_230',
      ],
    ),
    ['GET', `/credentials/${UNKNOWN_ID}?limit=1`, {}, 400, 'ERR_NGROK_231'],
    ['POST', '/credentials?limit=1', { body: {} }, 400, 'ERR_NGROK_231'],
    ['DELETE', `/credentials/${UNKNOWN_ID}`, { body: {} }, 400, 'ERR_NGROK_211'],
    ['POST', '/credentials', {}, 415, 'ERR_NGROK_216'],
    [
      'POST',
      '/credentials',
      { body: {}, headers: { 'content-type': 'text/plain' } },
      415,
      'ERR_NGROK_210',
    ],
    ['POST', '/credentials', { body: '{"acl":', headers: json }, 400, 'ERR_NGROK_213'],
    ['POST', '/credentials', { body: '[]', headers: json }, 400, 'ERR_NGROK_215'],
    ['POST', '/credentials', { body: { color: 'red' } }, 400, 'ERR_NGROK_214'],
    ['POST', '/credentials', { body: { acl: 'bind:*' } }, 400, 'ERR_NGROK_215'],
    ['POST', '/credentials', { body: { acl: ['nonsense'] } }, 400, 'ERR_NGROK_600'],
    [
      'POST',
      '/credentials',
      { body: { metadata: 'x'.repeat(70_000) } },
      413,
      'ERR_GATEWAY_BODY_TOO_LARGE',
    ],
    ['POST', '/credentials', { body: { owner_id: 'bot_x' } }, 400, 'ERR_NGROK_634'],
    ['POST', '/bot_users', { body: {} }, 400, 'ERR_NGROK_4109'],
    ['POST', '/bot_users', { body: { name: 7 } }, 400, 'ERR_NGROK_215'],
    ['POST', '/reserved_domains', { body: {} }, 400, 'ERR_NGROK_407'],
    [
      'POST',
      '/reserved_domains',
      { body: { domain: 'a.test', name: 'b.test' } },
      400,
      'ERR_NGROK_449',
    ],
    ['POST', '/reserved_domains', { body: { domain: 'a.*.test' } }, 400, 'ERR_NGROK_402'],
    ...[{ authority: 'letsencrypt' }, { authority: 'other' }, { private_key_type: 'dsa' }].map(
      (policy): [string, string, object, number, string] => [
        'POST',
        '/reserved_domains',
        { body: { domain: 'a.test', certificate_management_policy: policy } },
        400,
        'ERR_NGROK_215',
      ],
    ),
    ['POST', '/endpoints', { body: {} }, 400, 'ERR_NGROK_215'],
    ['POST', '/ip_policy_rules', { body: { cidr: '10.0.0.0/8' } }, 400, 'ERR_NGROK_215'],
  ])('%s %s with %j: %i %s', async (method, path, options, status, code) => {
    const { call } = await startManagementApi()
    const answer = await call(method, path, options)
    expect([answer.status, answer.body.error_code]).toEqual([status, code])
    expect(answer.body.status_code).toBe(status)
    expect(answer.body.msg).not.toBe('')
    expect(answer.body.details).toMatchObject(OPERATION)
    expect('path' in answer.body.details).toBe(path === '/nothing')
  })

  it('detaches what a domain has for its certificate, as often as it is asked to', async () => {
    const { call } = await startManagementApi()
    const { body: domain } = await call('POST', '/reserved_domains', {
      body: { domain: 'a.test', certificate_management_policy: { private_key_type: 'rsa' } },
    })
    expect(domain.certificate_management_policy.private_key_type).toBe('rsa')
    const path = `/reserved_domains/${domain.id}`
    for (const part of ['certificate_management_policy', 'certificate']) {
      expect((await call('DELETE', `${path}/${part}`)).status).toBe(204)
      expect((await call('DELETE', `${path}/${part}`)).status).toBe(204)
      const unknown = `/reserved_domains/rd_${'0'.repeat(27)}/${part}`
      expect((await call('DELETE', unknown)).status).toBe(404)
    }
    expect((await call('GET', path)).body).toMatchObject({
      certificate: null,
      certificate_management_policy: { authority: 'gateway', private_key_type: 'ecdsa' },
    })
  })

  it('names the path that nothing serves, and no more than that a resource is missing', async () => {
    const { call } = await startManagementApi()
    expect((await call('GET', '/nothing/here')).body).toEqual({
      error_code: 'ERR_GATEWAY_NOT_FOUND',
      status_code: 404,
      msg: 'Not Found',
      details: { ...OPERATION, path: '/nothing/here' },
    })
    expect((await call('GET', `/credentials/${UNKNOWN_ID}`)).body).toEqual({
      error_code: 'ERR_GATEWAY_NOT_FOUND',
      status_code: 404,
      msg: 'Resource not found',
      details: OPERATION,
    })
  })
})

describe('lists', () => {
  it('come in pages, newest first', async () => {
    const { call, issuer, baseUrl } = await startManagementApi()
    const ids: string[] = []
    for (let n = 0; n < 5; n += 1) ids.push((await issuer.createCredential({})).credential.id)
    const pages: string[][] = []
    for (let path: string | null = '/credentials?limit=2'; path; ) {
      const { body } = await call('GET', path)
      expect(body.uri).toBe(`${baseUrl}/credentials`)
      pages.push(body.credentials.map(({ id }: { id: string }) => id))
      path = body.next_page_uri?.slice(baseUrl.length)
    }
    expect(pages.map(({ length }) => length)).toEqual([2, 2, 1])
    expect(pages.flat()).toEqual(ids.toReversed())
  })

  it('hold at most 100', async () => {
    const { call, issuer } = await startManagementApi()
    for (let n = 0; n < 101; n += 1) await issuer.createCredential({})
    const { body } = await call('GET', '/credentials')
    expect(body.credentials).toHaveLength(100)
    expect(body.next_page_uri).toContain(`before_id=${body.credentials[99].id}&limit=100`)
  })
})
