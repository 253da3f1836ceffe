// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { LimiterTables } from '../../src/policy/limit/limiter-tables.ts'
import { compilePolicy } from '../../src/policy/policy.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { type ExchangeParts, onRequest, PolicyBench, replyOf } from '../helpers/policy-exchange.ts'
import { seeded } from '../helpers/seeded.ts'

const denyIf = (expression: string) => new PolicyBench(onRequest('deny', undefined, [expression]))

/** 403: denied by the rule; 400: refused for its path; 0: it passes. */
async function statusOf(bench: PolicyBench, parts: ExchangeParts): Promise<number> {
  const { outcome } = await bench.request(parts)
  return outcome.kind === 'continue' ? 0 : replyOf(outcome).status
}

const limitBy = (key: string, tables: { ipv6Prefix?: number } = {}) => {
  const config = { name: 'x', algorithm: 'sliding_window', capacity: 1, rate: '60s' }
  const { log } = captureLog()
  const limits = new LimiterTables({ ...tables, clock: new ManualClock(), log })
  return new PolicyBench(onRequest('rate-limit', { ...config, bucket_key: [key] }), { limits })
}

/** How many of the requests a limit of one request admits. */
async function admitted(bench: PolicyBench, requests: readonly ExchangeParts[]): Promise<number> {
  const statuses = []
  for (const parts of requests) statuses.push(await statusOf(bench, parts))
  return statuses.filter((status) => status === 0).length
}

describe('a host', () => {
  const SPELLINGS = ['admin.test', 'ADMIN.test', 'admin.test.', 'admin.test:8443', 'Admin.Test.:1']

  it.each([
    "req.host == 'admin.test'",
    "req.url.host == 'admin.test'",
    "'admin.test' in req.headers['host']",
    "'admin.test' in getReqHeader('Host')",
    "req.headers.host[0] == 'admin.test'",
    "req.headers.exists(name, name == 'host' && 'admin.test' in req.headers[name])",
    "req.Headers['Host'][0] == 'admin.test'",
    "req.url.authority.startsWith('admin.test')",
    "req.url.startsWith('https://admin.test')",
  ])('is the same in every spelling for %s', async (expression) => {
    for (const host of SPELLINGS) expect(await statusOf(denyIf(expression), { host })).toBe(403)
  })

  it.each(['req.host', 'req.url.host', "req.headers['host']", "getReqHeader('Host')"])(
    'has one bucket by %s, however it is written',
    async (key) => {
      const requests = SPELLINGS.map((host) => ({ host }))
      expect(await admitted(limitBy(key), requests)).toBe(1)
      expect(await admitted(limitBy(key), [...requests, { host: 'other.test' }])).toBe(2)
    },
  )

  it('goes on as it was written', async () => {
    const { exchange } = await denyIf("req.host == 'b.test'").request({ host: 'A.Test.:8443' })
    expect(exchange.request?.headers.get('host')).toBe('A.Test.:8443')
  })

  it('is read the same where the gateway has written it for the service', async () => {
    const headers = ['X-Forwarded-Host', 'ADMIN.test:8443']
    const bench = denyIf("'admin.test' in req.headers['x-forwarded-host']")
    expect(await statusOf(bench, { headers })).toBe(403)
  })

  it('is read the same out of a TLS hello', async () => {
    const tls = { version: 'TLSv1.3', cipherSuite: 'x', serverName: 'ADMIN.test.', alpn: '' }
    const bench = denyIf("conn.tls.sni == 'admin.test'")
    expect(await statusOf(bench, { connection: { tls } })).toBe(403)
  })
})

