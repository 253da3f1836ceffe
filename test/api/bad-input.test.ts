// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { startApi } from './started-api.ts'

const DOMAIN = 'device1.site.test'
const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: DOMAIN }
const { protocol, forwards_to, domain } = SPEC
const with_ = (changes: Record<string, unknown>) => ({ ...SPEC, ...changes })
const RULE = { actions: [{ type: 'deny' }] }
const LIMIT = {
  name: 'limit',
  algorithm: 'sliding_window',
  capacity: 10,
  rate: '60s',
  bucket_key: ['conn.client_ip'],
}
const limit = (changes: Record<string, unknown>) => ({
  on_http_request: [{ actions: [{ type: 'rate-limit', config: { ...LIMIT, ...changes } }] }],
})

/** Each line has the line before nine times. */
const ALIAS_BOMB = Array.from({ length: 9 }, (_, line) => {
  const item = line === 0 ? 'lol' : `*a${line - 1}`
  return `a${line}: &a${line} [${Array(9).fill(item).join(', ')}]`
}).join('\n')

describe('POST /tunnels with a bad body', () => {
  it.each<[string, unknown, string]>([
    ['no protocol', { forwards_to, domain }, '/protocol is required'],
    ['no forwards_to', { protocol, domain }, '/forwards_to is required'],
    ['a domain of null', with_({ domain: null }), '/domain must be a string'],
    ['protocol of a wrong type', with_({ protocol: 1 }), '/protocol must be a string'],
    ['forwards_to of a wrong type', with_({ forwards_to: 8001 }), '/forwards_to must be a string'],
    ['domain of a wrong type', with_({ domain: ['a.test'] }), '/domain must be a string'],
    ['protocol null', with_({ protocol: null }), '/protocol must be a string'],
    ['policy as a text of no object', with_({ policy: '[]' }), '/policy must contain an object'],
    ['policy as a broken text', with_({ policy: '{' }), '/policy must be JSON or YAML'],
    [
      'policy as broken YAML',
      with_({ policy: 'a:\n  - [' }),
      '/policy must be JSON or YAML: Flow seq',
    ],
    ['policy as a YAML list', with_({ policy: '- a' }), '/policy must contain an object'],
    [
      'a policy with too many levels',
      with_({ policy: Array.from({ length: 10_000 }, () => '{a: ').join('') }),
      '/policy cannot be read. The policy is nested more than 100 levels deep (line 1, column',
    ],
    ['a policy with an alias bomb', with_({ policy: ALIAS_BOMB }), '/policy cannot be read.'],
    ['policy as an array', with_({ policy: [] }), '/policy must be a JSON object'],
    ['policy as a number', with_({ policy: 7 }), '/policy must be a JSON object'],
    ['a domain without a port', with_({ protocol: 'tcp' }), '/domain must be host:port'],
    ['protocol udp', with_({ protocol: 'udp' }), '/protocol must be http, tcp or tls'],
    ['protocol ftp', with_({ protocol: 'ftp' }), '/protocol must be http'],
    ['an empty protocol', with_({ protocol: '' }), '/protocol must be http'],
    ['port 0', with_({ forwards_to: 'localhost:0' }), '/forwards_to must be host:port'],
    ['port 65536', with_({ forwards_to: ':65536' }), '/forwards_to must be host:port'],
    ['a negative port', with_({ forwards_to: ':-1' }), '/forwards_to must be host:port'],
    ['no port', with_({ forwards_to: 'localhost' }), '/forwards_to must be host:port'],
    ['an empty forwards_to', with_({ forwards_to: '' }), '/forwards_to must be host:port'],
    [
      'forwards_to as a URL',
      with_({ forwards_to: 'http://localhost:80' }),
      '/forwards_to must be host:port',
    ],
    [
      'forwards_to with a user',
      with_({ forwards_to: 'a@localhost:80' }),
      '/forwards_to must be host:port',
    ],
    [
      'an address in disguise',
      with_({ forwards_to: '0x7f000001:80' }),
      '/forwards_to must be host:port',
    ],
    ['a domain of one label', with_({ domain: 'device1' }), '/domain must be a domain name'],
    ['a domain as a URL', with_({ domain: 'https://a.test' }), '/domain must be a domain name'],
    ['a domain with a port', with_({ domain: 'a.test:443' }), '/domain must be a domain name'],
    ['a domain with a path', with_({ domain: 'a.test/x' }), '/domain must be a domain name'],
    ['a domain with a line break', with_({ domain: 'a.test\n' }), '/domain must be a domain name'],
    ['an underscore in the domain', with_({ domain: 'a_b.test' }), '/domain must be a domain name'],
    ['an address as the domain', with_({ domain: '10.0.0.1' }), '/domain must be a domain name'],
    ['two stars', with_({ domain: '*.*.test' }), '/domain must be a domain name'],
    ['a label of 64', with_({ domain: `${'a'.repeat(64)}.test` }), '/domain must be a domain name'],
    [
      'a domain of 254',
      with_({ domain: `${'a.'.repeat(125)}test` }),
      '/domain must be a domain name',
    ],
    ['an unknown key', with_({ colour: 'red' }), '/colour is unknown'],
    ['no pooling', with_({ pooling_enabled: 'yes' }), '/pooling_enabled must be a boolean'],
    ['no time', with_({ upstream: { timeout: 0 } }), '/upstream/timeout must be a whole number'],
    ['too long a time', with_({ upstream: { timeout: 3_601 } }), '/upstream/timeout must be'],
    [
      'a time as text',
      with_({ upstream: { timeout: '60s' } }),
      '/upstream/timeout must be a number',
    ],
    [
      'an unknown check',
      with_({ upstream: { health: 'http' } }),
      '/upstream/health must be off, tcp',
    ],
    [
      'a path with a space',
      with_({ upstream: { health: '/a b' } }),
      '/upstream/health must be off',
    ],
    ['a line break in a path', with_({ upstream: { health: '/a\n' } }), '/upstream/health must be'],
    [
      'a version of PROXY that there is not',
      with_({ upstream: { proxy_protocol: 3 } }),
      '/upstream/proxy_protocol must be the number 1 or 2',
    ],
    [
      'one that is no number',
      with_({ upstream: { proxy_protocol: '1' } }),
      '/upstream/proxy_protocol must be the number 1 or 2',
    ],
    ['what is not built', with_({ upstream: { http3: true } }), '/upstream/http3 is unknown'],
    ['a state as upstream', with_({ upstream: 'up' }), '/upstream must be'],
    ['a key in another case', { ...SPEC, Domain: domain }, '/Domain is unknown'],
    [
      'a key that objects inherit',
      `{"__proto__":{},${JSON.stringify(SPEC).slice(1)}`,
      '/__proto__ is unknown',
    ],
    ['an array', [SPEC], ' must be an object'],
    ['a string', '"text"', ' must be an object'],
    ['null', 'null', ' must be an object'],
  ])('%s: 400 invalid-request', async (_title, body, error) => {
    const { call } = await startApi()
    const { status, json, headers } = await call('POST', '/tunnels', body)
    expect([status, json.code]).toEqual([400, 'invalid-request'])
    expect(headers['content-type']).toBe('application/problem+json')
    const [first] = json.errors
    expect(`${first.pointer} ${first.detail}`).toMatch(error)
    expect(json.errors).toHaveLength(1)
  })

  it('names everything that is wrong in one answer', async () => {
    const { call } = await startApi()
    const body = { protocol: 'ftp', forwards_to: 'x', domain: 'x', extra: 1 }
    const { json } = await call('POST', '/tunnels', body)
    expect(json.errors.map(({ pointer }: { pointer: string }) => pointer)).toEqual([
      '/protocol',
      '/forwards_to',
      '/domain',
      '/extra',
    ])
  })

  it.each<[string, number, string, string | Buffer, Record<string, string | undefined>]>([
    ['not JSON', 400, 'invalid-json', '{"protocol": http}', {}],
    ['cut off', 400, 'invalid-json', '{"protocol": "http"', {}],
    ['empty', 400, 'invalid-json', '', { 'content-length': '0' }],
    ['not UTF-8', 400, 'invalid-json', Buffer.from([0x7b, 0xff, 0x7d]), {}],
    ['too deep', 400, 'invalid-json', `{"policy":${'['.repeat(99)}${']'.repeat(99)}}`, {}],
    ['too large', 413, 'body-too-large', JSON.stringify(with_({ x: 'x'.repeat(70_000) })), {}],
    ['of no type', 415, 'not-json', JSON.stringify(SPEC), { 'content-type': undefined }],
    ['text', 415, 'not-json', JSON.stringify(SPEC), { 'content-type': 'text/plain' }],
    ['compressed', 415, 'not-json', JSON.stringify(SPEC), { 'content-encoding': 'gzip' }],
  ])('that is %s: %i %s', async (_title, status, code, body, headers) => {
    const { call } = await startApi()
    const answer = await call('POST', '/tunnels', body, {
      'content-type': 'application/json',
      ...headers,
    })
    expect([answer.status, answer.json.code]).toEqual([status, code])
  })
})

