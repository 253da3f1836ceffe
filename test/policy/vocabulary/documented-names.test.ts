import { describe, expect, it } from 'vitest'
import type { Phase } from '../../../src/policy/phase.ts'
import { PolicyScope, policyLanguage } from '../../../src/policy/policy-language.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { compileExpression } from '../../helpers/policy-exchange.ts'

/** Names below a prefix, and the type that each must have where it is used. */
type Names = Readonly<Record<string, string>>

const NAME_LISTS = [
  ...['country', 'locality', 'organization', 'organizational_unit'],
  ...['postal_code', 'province', 'street_address'],
]
const DISTINGUISHED: Names = {
  '': 'string',
  '.common_name': 'string',
  ...Object.fromEntries(NAME_LISTS.map((name) => [`.${name}`, 'list'])),
}
const below = (prefix: string, names: Names): Names =>
  Object.fromEntries(Object.entries(names).map(([name, type]) => [`${prefix}${name}`, type]))

const CERTIFICATE: Names = {
  '.serial_number': 'string',
  '.signature_algorithm': 'string',
  ...below('.issuer', DISTINGUISHED),
  ...below('.subject', DISTINGUISHED),
  ...below('.san', {
    '': 'string',
    '.dns_names': 'list',
    '.email_addresses': 'list',
    '.ip_addresses': 'list',
    '.uris': 'list',
  }),
  '.validity.not_before': 'timestamp',
  '.validity.not_after': 'timestamp',
  '.extensions': 'list',
  '.extensions[0].id': 'string',
  '.extensions[0].critical': 'bool',
  '.extensions[0].value': 'bytes',
}

const IP: Names = {
  '': 'string',
  '.categories': 'list',
  '.is_on_blocklist': 'bool',
  '.is_tor_node': 'bool',
}

const REGISTERED: Names = {
  ...Object.fromEntries(
    [
      ...['city', 'continent', 'country', 'country_code'],
      ...['metro_code', 'subdivision', 'timezone'],
    ].map((name) => [`.${name}`, 'string']),
  ),
  '.is_eu': 'bool',
}
const POINT: Names = { '.latitude': 'string', '.longitude': 'string', '.radius': 'string' }

const locatedBy = (ip: string): Names => ({
  ...below(`${ip}.geo.location`, { ...REGISTERED, ...POINT, '.postal_code': 'string' }),
  ...below(`${ip}.geo.registered_location`, REGISTERED),
})

/** What needs a table of locations, and what one of autonomous systems. */
const LOCATED: Names = {
  ...below('conn.geo', POINT),
  ...below('conn.geo', { '.city': 'string', '.country': 'string' }),
  ...below('conn.geo', { '.country_code': 'string', '.subdivision': 'string' }),
  ...locatedBy('conn.client_ip'),
  ...locatedBy('conn.server_ip'),
}
const NETWORKED: Names = {
  ...below('conn.client_ip.as', { '.number': 'int', '.organization': 'string' }),
  ...below('conn.server_ip.as', { '.number': 'int', '.organization': 'string' }),
}

const CONNECTION: Names = {
  ...LOCATED,
  ...NETWORKED,
  ...below('conn.client_ip', IP),
  ...below('conn.server_ip', IP),
  'conn.client_port': 'int',
  'conn.server_port': 'int',
  'conn.server_region': 'string',
  'conn.ts.start': 'timestamp',
  'conn.bytes_in': 'int',
  'conn.bytes_out': 'int',
  'conn.k8s.pod.id': 'string',
  'conn.k8s.pod.metadata.name': 'string',
  'conn.k8s.pod.metadata.namespace': 'string',
  'conn.k8s.pod.metadata.annotations': 'map',
  'conn.k8s.pod.metadata.error_code': 'string',
  'conn.k8s.pod.metadata.error_message': 'string',
  'conn.tls.cipher_suite': 'string',
  'conn.tls.negotiated_alpn': 'string',
  'conn.tls.sni': 'string',
  'conn.tls.version': 'string',
  'conn.tls.session_resumed': 'bool',
  'conn.tls.client.pem': 'string',
  ...below('conn.tls.client', CERTIFICATE),
  ...below('conn.tls.server', CERTIFICATE),
  'endpoint.addr': 'string',
  'endpoint.host': 'string',
  'endpoint.id': 'string',
  'endpoint.port': 'int',
  'endpoint.protocol': 'string',
  'endpoint.url': 'string',
  'time.now': 'string',
}

