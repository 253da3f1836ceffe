import { X509Certificate } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { ConnectionCertificate } from '../../../src/gateway/ingress/common/connection-facts.ts'
import { EvaluationError } from '../../../src/policy/expression/expression-problem.ts'
import { createCertificate } from '../../helpers/policy-certificate.ts'
import { compileExpression, type EvaluationParts, evaluate } from '../../helpers/policy-exchange.ts'

const REQUEST: EvaluationParts = {
  method: 'POST',
  url: 'https://device.example.com:8443/a%20b/c?q=1&r=x%20y&q=2',
  headers: [
    ...['User-Agent', 'curl/8.5.0', 'X-Tag', 'one', 'x-tag', 'two'],
    ...['Cookie', 'a=1; b=2; a=3', 'Content-Type', 'Application/JSON; Charset="utf-8"'],
    ...['Content-Length', '12', 'Content-Encoding', 'gzip, br', 'Location', '/there'],
  ],
}

const RESPONSE: EvaluationParts = {
  phase: 'on_http_response',
  status: 404,
  responseHeaders: [
    ...['Content-Type', 'text/html', 'Content-Length', '7', 'Location', '/x'],
    ...['Set-Cookie', 'sid=abc; Path=/; HttpOnly; Secure; SameSite=Lax; Max-Age=60; Priority=High'],
    ...['Set-Cookie', 'sid=def; Path=/deeper; Domain=example.com'],
  ],
}

describe('variables of a connection', () => {
  it.each([
    ['conn.client_ip', '203.0.113.9'],
    ['conn.client_port', 51_234],
    ['conn.server_ip', '192.0.2.1'],
    ['conn.server_port', 8_443],
    ['conn.server_region', ''],
    ['conn.ts.start', '2030-01-01T00:00:00Z'],
    ['conn.bytes_in', 120],
    ['conn.bytes_out', 340],
    ['conn.client_ip.categories', []],
    ['conn.client_ip.is_on_blocklist', false],
    ['conn.client_ip.is_tor_node', false],
    ['conn.server_ip.categories', []],
    ['conn.k8s.pod.id', ''],
    ['conn.k8s.pod.metadata.name', ''],
    ['conn.k8s.pod.metadata.namespace', ''],
    ['conn.k8s.pod.metadata.annotations', {}],
    ["conn.k8s.pod.metadata['error_code']", ''],
    ['size(conn.k8s.pod.metadata)', 5],
    ["!('com.example.crawler' in conn.client_ip.categories)", true],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, REQUEST)).toEqual(value)
  })

  it('can be read before there is a request', () => {
    expect(evaluate('conn.client_ip', { phase: 'on_tcp_connect' })).toBe('203.0.113.9')
  })
})

