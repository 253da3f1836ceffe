import { describe, expect, it } from 'vitest'
import {
  isSecretName,
  maskedAddresses,
  maskedBody,
  maskedValue,
  maskedWebhookUrl,
} from '../../src/base/masked-text.ts'

const HEX_KEY = '9f86d081884c7d659a2feaa0c55ad015'
const BASE64_KEY = 'q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA='
const JWT = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r-wW'
const OPEN_IDS = [
  '550e8400-e29b-41d4-a716-446655440000',
  'ep_2NcR7h3FhQ1q8aDk7mYw5mZt9Xs',
  '01ARZ3NDEKTSV4RRFFQ69G5FAV',
  '507f1f77bcf86cd799439011',
  '2026-11-26T13:53:03.123Z',
  'a-long-name-of-a-page-that-somebody-wrote-in-2026',
  'getUserProfileByAccountIdentifier',
  '12345678901234567890123456789012345678',
]

describe('isSecretName', () => {
  it.each(
    [
      'password PASSWORD userPassword pAssWord db_password passwd pwd passphrase pass user[pass] smtp-pass',
      'token accessToken refresh_token XSRF-TOKEN csrfmiddlewaretoken authtoken bearer jwt id_token',
      'X-Auth-Key X-Functions-Key Ocp-Apim-Subscription-Key api_key apiKey APIKey apikey x-api-key key',
      'private-key secretKey AccountKey SharedAccessKey aws_access_key accesskey',
      'Authorization Proxy-Authorization auth x-auth oauth_verifier oauth2',
      'code auth_code authorization_code verificationCode device_code code_verifier otp totp',
      'session session_id sid JSESSIONID PHPSESSID ASP.NET_SessionId connect.sid Cookie Set-Cookie cookie2',
      'credential credentials signature X-Hub-Signature-256 sig X-Amz-Signature client_secret secret',
      'SAMLResponse client_assertion',
    ].flatMap((names) => names.split(' ')),
  )('is one: %s', (name) => {
    expect(isSecretName(name)).toBe(true)
  })

  it.each(
    [
      'keyboard monkey author authority authored authenticated passenger passport compass bypass secretary',
      'status_code statusCode zipcode zip_code country_code error_code postalCode barcode encoder',
      'public_key primaryKey foreign_key cache-key Idempotency-Key key_id',
      'token_type token_endpoint expires_in password_changed_at tokenizer session_count',
      'design assigned sidebar outside state nonce user name id Host Accept Content-Type',
    ].flatMap((names) => names.split(' ')),
  )('is none: %s', (name) => {
    expect(isSecretName(name)).toBe(false)
  })
})

describe('maskedAddresses', () => {
  it.each([
    ['/a', '/a'],
    ['/a?b', '/a?b'],
    ['/a?token=', '/a?token=[secret]'],
    ['/a?api%5Fkey=1&x=2', '/a?api%5Fkey=[secret]&x=2'],
    ['/a?%zz=1', '/a?%zz=1'],
    ['/a?PASSWORD=1?token=2', '/a?PASSWORD=[secret]'],
    ['/a?a=?token=1', '/a?a=?token=[secret]'],
    ['/a?next=/b?x=1&token=2', '/a?next=/b?x=1&token=[secret]'],
    ['/a?next=%2Fb%3Fx%3D1%26token%3D2&y=1', '/a?next=[secret]&y=1'],
    ['/a?next=%2Fb%3Fx%3D1&y=1', '/a?next=%2Fb%3Fx%3D1&y=1'],
    ['/a?token=1;2;3&x=1', '/a?token=[secret]&x=1'],
    ['/a?x=1;token=2', '/a?x=1;token=[secret]'],
    ['/shop;jsessionid=12/cart?x=1', '/shop;jsessionid=[secret]/cart?x=1'],
    ['https://a.test/#access_token=1&state=2', 'https://a.test/#access_token=[secret]&state=2'],
    ['https://ann:pw@a.test/', 'https://[secret]@a.test/'],
    ['https://ann:p@w@a.test/', 'https://[secret]@a.test/'],
    ['/cb?code=abc&state=x', '/cb?code=[secret]&state=x'],
    ['/cb#code=abc', '/cb#code=[secret]'],
    ['/a?user%5Bpass%5D=x&status_code=200', '/a?user%5Bpass%5D=[secret]&status_code=200'],
    ['/a?next=%252Fb%253Fpass%253D1', '/a?next=[secret]'],
    [`/reset/${BASE64_KEY.replace('=', '')}/x`, '/reset/[secret]/x'],
    [`/a?x=${HEX_KEY}`, '/a?x=[secret]'],
    [`/a?x=${encodeURIComponent(`${BASE64_KEY.replace('q', '+/')}`)}`, '/a?x=[secret]'],
    [
      '/a?q=%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82%20%D0%BC',
      '/a?q=%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82%20%D0%BC',
    ],
    ...OPEN_IDS.map((id) => [`/items/${id}/parts?id=${id}`, `/items/${id}/parts?id=${id}`]),
  ])('%s', (text, masked) => {
    expect(maskedAddresses(text)).toBe(masked)
  })
})