describe('a path', () => {
  it.each([
    "req.url.path.startsWith('/admin')",
    "req.Path.startsWith('/admin')",
    "req.url.uri.startsWith('/admin')",
    "req.url.startsWith('https://device.example.com/admin')",
    "req.url['path'].startsWith('/admin')",
  ])('cannot be spelled past %s', async (expression) => {
    const bench = denyIf(expression)
    for (const target of ['/admin', '/%61dmin', '//admin', '/%2Fadmin', '/%41dmin/../admin']) {
      expect(await statusOf(bench, { target })).not.toBe(0)
    }
    expect(await statusOf(bench, { target: '/%61dmin/x?y' })).toBe(403)
    expect(await statusOf(bench, { target: '/x/%2e%2e/admin' })).toBe(400)
    expect(await statusOf(bench, { target: '/projects/a%2Fb' })).toBe(0)
  })

  it('that a service may read differently is refused with a code and a reason', async () => {
    const bench = denyIf("req.url.path.startsWith('/admin')")
    const { outcome, exchange } = await bench.request({ target: '/x/../admin' })
    expect(replyOf(outcome)).toMatchObject({
      status: 400,
      errorCode: 'ERR_GATEWAY_AMBIGUOUS_PATH',
      body: expect.stringContaining('dot segment'),
    })
    expect(exchange.request?.target).toBe('/x/../admin')
  })

  const AMBIGUOUS = { target: '/x/../admin' }

  it.each([
    ['an expression', onRequest('deny', undefined, ["req.url.path == '/y'"])],
    [
      'an expression for answers',
      {
        on_http_response: [
          { expressions: ["req.url.path == '/'"], actions: [{ type: 'deny', config: {} }] },
        ],
      },
    ],
    ['a template', onRequest('add-headers', { headers: { 'x-path': 'at ${req.url.raw_path}' } })],
    [
      'a bucket key',
      onRequest('rate-limit', {
        name: 'x',
        algorithm: 'sliding_window',
        capacity: 9,
        rate: '60s',
        bucket_key: ['req.url.path'],
      }),
    ],
    ['a pattern for the URL', onRequest('redirect', { from: '/y', to: '/z' })],
    ['a pattern for the URL', onRequest('url-rewrite', { from: '/y', to: '/z' })],
    ['a variable', onRequest('set-vars', { vars: [{ a: '${req.url.uri}' }] })],
  ])('is refused where it is read by %s', async (_, document) => {
    const source = JSON.parse(
      JSON.stringify(document).replace(
        '"type":"deny","config":{}',
        '"type":"custom-response","config":{"status_code":403}',
      ),
    )
    expect(await statusOf(new PolicyBench(source), AMBIGUOUS)).toBe(400)
    const allowing = new PolicyBench({ ...source, allow_ambiguous_paths: true })
    expect(await statusOf(allowing, AMBIGUOUS)).toBe(0)
  })

  it.each([
    ['nothing of the URL', onRequest('deny', undefined, ["req.method == 'PUT'"])],
    [
      'another part of it',
      onRequest('deny', undefined, [
        "req.url.host == 'b' || req.url.query == 'x' || 'a' in req.url.query_params || req.url.port == 1 && has(req.url.port)",
      ]),
    ],
    ['its scheme', onRequest('redirect', { from: '^http://', to: 'https://' })],
    [
      'nothing, as it is switched off',
      { enabled: false, ...onRequest('deny', undefined, ["req.url.path == '/'"]) },
    ],
  ])('passes a policy that reads %s', async (_, document) => {
    expect(await statusOf(new PolicyBench(document), AMBIGUOUS)).toBe(0)
  })

  it('is refused when a rule has made it ambiguous', async () => {
    const bench = new PolicyBench({
      on_http_request: [
        { actions: [{ type: 'url-rewrite', config: { from: 'cut', to: '' } }] },
        { expressions: ["req.url.path.startsWith('/admin')"], actions: [{ type: 'deny' }] },
      ],
    })
    expect(await statusOf(bench, { target: '/x/.cut./admin' })).toBe(400)
    expect(await statusOf(bench, { target: '/cutadmin' })).toBe(403)
  })

  it('is matched by patterns in both spellings, and kept as it came where it matches so', async () => {
    const redirect = new PolicyBench(onRequest('redirect', { from: '/admin.*', to: '/login' }))
    expect(await statusOf(redirect, { target: '/%61dmin/x' })).toBe(302)
    expect(await statusOf(redirect, { target: '//admin' })).toBe(302)
    const rewrite = new PolicyBench(onRequest('url-rewrite', { from: '/v1/', to: '/v2/' }))
    const raw = await rewrite.request({ target: '/v1/%7Ea//b' })
    expect(raw.exchange.request?.target).toBe('/v2/%7Ea//b')
    const plain = await rewrite.request({ target: '/%76%31/%7Ea//b' })
    expect(plain.exchange.request?.target).toBe('/v2/~a/b')
    const other = await rewrite.request({ target: '/x/%7Ea//b' })
    expect(other.exchange.request?.target).toBe('/x/%7Ea//b')
  })

  it('wants a switch that is true or false', () => {
    const source = { allow_ambiguous_paths: 'yes' }
    const options = { clock: new ManualClock(), log: captureLog().log }
    expect(() => compilePolicy(source, options)).toThrow(
      'allow_ambiguous_paths must be true or false',
    )
  })

  /** The path as common servers look files up: decoded, slashes merged, dot segments resolved. */
  function served(path: string): string {
    const resolved: string[] = []
    for (const segment of decodeURIComponent(path).replaceAll('\\', '/').split('/')) {
      const [name = ''] = segment.split(';')
      if (name === '..') resolved.pop()
      else if (name !== '' && name !== '.') resolved.push(name)
    }
    return `/${resolved.join('/')}`
  }

  it('never leads to a folder that is denied, whatever it is made of', async () => {
    const random = seeded(27)
    const pieces = [
      ...['/', '/', '%2f', '%2F', '\\', '%5c', '.', '..', '%2e', '%2E%2e', ';', '%3b', 'x', 'x%20'],
      ...['admin', 'admin', '%61dmin', 'adm%69n', '%C3%A4', '%25', '~', '%7e', '%00'],
    ]
    const bench = denyIf("req.url.path.startsWith('/admin')")
    let led = 0
    for (let step = 0; step < 20_000; step += 1) {
      const count = 1 + Math.floor(random() * 8)
      const pick = () => pieces[Math.floor(random() * pieces.length)]
      const target = `/${Array.from({ length: count }, pick).join('')}`
      if (!served(target).startsWith('/admin')) continue
      led += 1
      expect(await statusOf(bench, { target }), target).not.toBe(0)
    }
    expect(led).toBeGreaterThan(1_000)
  })
})