const MESSAGE: Names = {
  '.headers': 'map',
  '.trailers': 'map',
  '.cookies': 'map',
  '.content_length': 'int',
  '.content_type': 'string',
  '.content_type.raw': 'string',
  '.content_type.parameters': 'map',
  '.content_encoding': 'list',
  '.location': 'string',
}

const REQUEST: Names = {
  ...Object.fromEntries(
    ['name', 'version', 'os', 'os_version', 'device', 'url'].map((name) => [
      `req.user_agent.${name}`,
      'string',
    ]),
  ),
  ...Object.fromEntries(
    ['mobile', 'tablet', 'desktop', 'bot'].map((name) => [`req.user_agent.is_${name}`, 'bool']),
  ),
  ...below('req', MESSAGE),
  'req.method': 'string',
  'req.host': 'string',
  'req.version': 'string',
  'req.ts.header_received': 'timestamp',
  'req.ts.body_received': 'timestamp',
  "req.cookies['a'][0].name": 'string',
  "req.cookies['a'][0].value": 'string',
  ...below('req.url', {
    '': 'string',
    '.authority': 'string',
    '.host': 'string',
    '.path': 'string',
    '.port': 'int',
    '.query': 'string',
    '.query_params': 'map',
    '.raw': 'string',
    '.raw_path': 'string',
    '.scheme': 'string',
    '.uri': 'string',
    '.user_password': 'string',
  }),
  'req.user_agent': 'string',
}

const RESPONSE: Names = {
  ...below('res', MESSAGE),
  'res.status_code': 'int',
  ...below("res.cookies['a'][0]", {
    '.name': 'string',
    '.value': 'string',
    '.domain': 'string',
    '.path': 'string',
    '.expires': 'timestamp',
    '.max_age': 'duration',
    '.http_only': 'bool',
    '.secure': 'bool',
    '.same_site': 'string',
    '.unparsed_attributes': 'list',
  }),
}