describe('maskedValue', () => {
  it.each([
    ['Cookie', 'a=1', '[secret]'],
    ['X-Api-Key', '1', '[secret]'],
    ['X-Upstream', 'Bearer abc', '[secret]'],
    ['X-Upstream', 'basic YTpi', '[secret]'],
    ['Link', '</next?token=1>; rel="next"', '</next?token=[secret]>; rel="next"'],
    ['X-Auth-Key', 'hunter2', '[secret]'],
    ['X-Functions-Key', 'hunter2', '[secret]'],
    ['Ocp-Apim-Subscription-Key', 'hunter2', '[secret]'],
    ['X-Upstream', 'NTLM TlRMTVNTUAAB', '[secret]'],
    ['X-Config', 'user=ann; pass=hunter2', 'user=ann; pass=[secret]'],
    ['X-Config', '{"\\u0070assword":"hunter2"}', '{"\\u0070assword":"[secret]"}'],
    ['X-Any', HEX_KEY, '[secret]'],
    ['X-Any', JWT, '[secret]'],
    ['Location', 'https://a.test/cb?code=4/P7q7W91', 'https://a.test/cb?code=[secret]'],
    ['ETag', `W/"${HEX_KEY}"`, `W/"${HEX_KEY}"`],
    ['Traceparent', `00-${HEX_KEY}-b7ad6b7169203331-01`, `00-${HEX_KEY}-b7ad6b7169203331-01`],
    ['Content-Digest', `sha-256=:${BASE64_KEY}:`, `sha-256=:${BASE64_KEY}:`],
    ['Access-Control-Allow-Credentials', 'true', 'true'],
    ['Access-Control-Allow-Headers', 'X-Api-Key, Authorization', 'X-Api-Key, Authorization'],
    ['X-Status-Code', '404', '404'],
    [
      'Content-Type',
      'multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW',
      'multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW',
    ],
    ['Content-Type', 'text/html; charset=utf-8', 'text/html; charset=utf-8'],
    ['Accept', '*/*;q=0.8', '*/*;q=0.8'],
  ])('%s: %s', (name, value, masked) => {
    expect(maskedValue(name, value)).toBe(masked)
  })
})

