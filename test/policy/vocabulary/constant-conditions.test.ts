import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkPolicy } from '../../../src/policy/check.ts'
import { PolicyError } from '../../../src/policy/document/problem.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { markdownPages } from '../../helpers/document-part.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { createExchange, type EvaluationParts, evaluate } from '../../helpers/policy-exchange.ts'

const ROOT = join(import.meta.dirname, '../../..')

function problemsOf(expression: string, service: 'embedded' | 'hosted' = 'embedded') {
  const phase = expression.includes('res.') ? 'on_http_response' : 'on_http_request'
  const actions = [{ type: 'log', config: { metadata: { seen: 'yes' } } }]
  const document = { [phase]: [{ expressions: [expression], actions }] }
  return checkPolicy(JSON.stringify(document), { service })
}

type Kind = 'refused' | 'warned'
type Row = readonly [expression: string, kind: Kind, reason: string, right?: string]

/** Comparisons with texts that a value never has. */
const NEVER_EQUAL: readonly Row[] = [
  ["req.method == 'get'", 'refused', 'methods are upper case', "req.method == 'GET'"],
  ["'get' == req.method", 'refused', 'methods are upper case', "req.method == 'GET'"],
  ["req.method != 'get'", 'refused', 'is always true', "req.method != 'GET'"],
  ["req.Method == 'get'", 'refused', 'methods are upper case', "req.Method == 'GET'"],
  ["req.method in ['get', 'put']", 'refused', 'is never true', "req.method in ['GET', 'PUT']"],
  ["req.method.startsWith('ge')", 'refused', 'upper case', "req.method.startsWith('GE')"],
  ["req.method in ['get', 'GET']", 'warned', "req.method never equals 'get'"],
  ["req.method == 'get' || req.method == 'GET'", 'warned', 'methods are upper case'],
  ["req.host == 'Example.com'", 'refused', 'lower case', "req.host == 'example.com'"],
  ["req.host == 'Example.com:8080'", 'refused', 'no port', "req.host == 'example.com'"],
  ["req.host == 'example.com.'", 'refused', 'no dot', "req.host == 'example.com'"],
  [
    "req.url.host == 'https://example.com/'",
    'refused',
    'no scheme',
    "req.url.host == 'example.com'",
  ],
  ["req.host == '*.com'", 'refused', 'no wildcard', "req.host.endsWith('.com')"],
  ["req.host.endsWith('.COM')", 'refused', 'lower case', "req.host.endsWith('.com')"],
  ["endpoint.host == 'Device.example.com'", 'refused', 'lower case'],
  ["conn.tls.sni == 'Example.com'", 'refused', 'lower case'],
  ["req.url.path == 'admin'", 'refused', 'begins with a slash', "req.url.path == '/admin'"],
  [
    "req.url.path.startsWith('admin')",
    'refused',
    'begins with a slash',
    "req.url.path.startsWith('/admin')",
  ],
  [
    "req.url.path.matches('^admin')",
    'refused',
    'begins with a slash',
    "req.url.path.matches('^/admin')",
  ],
  [
    "['x', '/admin'].exists(p, req.url.path.startsWith(p))",
    'refused',
    "req.url.path never starts with 'x'",
  ],
  [
    "req.url.path == '/admin?b=1'",
    'refused',
    'before the query',
    "req.url.path == '/admin' && req.url.query == 'b=1'",
  ],
  ["req.url.path == '/%61dmin'", 'refused', 'is decoded', "req.url.path == '/admin'"],
  ["req.url.path == '//admin'", 'refused', 'doubled slashes', "req.url.path == '/admin'"],
  ["req.url.path.contains('//')", 'refused', 'doubled slashes', "req.url.raw_path.contains('//')"],
  ["req.url == '/admin'", 'refused', 'begins with http', "req.url.path == '/admin'"],
  ["req.url == 'https://example.com'", 'refused', 'has a path'],
  [
    "req.url.startsWith('https://Example.com/')",
    'refused',
    'lower case',
    "req.url.startsWith('https://example.com/')",
  ],
  ["req.url.scheme == 'HTTPS'", 'refused', 'http or https', "req.url.scheme == 'https'"],
  ["endpoint.protocol == 'udp'", 'refused', 'http, https, tcp or tls'],
  ["endpoint.protocol in ['http', 'udp']", 'warned', "never equals 'udp'"],
  ["req.version == 'HTTP/2'", 'refused', 'HTTP/2.0', "req.version == 'HTTP/2.0'"],
  ["conn.tls.version == 'TLSv1.3'", 'refused', '1.2 or 1.3', "conn.tls.version == '1.3'"],
  [
    "conn.client_ip in ['10.0.0.0/8']",
    'refused',
    'not a range',
    "inCidrRange(conn.client_ip, '10.0.0.0/8')",
  ],
  [
    "conn.client_ip in ['10.0.0.0/8', '192.0.2.1']",
    'refused',
    'not a range',
    "inCidrRanges(conn.client_ip, ['10.0.0.0/8', '192.0.2.1'])",
  ],
  [
    "conn.client_ip != '10.0.0.0/8'",
    'refused',
    'not a range',
    "!inCidrRange(conn.client_ip, '10.0.0.0/8')",
  ],
  ["conn.client_ip == 'example.com'", 'refused', 'is an IP address'],
  ["conn.client_ip == '2001:DB8::01'", 'refused', 'spelling', "conn.client_ip == '2001:db8::1'"],
  ["inCidrRange(conn.client_ip, '10.0')", 'refused', 'not a range of addresses'],
  [
    "req.content_type == 'application/json; charset=utf-8'",
    'refused',
    'no parameters',
    "req.content_type == 'application/json'",
  ],
  ["res.content_type == 'Text/HTML'", 'refused', 'lower case', "res.content_type == 'text/html'"],
  ["conn.geo.country_code == 'de'", 'refused', 'upper case', "conn.geo.country_code == 'DE'"],
  ["conn.geo.country_code == 'Germany'", 'refused', 'two upper case letters'],
  [
    "req.headers.exists(k, k == 'X-Key')",
    'refused',
    'lower case',
    "req.headers.exists(k, k == 'x-key')",
  ],
  ["req.headers['x-key:'].size() > 0", 'refused', 'No header has the name'],
  [
    "req.user_agent.lower().contains('Bot')",
    'refused',
    'lower case',
    "req.user_agent.lower().contains('bot')",
  ],
  ["req.method.upper() == 'Get'", 'refused', 'upper case', "req.method.upper() == 'GET'"],
  ['res.status_code == 20', 'refused', 'three digits'],
  ["req.url in ['/a', '/b']", 'refused', 'begins with http', "req.url.path in ['/a', '/b']"],
  ["req.url in ['/admin', 'https://example.com/x']", 'warned', "never equals '/admin'"],
  ["['/admin', '/b'].exists(p, req.url == p)", 'refused', "never equals '/admin' (and 1 more)"],
  ["req.host in ['*.a.example', '*.b.example']", 'refused', 'no wildcard'],
  [
    "req.url.path.startsWith('//')",
    'refused',
    'doubled slashes',
    "req.url.raw_path.startsWith('//')",
  ],
  ["req.url.raw_path.startsWith('http://')", 'refused', 'begins with a slash'],
  ["req.url.path.startsWith('http://')", 'refused', 'begins with a slash'],
  ["req.url.startsWith('//')", 'refused', 'begins with http'],
  ["req.url.startsWith('/')", 'refused', 'begins with http'],
  ["req.url.path == '/%61?b=1'", 'refused', 'before the query'],
  [
    "req.url == 'https://example.com?x=1'",
    'refused',
    'has a path',
    "req.url == 'https://example.com/?x=1'",
  ],
]