describe('variables of a TLS session', async () => {
  const pem = await createCertificate({
    name: 'C=DE, ST=Hessen, L=Kassel, O="Org, Inc", OU=One, OU=Two, CN=device 7',
    dns: ['a.example', 'b.example'],
    ip: ['10.0.0.1'],
    email: ['me@a.example'],
    url: ['spiffe://a/b, c'],
  })
  const certificate = new X509Certificate(pem)
  const tls = {
    version: 'TLSv1.3',
    cipherSuite: 'TLS_AES_128_GCM_SHA256',
    serverName: 'device.example.com',
    alpn: 'http/1.1',
    serverCertificate: new ConnectionCertificate(certificate),
    clientCertificate: new ConnectionCertificate(certificate),
  }

  it.each([
    ['conn.tls.version', '1.3'],
    ['conn.tls.cipher_suite', 'TLS_AES_128_GCM_SHA256'],
    ['conn.tls.sni', 'device.example.com'],
    ['conn.tls.negotiated_alpn', 'http/1.1'],
    ['conn.tls.session_resumed', false],
    ['conn.tls.client.pem', pem],
    ['conn.tls.client.subject', 'CN=device 7,OU=Two,OU=One,O=Org\\, Inc,L=Kassel,ST=Hessen,C=DE'],
    ['conn.tls.client.subject.common_name', 'device 7'],
    ['conn.tls.client.subject.country', ['DE']],
    ['conn.tls.client.subject.province', ['Hessen']],
    ['conn.tls.client.subject.locality', ['Kassel']],
    ['conn.tls.client.subject.organization', ['Org, Inc']],
    ['conn.tls.client.subject.organizational_unit', ['One', 'Two']],
    ['conn.tls.client.subject.postal_code', []],
    ['conn.tls.server.issuer.common_name', 'device 7'],
    ['conn.tls.client.san.dns_names', ['a.example', 'b.example']],
    ['conn.tls.client.san.ip_addresses', ['10.0.0.1']],
    ['conn.tls.client.san.email_addresses', ['me@a.example']],
    ['conn.tls.client.san.uris', ['spiffe://a/b, c']],
    ['conn.tls.client.validity.not_before < timestamp("2031-01-01T00:00:00Z")', true],
    ['conn.tls.client.validity.not_after > conn.tls.client.validity.not_before', true],
    ['conn.tls.client.signature_algorithm', 'ECDSA-SHA256'],
    ['conn.tls.server.signature_algorithm', 'ECDSA-SHA256'],
    ['conn.tls.client.extensions.map(e, e.id)', ['2.5.29.17']],
    ['conn.tls.client.extensions[0].critical', false],
    ['conn.tls.client.extensions[0].value.size() > 60', true],
    ["base64.encode(conn.tls.client.extensions[0].value).startsWith('M')", true],
    ["conn.tls.server.extensions.exists(e, e.id == '2.5.29.37' && !e.critical)", false],
    ['conn.tls.client.serial_number', certificate.serialNumber.toLowerCase()],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, { connection: { tls } })).toEqual(value)
  })

  it('have no value without TLS, which an expression can ask', () => {
    expect(() => evaluate('conn.tls.version == "1.3"')).toThrow('there is no conn.tls.version')
    expect(evaluate('has(conn.tls.version)')).toBe(false)
    expect(evaluate('has(conn.tls.version)', { connection: { tls } })).toBe(true)
  })

  it('have no client certificate when the client sent none', () => {
    const connection = { tls: { ...tls, clientCertificate: undefined } }
    expect(() => evaluate('conn.tls.client.subject', { connection })).toThrow(
      'there is no conn.tls.client.subject',
    )
    expect(evaluate('has(conn.tls.client.subject)', { connection })).toBe(false)
  })
})

describe('variables of an endpoint', () => {
  it.each([
    ['endpoint.id', 'ep_1'],
    ['endpoint.url', 'https://device.example.com:8443'],
    ['endpoint.host', 'device.example.com'],
    ['endpoint.port', 8_443],
    ['endpoint.addr', 'device.example.com:8443'],
    ['endpoint.protocol', 'https'],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, REQUEST)).toBe(value)
  })
})