describe('POST /tunnels with what this device or its service refuses', () => {
  it.each<[string, Record<string, unknown>]>([
    ['a metadata service', { forwards_to: '169.254.169.254:80' }],
    ['an address of the network', { forwards_to: '192.168.1.1:80' }],
    ['a name that nobody listed', { forwards_to: 'router.lan:80' }],
  ])('%s: 422 forwards-to-not-allowed', async (_title, changes) => {
    const { call } = await startApi()
    const { status, json } = await call('POST', '/tunnels', with_(changes))
    expect([status, json.code]).toEqual([422, 'forwards-to-not-allowed'])
    expect(json.errors[0].pointer).toBe('/forwards_to')
  })

  it.each<[string, unknown]>([
    ['an unknown phase', { on_request: [RULE] }],
    ['a phase that is no array', { on_http_request: {} }],
    ['an unknown action', { on_http_request: [{ actions: [{ type: 'fly' }] }] }],
    ['an expression that is none', { on_http_request: [{ ...RULE, expressions: ['1 +'] }] }],
    ['a capacity of 0', limit({ capacity: 0 })],
    ['a capacity beyond the limit', limit({ capacity: 2_000_000_001 })],
    ['a rate of 65s', limit({ rate: '65s' })],
    ['a rate of 50s', limit({ rate: '50s' })],
    ['a rate beyond a day', limit({ rate: '25h' })],
    ['another algorithm', limit({ algorithm: 'leaky_bucket' })],
    ['eleven bucket keys', limit({ bucket_key: Array(11).fill('req.host') })],
    ['a name of 1024', limit({ name: 'n'.repeat(1_024) })],
  ])('a policy with %s: 422 policy-invalid', async (_title, policy) => {
    const { call } = await startApi()
    const { status, json } = await call('POST', '/tunnels', with_({ policy }))
    expect([status, json.code]).toEqual([422, 'policy-invalid'])
    expect(json.errors[0].pointer).toMatch(/^\/policy\//)
  })

  it('tells all that is wrong with a policy at once, in its order', async () => {
    const { call } = await startApi()
    const headers = { 'x-a': '${nope}', 'x-b': ['7'] }
    const policy = {
      on_http_request: [
        {
          expressions: ['req.nope', 'true'],
          actions: [
            { type: 'rate-limit', config: { ...LIMIT, capacity: 0, bucket_key: ['nope', '1 +'] } },
            { type: 'add-headers', config: { headers, hedaers: {} } },
          ],
        },
      ],
      on_http_response: {},
    }
    const { json } = await call('POST', '/tunnels', with_({ policy }))
    const rule = '/policy/on_http_request/0'
    expect(json.errors.map(({ pointer }: { pointer: string }) => pointer)).toEqual([
      `${rule}/expressions/0`,
      `${rule}/actions/0/config/capacity`,
      `${rule}/actions/0/config/bucket_key/0`,
      `${rule}/actions/0/config/bucket_key/1`,
      `${rule}/actions/1/config/headers/x-a`,
      `${rule}/actions/1/config/headers/x-b`,
      `${rule}/actions/1/config/hedaers`,
      '/policy/on_http_response',
    ])
    for (const { detail, code } of json.errors) {
      expect(detail).toMatch(/[.?]$/)
      expect(code).toMatch(/^ERR_NGROK_\d+$/)
    }
  })

  it.each([
    [334, 409, 'domain-online-elsewhere'],
    [308, 403, 'forbidden'],
    [320, 422, 'service-refused'],
    [99_999, 422, 'service-refused'],
  ])('ERR_NGROK_%i of the service: %i %s', async (serviceCode, status, code) => {
    const { call, service } = await startApi()
    service.refuse(DOMAIN, serviceCode)
    const answer = await call('POST', '/tunnels', SPEC)
    expect([answer.status, answer.json.code]).toEqual([status, code])
    expect(answer.json.service_code).toBe(`ERR_NGROK_${serviceCode}`)
  })

  it('a domain that has a tunnel: 409 domain-taken', async () => {
    const { call } = await startApi()
    await call('POST', '/tunnels', SPEC)
    const { status, json } = await call('POST', '/tunnels', with_({ domain: DOMAIN.toUpperCase() }))
    expect([status, json.code]).toEqual([409, 'domain-taken'])
  })

  it('one tunnel more than the device may hold: 409 too-many-tunnels', async () => {
    const { call } = await startApi({ agent: { maxTunnels: 1 } })
    await call('POST', '/tunnels', SPEC)
    const { status, json } = await call('POST', '/tunnels', with_({ domain: 'b.site.test' }))
    expect([status, json.code]).toEqual([409, 'too-many-tunnels'])
  })
})

describe('other requests that cannot be served', () => {
  it.each([
    ['GET', '/tunnels?view=all', 400, 'invalid-request', undefined],
    ['GET', '/tunnels?page=2', 400, 'invalid-request', undefined],
    ['GET', '/tunnels?view=status&view=status', 400, 'invalid-request', undefined],
    ['DELETE', '/tunnels/a.test?force=1', 400, 'invalid-request', undefined],
    ['GET', '/tunnels/%zz', 400, 'malformed-request', undefined],
    ['GET', '/tunnels/nothing', 404, 'tunnel-not-found', undefined],
    ['DELETE', '/tunnels/nothing', 404, 'tunnel-not-found', undefined],
    ['GET', '/nothing', 404, 'not-found', undefined],
    ['GET', '/tunnels/a/b', 404, 'not-found', undefined],
    ['PATCH', '/tunnels', 405, 'method-not-allowed', 'GET, HEAD, POST, PUT, OPTIONS'],
    ['DELETE', '/tunnels/', 405, 'method-not-allowed', 'GET, HEAD, POST, PUT, OPTIONS'],
    ['POST', '/tunnels/a.test', 405, 'method-not-allowed', 'GET, HEAD, PUT, DELETE, OPTIONS'],
    ['POST', '/status', 405, 'method-not-allowed', 'GET, HEAD, OPTIONS'],
    ['DELETE', '/healthz', 405, 'method-not-allowed', 'GET, HEAD, OPTIONS'],
  ])('%s %s: %i %s', async (method, path, status, code, allow) => {
    const { call } = await startApi()
    const answer = await call(method, path)
    expect([answer.status, answer.json.code, answer.headers.allow]).toEqual([status, code, allow])
  })

  it('a PUT without a body, with a list, or for a name that is none', async () => {
    const { call } = await startApi()
    const cases: [string, unknown, string][] = [
      [`/tunnels/${DOMAIN}`, '', 'invalid-json'],
      [`/tunnels/${DOMAIN}`, [SPEC], 'invalid-request'],
      ['/tunnels/no_name', { protocol, forwards_to }, 'invalid-request'],
    ]
    for (const [path, body, code] of cases) {
      expect((await call('PUT', path, body)).json).toMatchObject({ status: 400, code })
    }
  })
})