/** Right forms that no sample fits. */
const UNSEEN = /geo|HTTP\/2\.0|GE'|upper\(|\?x=1|^req\.url\.path in|startsWith\('\/\/'\)/

/** Conditions without a variable, and operands that decide together. */
const CONSTANT: readonly Row[] = [
  ['req.method in []', 'refused', 'the list is empty'],
  ['[].exists(x, x == req.method)', 'refused', 'The list is empty'],
  ["'req.method' == 'GET'", 'refused', 'Write req.method without quotes'],
  ["'a' == 'a'", 'warned', 'compares constants'],
  ['false', 'warned', 'The rule never applies'],
  [
    "req.method == 'GET' && req.method == 'PUT'",
    'refused',
    'never has two values',
    "req.method in ['GET', 'PUT']",
  ],
  [
    "req.method != 'GET' || req.method != 'PUT'",
    'refused',
    'always differs',
    "!(req.method in ['GET', 'PUT'])",
  ],
  ["req.url.path == '/x' && !(req.url.path == '/x')", 'refused', 'are never true together'],
  ['has(req.content_length) || !has(req.content_length)', 'refused', 'together always true'],
]

const NO_DATA: readonly Row[] = [
  ['conn.client_ip.is_tor_node', 'refused', 'no data for conn.client_ip.is_tor_node'],
  ["req.method == 'GET' && conn.client_ip.is_on_blocklist", 'refused', 'at this gateway'],
  ["req.method == 'GET' || conn.client_ip.is_on_blocklist", 'warned', 'at this gateway'],
  ["conn.server_region == 'eu' || conn.server_region == 'us'", 'refused', 'no regions'],
  ['size(conn.client_ip.categories) == 0', 'warned', 'no lists of addresses'],
  ['size(req.trailers) == 0', 'warned', 'after the rules have run'],
  ["'a' in req.trailers", 'refused', 'after the rules have run'],
  ["conn.client_ip.categories.all(c, c != 'a')", 'warned', 'no lists of addresses'],
  ["conn.client_ip.categories.exists_one(c, c == 'a')", 'refused', 'no lists of addresses'],
  ["conn.server_region in ['', 'eu']", 'warned', 'no regions'],
  ["conn.server_region in ['us', 'eu']", 'refused', 'no regions'],
  ["conn.server_region.startsWith('eu')", 'refused', 'no regions'],
  ['conn.client_ip.is_tor_node ? false : true', 'warned', 'no lists of addresses'],
  ['conn.client_ip.is_tor_node ? true : false', 'refused', 'no lists of addresses'],
  ["'proxy' in conn.client_ip.categories", 'refused', 'no lists of addresses'],
  ["conn.server_ip.categories.exists(c, c == 'a')", 'refused', 'no lists of addresses'],
  ["!('com.algolia.crawler' in conn.client_ip.categories)", 'warned', 'no lists of addresses'],
  ['conn.client_ip.is_tor_node == false', 'warned', 'no lists of addresses'],
  ["conn.server_region == 'eu'", 'refused', 'no regions'],
  ['conn.tls.session_resumed', 'refused', 'do not record whether a TLS session was resumed'],
  ["conn.k8s.pod.metadata.namespace == 'a'", 'refused', 'Kubernetes'],
  ["req.trailers['x'].size() > 0", 'refused', 'after the rules have run'],
  ["req.url.user_password == 'a:b'", 'refused', 'Use basic-auth'],
]