describe('maskedBody', () => {
  it.each([
    ['{"hello":1}', '{"hello":1}'],
    ['{"password":"a","x":1}', '{"password":"[secret]","x":1}'],
    ['{ "Token" : "a\\"b,c" , "x": 1 }', '{ "Token" : "[secret]" , "x": 1 }'],
    ['{"token":123,"x":1}', '{"token":"[secret]","x":1}'],
    ['{"x":{"token":123}}', '{"x":{"token":"[secret]"}}'],
    ['{"tokens":["a",["b"],{"c":"]"}],"x":1}', '{"tokens":"[secret]","x":1}'],
    ['{"secret":{"a":"}"},"x":1}', '{"secret":"[secret]","x":1}'],
    ['{"x":1,"password":"half of i', '{"x":1,"password":"[secret]"'],
    ['{"x":1,"password":', '{"x":1,"password":"[secret]"'],
    [
      '{"text":"{\\"password\\":\\"a\\",\\"x\\":1}"}',
      '{"text":"{\\"password\\":\\"[secret]\\",\\"x\\":1}"}',
    ],
    ['<a><Password Type="x">pw</Password></a>', '<a><Password Type="x">[secret]</Password></a>'],
    ['<wsse:Password>pw', '<wsse:Password>[secret]'],
    ['token=1', 'token=[secret]'],
    ['user=ann&pass=hunter2&x=1', 'user=ann&pass=[secret]&x=1'],
    // JSON
    ['{"\\u0070assword":"a","x":1}', '{"\\u0070assword":"[secret]","x":1}'],
    ['{"a":"{\\"\\\\u0070ass\\":\\"x\\\\\\"y\\"}"}', '{"a":"{\\"\\\\u0070ass\\":\\"[secret]\\"}"}'],
    [
      '{"passenger":"a","isToken":true,"code":"not_found","code":404}',
      '{"passenger":"a","isToken":true,"code":"not_found","code":404}',
    ],
    ['{"code":"4/P7q7W91"}', '{"code":"[secret]"}'],
    ['{"code":"493021"}', '{"code":"[secret]"}'],
    ['{"name":"password","value":"a"}', '{"name":"password","value":"[secret]"}'],
    [
      '[{"key":"apiKey","value":"a"},{"key":"size","value":"b"}]',
      '[{"key":"apiKey","value":"[secret]"},{"key":"size","value":"b"}]',
    ],
    ["{'password': 'a', 'x': 1}", "{'password': '[secret]', 'x': 1}"],
    ['{"note":"https://a.test/?pass=a&x=1"}', '{"note":"https://a.test/?pass=[secret]&x=1"}'],
    [`{"x":"${BASE64_KEY}"}`, '{"x":"[secret]"}'],
    [`{"x":"${JWT}"}`, '{"x":"[secret]"}'],
    [`{"sha256":"${HEX_KEY}${HEX_KEY}"}`, `{"sha256":"${HEX_KEY}${HEX_KEY}"}`],
    ...OPEN_IDS.map((id) => [`{"id":"${id}"}`, `{"id":"${id}"}`]),
    // XML
    ['<user name="ann" password="a" x=\'1\'/>', '<user name="ann" password="[secret]" x=\'1\'/>'],
    ['<a token=\'x>y\' b="1">z</a>', '<a token=\'[secret]\' b="1">z</a>'],
    ['<Password><![CDATA[a<b]]></Password><x/>', '<Password>[secret]</Password><x/>'],
    ['<credentials><user>a</user><x>b</x></credentials>', '<credentials>[secret]</credentials>'],
    ['<add key="ApiKey" value="a"/>', '<add key="ApiKey" value="[secret]"/>'],
    [
      '<property name="db.password">a</property>',
      '<property name="db.password">[secret]</property>',
    ],
    [
      '<status code="404"><author>a</author></status>',
      '<status code="404"><author>a</author></status>',
    ],
    // YAML and files of settings
    ['user: ann\npassword: two words\nport: 1', 'user: ann\npassword: [secret]\nport: 1'],
    ['a:\n  - password: x # y\n    b: 1', 'a:\n  - password: [secret]\n    b: 1'],
    ['private_key: |\n  line\n  line\nb: 1', 'private_key: |\n  [secret]\n  [secret]\nb: 1'],
    ['tokens:\n- a\n- b\nc: 1', 'tokens:\n- [secret]\n- [secret]\nc: 1'],
    ['{user: ann, password: a}', '{user: ann, password: [secret]}'],
    ['export DB_PASS="a b"\nX=1', 'export DB_PASS=[secret]\nX=1'],
    ['GET / HTTP/1.1\r\nX-Auth-Key: a\r\n', 'GET / HTTP/1.1\r\nX-Auth-Key: [secret]\r\n'],
    // Text
    ['Read the Basic information of the author.', 'Read the Basic information of the author.'],
    ['curl -H "Authorization: Bearer abc123"', 'curl -H "Authorization: Bearer [secret]"'],
    ['-----BEGIN PRIVATE KEY-----\nAAAA', '[secret]'],
  ])('%s', (text, masked) => {
    expect(maskedBody(text, '')).toBe(masked)
  })

  it('reads code as code', () => {
    const code = 'var token = next(); config = {apiKey: "abc", key: function () {}}'
    expect(maskedBody(code, 'text/javascript')).toBe(code.replace('abc', '[secret]'))
  })

  it('hides all cookies of a head, also in the middle of a line', () => {
    expect(maskedBody('sent cookie: theme=dark; b=34', '')).toBe('sent cookie: [secret]')
  })

  it('leaves UUIDs readable, however they change between digits and letters', () => {
    const ids = '1a2b3c4d-5e6f-4a1b-8c2d-3e4f5a6b7c8d,f1e2d3c4-b5a6-4f7e-9d8c-b7a6f5e4d3c2'
    expect(maskedBody(ids, '')).toBe(ids)
  })

  it('hides fields of forms', () => {
    const form = 'user=ann&password=a%26b&x=1'
    const type = 'application/x-www-form-urlencoded; charset=utf-8'
    expect(maskedBody(form, type)).toBe('user=ann&password=[secret]&x=1')
    // In a form only & ends a value, and names may be escaped.
    expect(maskedBody('p%61ssword=a}b&x=1', type)).toBe('p%61ssword=[secret]&x=1')
    const part = (name: string, value: string) =>
      `--b\r\nContent-Disposition: form-data; name="${name}"\r\nX-A: 1\r\n\r\n${value}\r\n`
    const parts = (password: string) => `${part('user', 'ann')}${part('password', password)}--b--`
    expect(maskedBody(parts('a\r\nb'), 'multipart/form-data; boundary=b')).toBe(parts('[secret]'))
    expect(maskedBody(parts('a\r\n--c'), 'multipart/form-data; boundary=b')).toBe(parts('[secret]'))
    const json = part('data', '{"pass":"a"}')
    expect(maskedBody(json, 'multipart/mixed')).toBe(part('data', '{"pass":"[secret]"}'))
    expect(maskedBody('--b\r\nno head', 'multipart/form-data')).toBe('--b\r\nno head')
  })

  it.each([
    ['', 'content-disposition: name='],
    ['multipart/form-data', 'content-disposition: name='],
    ['', '"a" '],
    ['', '"token":['],
    ['', '<a '],
    ['', '<token>'],
    ['', '<a b="'],
    ['', `<a ${'name=key '.repeat(100_000)}`],
    ['', '{"key":{"x":"'],
    ['', '"key":{"value":'],
    ['', '"name":"token","value":'],
    ['', '\\'],
    ['', '"\\'],
    ['', 'token=\\"'],
    ['', 'eyJaaaaaa-'],
    ['', 'Bearer '],
    ['', '-----BEGIN PRIVATE KEY-----'],
    ['', 'pass: \n  '],
    ['', 'a/1B'],
    ['', '%'],
    ['', '['],
    ['', ' '],
    ['', '//'],
    ['', '?a='],
    ['', '?a=%3d'],
    ['application/x-www-form-urlencoded', '?;&//'],
    ['application/x-www-form-urlencoded', '?a='],
  ])('costs in proportion to the length of the text: %s %.20s', (type, piece) => {
    const cpuMs = (length: number) => {
      const text = piece.repeat(Math.ceil(length / piece.length)).slice(0, length)
      const { user: before } = process.cpuUsage()
      expect(maskedBody(text, type).length).toBeGreaterThan(0)
      return (process.cpuUsage().user - before) / 1_000
    }
    cpuMs(16 * 1024)
    const small = Math.max(20, cpuMs(64 * 1024))
    // Sixteen times the time where it grows with the square.
    expect(cpuMs(512 * 1024)).toBeLessThan(small * 40)
  })
})

describe('maskedWebhookUrl', () => {
  it.each([
    ['https://hooks.slack.com/services/T0/B0/XyZ', 'https://hooks.slack.com/[secret]'],
    ['https://a.test:8443/?key=1', 'https://a.test:8443/[secret]'],
    ['https://ann:pw@a.test', 'https://a.test'],
    ['https://a.test/', 'https://a.test'],
    ['https://a.test/#x', 'https://a.test/[secret]'],
  ])('%s', (url, masked) => {
    expect(maskedWebhookUrl(url)).toBe(masked)
  })
})