describe('variables of a request', () => {
  it.each([
    ['req.method', 'POST'],
    ['req.host', 'device.example.com'],
    ['req.version', 'HTTP/1.1'],
    ['req.user_agent', 'curl/8.5.0'],
    ['req.location', '/there'],
    ['req.content_length', 12],
    ['req.content_type', 'application/json'],
    ['req.content_type.raw', 'Application/JSON; Charset="utf-8"'],
    ["req.content_type.parameters['charset']", 'utf-8'],
    ['req.content_encoding', ['gzip', 'br']],
    ['req.ts.header_received', '2030-01-01T00:00:01Z'],
    ["req.headers['x-tag']", ['one', 'two']],
    ['req.headers.host[0]', 'device.example.com'],
    ['size(req.headers)', 8],
    ['req.trailers', {}],
    [
      "req.cookies['a']",
      [
        { name: 'a', value: '1' },
        { name: 'a', value: '3' },
      ],
    ],
    ['req.url', 'https://device.example.com:8443/a%20b/c?q=1&r=x%20y&q=2'],
    ['req.url.raw', 'https://device.example.com:8443/a%20b/c?q=1&r=x%20y&q=2'],
    ['req.url.authority', 'device.example.com:8443'],
    ['req.url.host', 'device.example.com'],
    ['req.url.port', 8_443],
    ['req.url.path', '/a b/c'],
    ['req.url.raw_path', '/a%20b/c'],
    ['req.url.query', 'q=1&r=x%20y&q=2'],
    ["req.url.query_params['q']", ['1', '2']],
    ["req.url.query_params['r'][0]", 'x y'],
    ['req.url.scheme', 'https'],
    ['req.url.uri', '/a%20b/c?q=1&r=x%20y&q=2'],
    ['req.url.user_password', ''],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, REQUEST)).toEqual(value)
  })

  it('tell when the body had come, as soon as it has', () => {
    const bodyReceivedAt = Date.UTC(2030, 0, 1, 0, 0, 2)
    const source = 'req.ts.body_received'
    expect(evaluate(source, { bodyReceivedAt })).toBe('2030-01-01T00:00:02Z')
    expect(evaluate(`${source} - req.ts.header_received`, { bodyReceivedAt })).toBe('1s')
    expect(evaluate(`has(${source})`)).toBe(false)
    expect(() => evaluate(source)).toThrow(EvaluationError)
  })

  it.each(['req.content_length', 'req.url.port'])('%s may be absent', (source) => {
    expect(evaluate(`has(${source})`)).toBe(false)
    expect(() => evaluate(source)).toThrow(EvaluationError)
    expect(evaluate(`has(${source})`, REQUEST)).toBe(true)
  })

  it('is not available in on_tcp_connect', () => {
    expect(() => compileExpression('req.method == "GET"', 'on_tcp_connect')).toThrow(
      'req.method is not available in on_tcp_connect',
    )
  })
})

describe('names that have no value', () => {
  it.each([
    ["req.headers['x-none']", []],
    ["req.headers['x-none'].exists(v, v == 'a')", false],
    ["req.cookies['none']", []],
    ["req.url.query_params['none']", []],
    ["getReqHeader('x-none')", []],
    ["getQueryParam('none')", []],
    ["'x-none' in req.headers", false],
    ["has(req.headers['x-none'])", false],
    ["'x-none' in req.cookies || 'none' in req.url.query_params", false],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, REQUEST)).toEqual(value)
  })
})

describe('names of before 2024-10', () => {
  it.each([
    ['conn.ClientIP', 'conn.client_ip'],
    ['conn.ServerIP', 'conn.server_ip'],
    ['req.Method', 'req.method'],
    ['req.Path', 'req.url.path'],
    ['req.URL', 'req.url'],
    ['req.Host', 'req.host'],
    ["req.Headers['X-Tag'][0]", "req.headers['x-tag'][0]"],
    ["'User-Agent' in req.Headers", "'user-agent' in req.headers"],
    ["has(req.Headers['X-Tag'])", "has(req.headers['x-tag'])"],
    ["req.Params['q']", "req.url.query_params['q']"],
    ["req.Method.lowerAscii() + ' ' + req.Path", "req.method.lowerAscii() + ' ' + req.url.path"],
  ])('%s is %s', (source, today) => {
    expect(evaluate(source, REQUEST)).toEqual(evaluate(today, REQUEST))
  })

  it.each([
    ["res.StatusCode == '404'", true],
    ["'404' == res.StatusCode", true],
    ["res.StatusCode != '404'", false],
    ["res.StatusCode in ['200', '404']", true],
    ["res.StatusCode.startsWith('4')", true],
    ["res.StatusCode.matches('^5')", false],
    ['res.StatusCode == 404', true],
    ['res.StatusCode >= 500', false],
    ['res.StatusCode in [200, 404]', true],
  ])('the status is a text or a number, as it is asked: %s', (source, value) => {
    expect(evaluate(source, RESPONSE)).toBe(value)
  })

  it("are no leave to compare today's status with a text", () => {
    expect(() => evaluate("res.status_code == '404'", RESPONSE)).toThrow()
  })

  it.each(['req.Nonsense', 'conn.Method', 'req.Method.path'])(
    '%s is unknown all the same',
    (source) => {
      expect(() => evaluate(source, REQUEST)).toThrow()
    },
  )
})

