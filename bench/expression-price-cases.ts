import type { Phase } from '../src/policy/phase.ts'

/** A call of a function, in an expression that has `vars` of several sizes. */
export interface PriceCase {
  readonly name: string
  readonly call: string
  readonly phase: Phase
}

const REQUEST: Phase = 'on_http_request'
const RESPONSE: Phase = 'on_http_response'

const DIGESTS = ['md5', 'sha1', 'sha256', 'sha512', 'crc32', 'crc64', 'xxhash64']
const GETTERS = [
  ...['getFullYear', 'getMonth', 'getDate', 'getDayOfMonth', 'getDayOfWeek', 'getDayOfYear'],
  ...['getHours', 'getMinutes', 'getSeconds', 'getMilliseconds'],
]

/** By function: short and long operands, the overloads that differ. */
const CALLS: Readonly<Record<string, readonly string[]>> = {
  '_==_': ['x == 7', "vars.s == 'a'", 'vars.list == vars.list.slice(0, 500)'],
  '_!=_': ['x != 7', 'vars.texts != vars.texts.slice(0, 500)'],
  '@in': ['x in [1, 2, 3]', '-1 in vars.list', "'none' in vars.texts"],
  '_+_': ['x + 1', "vars.s + 'a'", 'vars.bytes + vars.bytes', 'vars.list + vars.list'],
  '_-_': ['req.ts.header_received - conn.ts.start', "conn.ts.start - duration('9s')"],
  '_<_': ["vars.s < 'E'", 'vars.bytes < vars.bytes', 'x < 7'],
  '_<=_': ["vars.s <= 'E'", 'vars.bytes <= vars.bytes'],
  '_>_': ["vars.s > 'E'", 'vars.bytes > vars.bytes'],
  '_>=_': ["vars.s >= 'E'", 'vars.bytes >= vars.bytes'],
  '_||_': ['x == -1 || x == -2', 'x / 0 == 1 || x == -2 || true', 'dyn(x).y == 1 || true'],
  '_&&_': ['x > -1 && x < 99', "dyn(x) + 'a' == 'b' && false"],
  '_?_:_': ['x == 1 ? 2 : 3'],
  '_[_]': ['[x, 2, 3][1]', "{'a': x}['a']"],
  exists: ['vars.list.exists(y, y == -1)'],
  all: ['vars.list.all(y, y >= 0)'],
  filter: ['vars.list.filter(y, y >= 250)'],
  map: ['vars.list.map(y, y + 1)'],
  int: ["int('42')", 'int(vars.s.size())'],
  uint: ["uint('42')"],
  double: ["double('4.25')"],
  bool: ["bool('true')"],
  bytes: ['bytes(vars.s)', 'bytes(vars.long)'],
  string: [
    'string(x)',
    'string(vars.bytes)',
    'string(1.5)',
    'string(req.ts.header_received)',
    "string(duration('90s'))",
  ],
  timestamp: ["timestamp('2024-07-13T00:10:16Z')", 'timestamp(1720829416000)'],
  duration: ["duration('90s')", "duration('1h30m')", 'duration(90)'],
  contains: ["vars.s.contains('x')", "vars.long.contains('zz')"],
  startsWith: ["vars.s.startsWith('Dev')"],
  endsWith: ["vars.s.endsWith('north')"],
  indexOf: ["vars.s.indexOf('n')", "vars.long.indexOf('zz')"],
  lastIndexOf: ["vars.s.lastIndexOf('n')", "vars.long.lastIndexOf('zz')"],
  charAt: ['vars.s.charAt(3)'],
  substring: ['vars.s.substring(3)', 'vars.s.substring(3, 6)'],
  size: ['vars.s.size()', 'size(vars.long)', 'vars.list.size()'],
  matches: ["vars.s.matches('(?i)device [0-9]+')", "vars.long.matches('(?i)badbot|crawler')"],
  lower: ['vars.s.lower()', 'vars.long.lower()'],
  upper: ['vars.s.upper()', 'vars.long.upper()'],
  lowerAscii: ['vars.s.lowerAscii()', 'vars.upper.lowerAscii()'],
  upperAscii: ['vars.s.upperAscii()', 'vars.long.upperAscii()'],
  trim: ['vars.s.trim()', 'vars.long.trim()'],
  reverse: ['vars.s.reverse()', 'vars.long.reverse()'],
  split: ["vars.s.split(' ')", "vars.long.split('')", "vars.s.split(' ', 2)"],
  replace: ["vars.s.replace('n', 'm')", "vars.long.replace('o', '0')"],
  join: ["['a', 'b'].join('-')", "vars.texts.join(',')"],
  format: ["'%s has %d'.format([vars.s, x])", "'%s'.format([vars.texts])"],
  'strings.quote': ['strings.quote(vars.s)', 'strings.quote(vars.long)'],
  'lists.range': ['lists.range(3)', 'lists.range(1000)'],
  slice: ['[1, 2, 3].slice(1, 2)', 'vars.list.slice(100, 400)'],
  flatten: ['[[1], [2]].flatten()', 'vars.nested.flatten()', 'vars.nested.flatten(2)'],
  distinct: ['[1, 2, 1].distinct()', 'vars.list.distinct()', 'vars.texts.distinct()'],
  sort: ['[2, 1].sort()', 'vars.list.sort()', 'vars.texts.sort()'],
  '@sort_by': ['[2, 1].sortBy(y, y)', 'vars.list.sortBy(y, y)'],
  'base64.encode': ["base64.encode(b'abc')", 'base64.encode(vars.bytes)'],
  'base64.decode': ["base64.decode('YWJj')", 'base64.decode(vars.base64)'],
  encodeBase64: ['vars.s.encodeBase64()', 'vars.long.encodeBase64()'],
  decodeBase64: ["'YWJj'.decodeBase64()", 'vars.base64.decodeBase64()'],
  'basic_auth.encode': ["basic_auth.encode(vars.s, 'secret')"],
  'json.decode': ['json.decode(\'{"a":1}\')', 'json.decode(vars.json)'],
  decodeJson: ['\'{"a":1}\'.decodeJson()', 'vars.json.decodeJson()'],
  isJson: ['\'{"a":1}\'.isJson()', 'vars.json.isJson()'],
  'json.encode': ["json.encode({'a': x})", 'json.encode(vars.texts)', 'json.encode(vars.map)'],
  encodeJson: ["{'a': x}.encodeJson()", 'vars.list.encodeJson()'],
  'queryString.decode': ["queryString.decode('a=1&b=2')", 'queryString.decode(vars.query)'],
  decodeQueryString: ["'a=1&b=2'.decodeQueryString()", 'vars.query.decodeQueryString()'],
  'queryString.encode': ["queryString.encode({'a': 'b'})", 'queryString.encode(vars.map)'],
  encodeQueryString: ["{'a': 'b'}.encodeQueryString()", 'vars.map.encodeQueryString()'],
  isQueryString: ["'a=1&b=2'.isQueryString()", 'vars.query.isQueryString()'],
  'url.parse': ["url.parse('https://a.example/b?c=d')", 'url.parse(vars.url)'],
  parseUrl: ["'https://a.example/b?c=d'.parseUrl()", 'vars.url.parseUrl()'],
  'url.escape': ['url.escape(vars.s)', 'url.escape(vars.long)'],
  escapeUrl: ['vars.s.escapeUrl()', 'vars.long.escapeUrl()'],
  'url.unescape': ["url.unescape('a%20b')", 'url.unescape(vars.escaped)'],
  unescapeUrl: ["'a%20b'.unescapeUrl()", 'vars.escaped.unescapeUrl()'],
  isURL: ["'https://a.example/b'.isURL()", 'vars.url.isURL()'],
  inCidrRange: [
    "inCidrRange(conn.client_ip, '203.0.113.0/24')",
    "inCidrRange('2001:db8::1', '2001:db8::/32')",
  ],
  inCidrRanges: ["inCidrRanges(conn.client_ip, ['10.0.0.0/8', '192.168.0.0/16'])"],
  isPrivateIp: ['conn.client_ip.isPrivateIp()'],
  'rand.double': ['rand.double()'],
  'rand.int': ['rand.int()', 'rand.int(1, 99)'],
  'time.now': ['time.now'],
  'secrets.get': ["secrets.get('vault', 'name')"],
  ...Object.fromEntries(
    DIGESTS.flatMap((name) => [
      [name, [`vars.s.${name}()`, `vars.long.${name}('base64')`]],
      [`hash.${name}`, [`hash.${name}(vars.s)`, `hash.${name}(vars.long)`]],
    ]),
  ),
  ...Object.fromEntries(
    GETTERS.map((name) => [
      name,
      [
        `req.ts.header_received.${name}()`,
        `req.ts.header_received.${name}('-05:30')`,
        `req.ts.header_received.${name}('Europe/Berlin')`,
      ],
    ]),
  ),
}

const MAPS = ['req.headers', 'req.trailers', 'req.cookies', 'req.url.query_params']
const RESPONSE_MAPS = ['res.headers', 'res.trailers', 'res.cookies']

/** Every function, in a call or several. */
export function priceCases(): PriceCase[] {
  const cases: PriceCase[] = Object.entries(CALLS).flatMap(([name, calls]) =>
    calls.map((call) => ({ name, call, phase: REQUEST })),
  )
  for (const [maps, phase] of [
    [MAPS, REQUEST],
    [RESPONSE_MAPS, RESPONSE],
  ] as const) {
    for (const map of maps) {
      cases.push({ name: `@at:${map}`, call: `${map}['a']`, phase })
      cases.push({ name: `@in:${map}`, call: `'a' in ${map}`, phase })
      cases.push({ name: map, call: map, phase })
    }
  }
  for (const name of ['ReqHeader', 'QueryParam', 'ReqCookie', 'ResHeader', 'ResCookie']) {
    const phase = name.startsWith('Res') ? RESPONSE : REQUEST
    cases.push({ name: `get${name}`, call: `get${name}('a')`, phase })
    cases.push({ name: `has${name}`, call: `has${name}('a')`, phase })
  }
  return cases
}