const ROWS = [...NEVER_EQUAL, ...CONSTANT, ...NO_DATA].map(
  ([expression, kind, reason, right]) => [expression, kind, reason, right] as const,
)

const SAMPLES: readonly EvaluationParts[] = [
  { url: 'https://example.com/admin?b=1', ip: '10.1.2.3', headers: ['User-Agent', 'bot/1'] },
  { method: 'PUT', url: 'http://other.test/admin/', ip: '2001:db8::1', headers: ['X-Key', 'a'] },
  { method: 'DELETE', url: 'https://example.com/x?debug', ip: '192.0.2.1', status: 500 },
  {
    target: '/x//y',
    headers: ['Content-Type', 'application/json;charset=utf-8', 'Content-Length', '1'],
    connection: {
      tls: { version: 'TLSv1.3', cipherSuite: '', serverName: 'example.com', alpn: '' },
    },
    responseHeaders: ['Content-Type', 'text/html; charset=utf-8'],
  },
  {
    connection: {
      tls: { version: 'TLSv1.2', cipherSuite: '', serverName: '', alpn: '' },
      tables: {
        locationOf: () => ({ countryCode: 'DE' }),
        networkOf: () => undefined,
      } as never,
    },
  },
]

/** The values of an expression for the samples, without those for which it fails. */
function valuesOf(source: string): unknown[] {
  const phase = source.includes('res.') ? 'on_http_response' : 'on_http_request'
  return SAMPLES.flatMap((sample) => {
    try {
      return [evaluate(source, { status: 200, ...sample, phase })]
    } catch {
      return []
    }
  })
}