describe('a query', () => {
  it.each(["req.url.query.contains('debug=1')", "'1' in req.url.query_params['debug']"])(
    'has one spelling for %s',
    async (expression) => {
      const bench = denyIf(expression)
      for (const query of ['debug=1', '%64ebug=1', 'debu%67=%31']) {
        expect(await statusOf(bench, { target: `/?x&${query}` })).toBe(403)
      }
    },
  )
})

describe('an IPv6 visitor', () => {
  const visitors = Array.from({ length: 5 }, (_, index) => ({ ip: `2001:db8:1:2::${index + 1}` }))

  it.each([
    'conn.client_ip',
    'conn.ClientIP',
    "conn.client_ip + ' ' + req.method",
    'hash.sha256(conn.client_ip)',
    "inCidrRange(conn.client_ip, '2001:db8::/32') ? conn.client_ip : 'others'",
  ])('is counted by its /64 under %s', async (key) => {
    expect(await admitted(limitBy(key), visitors)).toBe(1)
    expect(await admitted(limitBy(key, { ipv6Prefix: 128 }), visitors)).toBe(5)
    const ip = '2001:db8:1:3::1'
    expect(await admitted(limitBy(key), [...visitors, { ip }])).toBe(2)
    expect(await admitted(limitBy(key, { ipv6Prefix: 56 }), [...visitors, { ip }])).toBe(1)
  })

  it('is counted so where the gateway has written its address into a header', async () => {
    const requests = visitors.map(({ ip }) => ({ ip, headers: ['X-Real-IP', ip] }))
    expect(await admitted(limitBy("req.headers['x-real-ip']"), requests)).toBe(1)
  })

  it('is the IPv4 host that it stands for', async () => {
    const ips = ['192.0.2.1', '::ffff:192.0.2.1', '::ffff:c000:201', '64:ff9b::192.0.2.1']
    const requests = ips.map((ip) => ({ ip }))
    expect(await admitted(limitBy('conn.client_ip'), requests)).toBe(1)
    const nat64 = ['64:ff9b::c000:201', '64:ff9b::c000:202'].map((ip) => ({ ip }))
    expect(await admitted(limitBy('conn.client_ip'), nat64)).toBe(2)
  })

  it('has its whole address everywhere else, and its key in the result', async () => {
    const [{ ip } = { ip: '' }] = visitors
    expect(await statusOf(denyIf(`conn.client_ip == '${ip}'`), { ip })).toBe(403)
    const { exchange } = await limitBy('conn.client_ip').request({ ip })
    expect(exchange.results.get('rate_limit')).toMatchObject({ bucket_key: '2001:db8:1:2::' })
    expect(exchange.countedIp).toBeUndefined()
  })
})

describe('a header', () => {
  it('is removed in the spellings that services take for the same name', async () => {
    const bench = new PolicyBench(onRequest('remove-headers', { headers: ['X-User', 'x_b'] }))
    const { exchange } = await bench.request({
      headers: ['X_User', 'root', 'x-user', 'a', 'X-B', 'c', 'X_Users', 'd'],
    })
    expect(exchange.request?.headers.fields.slice(2)).toEqual(['X_Users', 'd'])
    expect(exchange.results.get('remove_headers')).toEqual({ headers_removed: ['x-user', 'x_b'] })
  })

  it('with a credential counts only when it comes once', async () => {
    const credentials = ['user:long password']
    const basic = `Basic ${Buffer.from(credentials.join()).toString('base64')}`
    const bench = new PolicyBench(onRequest('basic-auth', { credentials }))
    expect(await statusOf(bench, { headers: ['Authorization', basic] })).toBe(0)
    const twice = ['Authorization', basic, 'authorization', 'Bearer of-somebody-else']
    expect(await statusOf(bench, { headers: twice })).toBe(401)
  })
})

describe('an address', () => {
  it('is in a range that is written as IPv4-mapped', async () => {
    const config = { allow: ['0.0.0.0/0'], deny: ['::ffff:192.0.2.0/120'] }
    const bench = new PolicyBench(onRequest('restrict-ips', config))
    expect(await statusOf(bench, { ip: '192.0.2.9' })).toBe(403)
    expect(await statusOf(bench, { ip: '192.0.3.9' })).toBe(0)
  })
})