describe('names of headers', () => {
  it.each([
    "'X-TAG' in req.headers",
    "'x-tag' in req.headers",
    "has(req.headers['X-Tag'])",
    "hasReqHeader('x-TAG')",
    "req.headers['X-Tag'][1] == 'two'",
    "getReqHeader('X-tag')[0] == 'one'",
    "['X-Tag', 'x-tag'].all(name, req.headers[name].size() == 2)",
    "req.headers.exists(name, name == 'x-tag')",
  ])('match in any case: %s', (source) => {
    expect(evaluate(source, REQUEST)).toBe(true)
  })
})

describe('variables of a response', () => {
  it.each([
    ['res.status_code', 404],
    ['res.status_code >= 400 && res.status_code < 500', true],
    ['res.content_type', 'text/html'],
    ['res.content_length', 7],
    ['res.location', '/x'],
    ["res.headers['content-type'][0]", 'text/html'],
    ["res.headers['x-none']", []],
    ["getResHeader('Content-Type')", ['text/html']],
    ["hasResHeader('content-TYPE')", true],
    ["hasResCookie('sid')", true],
    ["getResCookie('sid').value", 'def'],
    ["res.cookies['sid'][0].http_only && res.cookies['sid'][0].secure", true],
    ["res.cookies['sid'][0].same_site", 'Lax'],
    ["res.cookies['sid'][0].max_age == duration('60s')", true],
    ["res.cookies['sid'][0].unparsed_attributes", ['Priority=High']],
    ["res.cookies['sid'][1].domain", 'example.com'],
    ['req.method', 'GET'],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, RESPONSE)).toEqual(value)
  })

  it.each(['res.status_code == 200', "getResHeader('x') == []"])(
    'is not available in on_http_request: %s',
    (source) => {
      expect(() => compileExpression(source)).toThrow('in on_http_request')
    },
  )
})

describe('time.now', () => {
  it('is a text in UTC that timestamp() reads', () => {
    expect(evaluate('time.now')).toBe('2030-01-01T00:00:00Z')
    expect(evaluate('timestamp(time.now).getFullYear()')).toBe(2030)
  })
})

describe('vars and results of actions', () => {
  const results = {
    rate_limit: { limited: true, bucket_key: 'k', error: { code: '', message: '' } },
  }

  it.each([
    ['vars.v', 'gold'],
    ["vars['v'] == 'gold'", true],
    ["'v' in vars", true],
    ['has(vars.v)', true],
    ['has(vars.other)', false],
    ['actions.ngrok.rate_limit.limited', true],
    ['actions.svc.rate_limit.limited', true],
    ['actions.svc.rate_limit.error.code', ''],
    ['has(actions.ngrok.rate_limit.limited)', true],
    ['has(actions.ngrok.log.metadata)', false],
    ['actions.ngrok.basic_auth.credentials.authorized || actions.svc.rate_limit.limited', true],
  ])('%s is %j', (source, value) => {
    expect(evaluate(source, { vars: { v: 'gold' }, results })).toEqual(value)
  })

  it('fail when an action has not run and nothing else decides', () => {
    expect(() => evaluate('actions.ngrok.basic_auth.credentials.authorized')).toThrow()
  })
})

describe('names that cannot be known here', () => {
  it.each([
    ['conn.tls.ja4_fingerprint', 'do not compute it'],
    ['req.nope', 'unknown name req.nope'],
    ['nope', 'unknown name nope'],
    ['nope.at.all', 'unknown name nope.at.all'],
    ['actions.ngrok.saml.identity.email', 'unknown name'],
  ])('%s is refused, and only the hosted service could judge', (source, sentence) => {
    expect(() => compileExpression(source)).toThrow(
      expect.objectContaining({ message: expect.stringContaining(sentence), isForeign: true }),
    )
  })

  it.each([
    ['vars.unset', 'vars.unset is not set by an earlier set-vars'],
    ['actions.ngrok.rate_limit.nope', 'rate-limit has no result nope'],
  ])('%s is refused by everybody', (source, sentence) => {
    expect(() => compileExpression(source)).toThrow(
      expect.objectContaining({ message: expect.stringContaining(sentence), isForeign: false }),
    )
  })
})