describe('a condition that is the same for every request', () => {
  it.each(ROWS)('%s is %s: %s', (expression, kind, reason, right) => {
    const problems = problemsOf(expression)
    expect(problems).toMatchObject([
      { severity: kind === 'refused' ? 'error' : 'warning', isOnlyForNew: true },
    ])
    const [{ message } = { message: '' }] = problems
    expect(message).toContain(reason)
    if (right !== undefined && !right.includes('exists'))
      expect(message).toContain(`Write ${right}.`)
    if (right !== undefined) expect(problemsOf(right)).toEqual([])
  })

  it.each(NEVER_EQUAL.map(([source]) => [source] as const))(
    '%s leads to a form that is not refused',
    (expression) => {
      const [{ message } = { message: '' }] = problemsOf(expression)
      const advice = / Write (.*)\.$/.exec(message)?.[1]
      if (advice === undefined || /^k | such as |without colon/.test(advice)) return
      const isText = /^'[^']*'$/.test(advice)
      const wrong = /never [a-z ]+ ('[^']*')/.exec(message)?.[1] ?? ''
      expect([advice, problemsOf(isText ? expression.replace(wrong, advice) : advice)]).toEqual([
        advice,
        [],
      ])
    },
  )

  it('is one short problem for a list of many texts', () => {
    const ranges = Array.from({ length: 225 }, (_, n) => `'10.0.${n}.0/24'`).join(',')
    const few = "'10.0.0.0/24', '10.0.1.0/24'"
    const sources = [`['1.2.3.4',${ranges}]`, `[${ranges}]`]
    for (const list of sources) {
      const problems = problemsOf(`conn.client_ip in ${list}`)
      expect(problems).toMatchObject([{ severity: 'error' }])
      expect(problems[0]?.message).toMatch(/Write inCidrRanges\(conn.client_ip, \[.*, …\]\)\.$/)
      expect(problems[0]?.message.length).toBeLessThan(700)
    }
    const [problem] = problemsOf(`conn.client_ip in ['1.2.3.4', ${few}]`)
    expect(problem?.message).toContain("'10.0.0.0/24' (and 1 more): the value is one address")
  })

  const refused = NEVER_EQUAL.filter(([source]) => !/\|\||, '/.test(source))
  it.each(refused.map(([source]) => [source] as const))('is constant indeed: %s', (source) => {
    expect(new Set(valuesOf(source)).size).toBeLessThanOrEqual(1)
  })

  it.each(
    ROWS.flatMap(([, , , right]) => (right === undefined ? [] : [[right] as const])).filter(
      ([right]) => !UNSEEN.test(right),
    ),
  )('has a right form that is not: %s', (right) => {
    expect(new Set(valuesOf(right)).size).toBe(2)
  })

  it('leads to the place in the source', () => {
    expect(problemsOf("has(req.content_length) && req.method == 'get'")).toMatchObject([
      { pointer: '/on_http_request/0/expressions/0', offset: 38 },
    ])
  })

  it('is found among the expressions of one rule', () => {
    const expressions = ["req.method == 'GET'", "req.url.path == '/'", "req.method == 'PUT'"]
    const document = { on_http_request: [{ expressions, actions: [{ type: 'deny' }] }] }
    expect(checkPolicy(JSON.stringify(document), { service: 'embedded' })).toMatchObject([
      {
        severity: 'error',
        pointer: '/on_http_request/0/expressions/2',
        message: expect.stringContaining("Write req.method in ['GET', 'PUT']"),
      },
    ])
  })

  it('is a warning for the hosted service where only this gateway has one spelling or no data', () => {
    const severityAt = (source: string) => problemsOf(source, 'hosted').map((it) => it.severity)
    expect(severityAt("req.host == 'Example.com'")).toEqual(['warning'])
    expect(severityAt('conn.client_ip.is_tor_node')).toEqual(['warning'])
    expect(severityAt("req.method == 'get'")).toEqual(['error'])
  })

  it('is a warning in a text', () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation
    const metadata = { tor: 'is tor: ${conn.client_ip.is_tor_node}' }
    const document = { on_http_request: [{ actions: [{ type: 'log', config: { metadata } }] }] }
    expect(checkPolicy(JSON.stringify(document), { service: 'embedded' })).toMatchObject([
      { severity: 'warning', offset: 10 },
    ])
  })

  it('runs in a stored policy as it did before', async () => {
    const document = {
      on_http_request: [{ expressions: ["req.method != 'get'"], actions: [{ type: 'deny' }] }],
    }
    const options = { clock: new ManualClock(), log: captureLog('silent').log }
    expect(() => compilePolicy(document, options)).toThrow(PolicyError)
    const policy = compilePolicy(document, { ...options, isStored: true })
    expect(await policy.onHttpRequest(createExchange())).toMatchObject({
      reply: { status: 403 },
    })
  })
})