/** Every function in every form, where an argument can be left out or the target comes first. */
const FUNCTIONS: Readonly<Record<string, readonly string[]>> = {
  request: [
    "getReqHeader('a') == []",
    "hasReqHeader('a')",
    "getReqCookie('a').value == ''",
    "hasReqCookie('a')",
    "getQueryParam('a') == []",
    "hasQueryParam('a')",
  ],
  net: [
    "inCidrRange(conn.client_ip, '10.0.0.0/8')",
    "inCidrRanges(conn.client_ip, ['10.0.0.0/8'])",
    'conn.client_ip.isPrivateIp()',
  ],
  util: ["has(req.headers['a'])", 'has(req.content_length)', "has(vars['v'])", 'has(vars.v)'],
  random: ['rand.double() < 1.0', 'rand.int() < 2', 'rand.int(1, 6) < 7'],
  secrets: ["secrets.get('vault', 'name') == ''"],
  'basic auth': ["basic_auth.encode('u', 'p') == ''"],
  base64: [
    "base64.encode(b'a') == ''",
    "base64.decode('YQ==') == b'a'",
    "'a'.encodeBase64() == ''",
    "'YQ=='.decodeBase64() == 'a'",
  ],
  hash: ['md5', 'sha1', 'sha256', 'sha512', 'crc32', 'crc64', 'xxhash64'].flatMap((name) => [
    `hash.${name}('a') == ''`,
    `hash.${name}('a', 'hex') == ''`,
    `hash.${name}('a', 'base64') == ''`,
    `'a'.${name}() == ''`,
    `'a'.${name}('base64') == ''`,
  ]),
  json: [
    "json.decode('{}') == {}",
    "json.encode({'a': 1}) == ''",
    "'{}'.decodeJson() == {}",
    "'{}'.isJson()",
    "[1].encodeJson() == ''",
    "{'a': 1}.encodeJson() == ''",
  ],
  query: [
    "queryString.decode('a=1') == {}",
    "queryString.encode({'a': ['1']}) == ''",
    "'a=1'.decodeQueryString() == {}",
    "'a=1'.isQueryString()",
    "{'a': ['1']}.encodeQueryString() == ''",
  ],
  url: [
    "url.parse('https://a/').host == 'a'",
    "'https://a/'.parseUrl().scheme == 'https'",
    "url.escape('a b') == ''",
    "url.unescape('a%20b') == ''",
    "'a b'.escapeUrl() == ''",
    "'a%20b'.unescapeUrl() == ''",
    "'https://a/'.isURL()",
  ],
  string: [
    "'a'.contains('a')",
    "'a'.startsWith('a')",
    "'a'.endsWith('a')",
    "'a'.matches('(?i)A')",
    "matches('a', 'a')",
    "'a'.size() == 1",
    "size('a') == 1",
    "'a'.charAt(0) == 'a'",
    "'a'.indexOf('a') == 0",
    "'a'.indexOf('a', 0) == 0",
    "'a'.lastIndexOf('a') == 0",
    "'a b'.split() == []",
    "'a,b'.split(',') == []",
    "'a,b'.split(',', 1) == []",
    "['a'].join() == 'a'",
    "['a'].join(',') == 'a'",
    "'a'.replace('a', 'b') == 'b'",
    "'a'.replace('a', 'b', 1) == 'b'",
    "'abc'.substring(1) == 'bc'",
    "'abc'.substring(1, 2) == 'b'",
    "' a '.trim() == 'a'",
    "'a'.reverse() == 'a'",
    "'a'.lower() == 'a'",
    "'a'.upper() == 'A'",
    "'a'.lowerAscii() == 'a'",
    "'a'.upperAscii() == 'A'",
    "'%s'.format(['a']) == 'a'",
    "strings.quote('a') == ''",
  ],
  bytes: ["b'a'.size() == 1", "size(b'a') == 1"],
  list: [
    '[1].all(x, x == 1)',
    '[1].exists(x, x == 1)',
    '[1].exists_one(x, x == 1)',
    '[1].filter(x, x == 1) == [1]',
    '[1].map(x, x + 1) == [2]',
    '[1].map(x, x == 1, x + 1) == [2]',
    '[1].size() == 1',
    '[1, 2].slice(0, 1) == [1]',
    '[[1]].flatten() == [1]',
    '[[[1]]].flatten(2) == [1]',
    '[2, 1].sort() == [1, 2]',
    '[2, 1].sortBy(x, -x) == [2, 1]',
    '[1, 1].distinct() == [1]',
    'lists.range(3) == [0, 1, 2]',
    '1 in [1]',
  ],
  map: [
    "{'a': 1}.all(k, k == 'a')",
    "{'a': 1}.exists(k, k == 'a')",
    "{'a': 1}.exists_one(k, k == 'a')",
    "{'a': 1}.filter(k, k == 'a') == ['a']",
    "{'a': 1}.map(k, k) == ['a']",
    "{'a': 1}.size() == 1",
    "'a' in {'a': 1}",
  ],
  time: [
    ...[
      ...['getFullYear', 'getMonth', 'getDate', 'getDayOfMonth', 'getDayOfWeek', 'getDayOfYear'],
      ...['getHours', 'getMinutes', 'getSeconds', 'getMilliseconds'],
    ].flatMap((name) => [
      `timestamp(time.now).${name}() >= 0`,
      `timestamp(time.now).${name}('Europe/Berlin') >= 0`,
    ]),
    ...['getHours', 'getMinutes', 'getSeconds', 'getMilliseconds'].map(
      (name) => `duration('1h').${name}() >= 0`,
    ),
  ],
  casts: [
    "int('1') == 1",
    "uint('1') == 1u",
    "double('1') == 1.0",
    "string(1) == '1'",
    "bytes('a') == b'a'",
    "bool('true')",
    'dyn(1) == 1',
    'type(1) == int',
    "timestamp('2030-01-01T00:00:00Z') > timestamp('2029-01-01T00:00:00Z')",
    "duration('1s') < duration('2s')",
  ],
}
const RESPONSE_FUNCTIONS = [
  "getResHeader('a') == []",
  "hasResHeader('a')",
  "getResCookie('a').value == ''",
  "hasResCookie('a')",
]