describe('a condition that depends on the request', () => {
  it.each([
    'true',
    "req.method == ''",
    "req.headers['X-Key'].exists(v, v == 'Abc')",
    "'X-Key' in req.headers",
    "req.headers.exists(k, k.startsWith('x-'))",
    "req.host == '[::1]'",
    "req.host.contains('xn--')",
    "req.url.path == '*'",
    "req.url.path.startsWith('/Admin')",
    "req.url.path.endsWith('.PHP')",
    "req.url.path == '/a b/ä'",
    "req.url.path == '/a%2Fb'",
    "req.url.path.matches('^/admin|^b?/')",
    "req.url.path.matches('(?i)^/ADMIN')",
    "req.url.contains('/Admin')",
    "req.url.startsWith('http')",
    "req.url == 'https://example.com/'",
    "conn.client_ip.startsWith('10.')",
    "conn.client_ip == 'fe80::1'",
    "conn.client_ip == '64:ff9b::192.0.2.1'",
    "inCidrRanges(conn.client_ip, ['10.0.0.0/8', '192.0.2.1', '2001:db8::/32'])",
    "req.content_type.startsWith('text/')",
    "req.user_agent.contains('Bot')",
    "conn.geo.country_code in ['DE', 'AT']",
    "endpoint.url.contains('Cam')",
    'res.status_code == 404 || res.status_code == 410',
    "req.method == 'GET' || req.method == 'PUT'",
    "req.method != 'GET' && req.method != 'PUT'",
    "req.method == 'GET' && req.host != 'a.example' || req.host == 'a.example'",
    'rand.double() < 0.5 && rand.double() >= 0.5',
    "req.url.query_params['a'] == ['1'] && req.url.query_params['b'] == ['2']",
    "req.cookies['a'].exists(c, c.value == 'X' || c.value == 'Y')",
  ])('%s passes', (expression) => {
    expect(problemsOf(expression)).toEqual([])
  })

  it('passes in every example of the docs and in every policy of this package', () => {
    const pages = markdownPages(join(ROOT, 'docs')).map((page) => join(ROOT, 'docs', page))
    const examples = [...pages, join(ROOT, 'README.md')].flatMap((page) => {
      const blocks = readFileSync(page, 'utf8').matchAll(/```(?:json|yaml)\n(.*?)```/gs)
      return Array.from(blocks, ([, text = '']) => text)
    })
    const policies = examples.filter((text) => /^ *"?on_[a-z_]+"?:/m.test(text))
    const files = [join(ROOT, 'default-policy.json')]
    const valid = join(ROOT, 'test/policy/fixtures/valid')
    for (const name of readdirSync(valid)) files.push(join(valid, name))
    policies.push(...files.map((file) => readFileSync(file, 'utf8')))
    expect(policies.length).toBeGreaterThan(15)
    for (const policy of policies) {
      const found = checkPolicy(policy, { service: 'embedded' })
      const constant = found.filter((it) => it.isOnlyForNew && it.severity === 'error')
      expect([policy, constant]).toEqual([policy, []])
    }
  })
})