/** What needs data, a table or a handshake that a gateway on its own does not have. */
const UNAVAILABLE: readonly (readonly [names: readonly string[], because: string])[] = [
  [['conn.tls.ja4_fingerprint'], 'gateways do not compute it'],
]

/** True for values of a type and refused, or false, for those of any other. */
const USES: Names = {
  string: ".startsWith('x')",
  int: ' + 1 == 2',
  bool: ' == true || false',
  list: '.map(x, x).size() == 1',
  map: ".map(k, k).size() == 1 && 'k' in ",
  bytes: " == b'a'",
  timestamp: '.getFullYear() == 2030',
  duration: '.getSeconds() == 60',
}

function compileUse(name: string, type: string, phase: Phase): void {
  const use = USES[type] ?? ''
  compileExpression(`${name}${use}${type === 'map' ? name : ''}`, phase)
}

const EARLY: Phase = 'on_tcp_connect'
const MIDDLE: Phase = 'on_http_request'
const LATE: Phase = 'on_http_response'

describe('a documented variable', () => {
  it.each(Object.entries(CONNECTION))('%s is a %s in every phase', (name, type) => {
    for (const phase of [EARLY, MIDDLE, LATE]) compileUse(name, type, phase)
  })

  it.each(Object.entries(REQUEST))('%s is a %s for requests and responses', (name, type) => {
    for (const phase of [MIDDLE, LATE]) compileUse(name, type, phase)
    expect(() => compileUse(name, type, EARLY)).toThrow('in on_tcp_connect')
  })

  it.each(Object.entries(RESPONSE))('%s is a %s for responses', (name, type) => {
    compileUse(name, type, LATE)
    expect(() => compileUse(name, type, MIDDLE)).toThrow('in on_http_request')
  })
})

describe('a documented variable of a table that is not there', () => {
  it.each([
    ['GATEWAY_GEO_DB', LOCATED],
    ['GATEWAY_ASN_DB', NETWORKED],
  ])('is refused with %s as the remedy', (setting, names) => {
    const other = setting === 'GATEWAY_GEO_DB' ? 'asn' : 'geo'
    const scope = new PolicyScope((table) => table === other).in(MIDDLE)
    for (const name of Object.keys(names)) {
      expect(() => policyLanguage(new ManualClock()).compile(name, scope)).toThrow(
        expect.objectContaining({ message: expect.stringContaining(setting), isForeign: true }),
      )
    }
  })
})

describe('a documented function', () => {
  const all = Object.entries(FUNCTIONS).flatMap(([group, uses]) => uses.map((use) => [group, use]))

  it.each(all)('of %s: %s', (group, use) => {
    for (const phase of [MIDDLE, LATE]) compileExpression(use ?? '', phase)
    if (group !== 'request' && !use?.includes('req.')) compileExpression(use ?? '', EARLY)
  })

  it.each(RESPONSE_FUNCTIONS)('of responses: %s', (use) => {
    compileExpression(use, LATE)
    expect(() => compileExpression(use, MIDDLE)).toThrow('in on_http_request')
  })
})

describe('a documented name that needs what a gateway on its own has not', () => {
  const all = UNAVAILABLE.flatMap(([names, because]) => names.map((name) => [name, because]))

  it.each(all)('%s is refused: %s', (name, because) => {
    expect(() => compileExpression(`${name} == 'x'`)).toThrow(
      expect.objectContaining({ message: expect.stringContaining(because ?? ''), isForeign: true }),
    )
  })
})
