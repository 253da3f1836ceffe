// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { checkPolicy } from '../../src/policy/check.ts'
import { compileExpression, createExchange } from '../helpers/policy-exchange.ts'

type Phase = 'on_http_request' | 'on_http_response'

const withExpression = (expression: string, phase: Phase = 'on_http_request') => ({
  [phase]: [{ expressions: [expression], actions: [{ type: 'log', config: { metadata: {} } }] }],
})

/** The problems of a text as `line code sentence`. */
const problemsOf = (text: string) =>
  checkPolicy(text, { service: 'embedded' }).map(
    ({ position: { line }, code, message }) =>
      `${line} ${code.replace('ERR_NGROK_', '')} ${message}`,
  )

/** Expressions, the clause about their only problem, and the phase if it is not that of requests. */
const EXPRESSIONS: readonly (readonly [written: string, clause: string, phase?: Phase])[] = [
  ["req.path == '/a'", 'unknown name req.path: did you mean req.url.path?'],
  ["req.path.startsWith('/a')", 'unknown name req.path: did you mean req.url.path?'],
  ["request.method == 'GET'", 'unknown name request.method: did you mean req.method?'],
  ["conn.ip == '1.2.3.4'", 'unknown name conn.ip: did you mean conn.client_ip?'],
  ["req.ip == '1.2.3.4'", 'unknown name req.ip: did you mean conn.client_ip?'],
  ["req.client_ip == '1.2.3.4'", 'unknown name req.client_ip: did you mean conn.client_ip?'],
  ["client_ip == '1.2.3.4'", 'unknown name client_ip: did you mean conn.client_ip?'],
  [
    "'a' in req.url.path.includes('a')",
    "unknown function req.url.path.includes(): write req.url.path.contains('a')",
  ],
  [
    "req.url.path.includes('admin')",
    "unknown function req.url.path.includes(): write req.url.path.contains('admin')",
  ],
  [
    "req.host.toLowerCase() == 'a'",
    'unknown function req.host.toLowerCase(): write req.host.lower()',
  ],
  ["hasHeader('x-key')", "unknown function hasHeader(): write hasReqHeader('x-key')"],
  ["req.hasHeader('x-key')", "unknown function req.hasHeader(): write hasReqHeader('x-key')"],
  [
    "req.headers.get('x-key') == 'a'",
    "unknown function req.headers.get(): write req.headers['x-key']",
  ],
  ["req.headers.has('x-key')", "unknown function req.headers.has(): write 'x-key' in req.headers"],
  [
    "req.getHeader('x-key') == 'a'",
    "unknown function req.getHeader(): write getReqHeader('x-key')",
  ],
  [
    "req.headers['x-key'] == 'abc'",
    "== cannot compare a list(string) with a string: write 'abc' in req.headers['x-key']",
  ],
  [
    "req.headers['x-key'] != 'abc'",
    "!= cannot compare a list(string) with a string: write !('abc' in req.headers['x-key'])",
  ],
  [
    "req.headers['x-key'].contains('abc')",
    "contains() does not accept (list(string), string): write req.headers['x-key'].exists(v, v.contains('abc'))",
  ],
  [
    "req.headers['x-key'].startsWith('abc')",
    "startsWith() does not accept (list(string), string): write req.headers['x-key'].exists(v, v.startsWith('abc'))",
  ],
  [
    "req.headers['x-key'].matches('abc')",
    "matches() does not accept (list(string), string): write req.headers['x-key'].exists(v, v.matches('abc'))",
  ],
  [
    "req.headers['x-key'] in ['a','b']",
    "in cannot find a list(string) in a list(string): write req.headers['x-key'].exists(v, v in ['a', 'b'])",
  ],
  [
    "req.cookies['a'] == 'b'",
    "== cannot compare a list(cookie) with a string: write req.cookies['a'].exists(c, c.value == 'b')",
  ],
  [
    "req.cookies.a.value == 'b'",
    "a list(cookie) has no field value: write req.cookies.a.exists(c, c.value != '')",
  ],
  [
    "req.url.query_params['a'] == 'b'",
    "== cannot compare a list(string) with a string: write 'b' in req.url.query_params['a']",
  ],
  ["req.query['a'] == 'b'", 'unknown name req.query.a: did you mean req.url.query_params?'],
  ["req.query.a == 'b'", 'unknown name req.query.a: did you mean req.url.query_params?'],
  ["req.params.a == 'b'", 'unknown name req.params.a: did you mean req.url.query_params?'],
  ["req.method == 'GET' and req.host == 'a'", 'and is not an operator: did you mean &&?'],
  ["req.method == 'GET' or req.host == 'a'", 'or is not an operator: did you mean ||?'],
  ["req.method == 'GET' AND req.host == 'a'", 'AND is not an operator: did you mean &&?'],
  ["req.method = 'GET'", '= is not an operator: did you mean ==?'],
  ["req.method === 'GET'", '=== is not an operator: did you mean ==?'],
  ["req.method !== 'GET'", '!== is not an operator: did you mean !=?'],
  ["req.method == 'GET' & req.host == 'a'", '& is not an operator: did you mean &&?'],
  ["req.method == 'GET' | req.host == 'a'", '| is not an operator: did you mean ||?'],
  ["not req.host == 'a'", 'not is not an operator: did you mean !?'],
  ["!req.host == 'a'", "the operator ! does not accept (string): write req.host != 'a'"],
  ["req.host =~ '^a'", "=~ is not an operator: write req.host.matches('^a')"],
  ["req.url.path ~ '^a'", "=~ is not an operator: write req.url.path.matches('^a')"],
  [
    'req.url.path.matches(/^\\/a/)',
    "a pattern is a text in quotes, such as req.url.path.matches('^/a')",
  ],
  [
    "req.url.path.match('^/a')",
    "unknown function req.url.path.match(): write req.url.path.matches('^/a')",
  ],
  [
    "req.url.path.test('^/a')",
    "unknown function req.url.path.test(): write req.url.path.matches('^/a')",
  ],
  ['/^a/.test(req.url.path)', "a pattern is a text in quotes, such as req.url.path.matches('^/a')"],
  [
    "req.url.path.matches('(?=a)')",
    'the pattern is not a valid RE2 expression: invalid or unsupported Perl syntax: `(?=`',
  ],
  ["req.url.path.matches('[')", 'the pattern is not a valid RE2 expression: it has a [ without ]'],
  ["${req.method == 'GET'}", 'write the expression without ${ and }'],
  ["{{ req.method }} == 'GET'", 'write the expression without {{ and }}'],
  ["${{ req.method == 'GET' }}", 'write the expression without {{ and }}'],
  [
    "req.url.path.startswith('/a')",
    'unknown function req.url.path.startswith(): did you mean startsWith()?',
  ],
  [
    "req.url.path.starts_with('/a')",
    'unknown function req.url.path.starts_with(): did you mean startsWith()?',
  ],
  [
    "startsWith(req.url.path, '/a')",
    "startsWith() does not accept (string, string): write req.url.path.startsWith('/a')",
  ],
  [
    "contains(req.url.path, '/a')",
    "contains() does not accept (string, string): write req.url.path.contains('/a')",
  ],
  ['req.url.path.length() > 3', 'unknown function req.url.path.length(): write size(req.url.path)'],
  ['req.url.path.length > 3', 'a string has no field length: write size(req.url.path)'],
  ['len(req.url.path) > 3', 'unknown function len(): write size(req.url.path)'],
  ["req.method.equals('GET')", "unknown function req.method.equals(): write req.method == 'GET'"],
  ["req.method eq 'GET'", 'eq is not an operator: did you mean ==?'],
  ['req.method == GET', "unknown name GET: did you mean 'GET' in quotes?"],
  [
    "req.method in 'GET'",
    "the operator in does not accept (string, string): write req.method in ['GET']",
  ],
  ["req.method in ('GET','POST')", "a list has square brackets: write in ['a', 'b']"],
  [
    "req.content_length > '100'",
    'the operator > does not accept (int, string): write has(req.content_length) && req.content_length > 100',
  ],
  ["req.body.contains('a')", 'unknown name req.body: expressions cannot read the body'],
  ["req.body == 'a'", 'unknown name req.body: expressions cannot read the body'],
  [
    'req.headers.user_agent',
    'An expression must be true or false, not a list(string). Write size(req.headers.user_agent) > 0.',
  ],
  ["req.uri == '/a'", 'unknown name req.uri: did you mean req.url.uri?'],
  ["req.scheme == 'http'", 'unknown name req.scheme: did you mean req.url.scheme?'],
  ["req.protocol == 'https'", 'unknown name req.protocol: did you mean req.url.scheme?'],
  ["req.URL.Path == '/a'", 'a string has no field Path'],
  ["conn.country == 'DE'", 'unknown name conn.country: did you mean conn.geo.country_code?'],
  ["conn.clientIP == '1.2.3.4'", 'unknown name conn.clientIP: did you mean conn.client_ip?'],
  [
    "inCidr(conn.client_ip, '10.0.0.0/8')",
    'unknown function inCidr(): did you mean inCidrRange()?',
  ],
  ['cidr(conn.client_ip)', 'unknown function cidr(): did you mean inCidrRange()?'],
  [
    "conn.client_ip.inCidrRange('10.0.0.0/8')",
    "inCidrRange() does not accept (string, string): write inCidrRange(conn.client_ip, '10.0.0.0/8')",
  ],
  [
    "inCidrRange('10.0.0.0/8')",
    'inCidrRange() does not accept (string): it is written inCidrRange(string, string)',
  ],
  [
    'inCidrRange(conn.client_ip)',
    'inCidrRange() does not accept (string): it is written inCidrRange(string, string)',
  ],
  ['now() > 1', 'unknown function now(): write timestamp(time.now)'],
  ['time.hour > 3', 'unknown name time.hour: write timestamp(time.now).getHours()'],
  ['time.now > 3', 'the operator > does not accept (string, int)'],
  ['req.url.path == ‘/a’', '‘ is not a quote: write \' or "'],
  ['req.url.path == “/a”', '“ is not a quote: write \' or "'],
  ['req.url.path ==', 'the end is missing'],
  ["(req.url.path == '/a'", '( is not closed'],
  ["req.url.path == '/a", 'a string is not closed'],
  ["'true'", 'An expression must be true or false, not a string.'],
  ['1', 'An expression must be true or false, not an int.'],
  [
    "jwt.claims.sub == 'a'",
    'unknown name jwt.claims.sub: did you mean actions.ngrok.jwt_validation?',
  ],
  [
    "actions.ngrok.jwt_validation.claims.sub == 'a'",
    'actions.ngrok.jwt_validation.claims.sub has no value, because no jwt-validation comes before this',
  ],
  ["req.jwt.sub == 'a'", 'unknown name req.jwt.sub: did you mean actions.ngrok.jwt_validation?'],
  ["size(req.headers) > 'a'", 'the operator > does not accept (int, string)'],
  ["req.url.path[0] == '/'", 'a string has no items'],
  [
    "req.headers['x-a'] && req.host == 'a'",
    "expected a bool, found a list(string): write size(req.headers['x-a']) > 0",
  ],
  ["if req.host == 'a'", 'if is a reserved identifier'],
  ["req.host == 'a' ? true", 'a choice needs both values: condition ? a : b'],
  ["req.host <> 'a'", '<> is not an operator: did you mean !=?'],
  ["req.host == 'a' && && req.host == 'b'", '&& stands twice'],
  ['null == req.host', "== cannot compare a null_type with a string: write req.host == ''"],
  ['req.host == None', "unknown name None: a missing text is '', and a missing list has size 0"],
  [
    'req.host == undefined',
    "unknown name undefined: a missing text is '', and a missing list has size 0",
  ],
  ['req.host != null', "!= cannot compare a string with a null_type: write req.host != ''"],
  [
    "req.headers['x'] == null",
    "== cannot compare a list(string) with a null_type: write size(req.headers['x']) == 0",
  ],
  [
    "exists(req.headers['x'])",
    'exists() is no function: write it behind a list, such as [1, 2].exists(item, item > 1)',
  ],
  ["req.headers['x'] exists", "write size(req.headers['x']) > 0"],
  ["has('x')", 'has() accepts a field or a key, such as has(vars.tier).'],
  ["req.remote_addr == 'a'", 'unknown name req.remote_addr: did you mean conn.client_ip?'],
  ["req.url.path endsWith '/a'", "endsWith is a function: write req.url.path.endsWith('/a')"],
  ["http.request.method == 'GET'", 'unknown name http.request.method: did you mean req.method?'],
  [
    "env.X == 'a'",
    'unknown name env.X: there are no environment variables. Use set-vars or secrets',
  ],
  ["req.tls.sni == 'a'", 'unknown name req.tls.sni: did you mean conn.tls?'],
  ['rand() > 0.5', 'unknown function rand(): write rand.double()'],
  [
    'res.status == 200',
    'unknown name res.status: res.status_code is not available in on_http_request',
  ],
  [
    'res.status == 200',
    'unknown name res.status: did you mean res.status_code?',
    'on_http_response',
  ],
  [
    'res.statusCode == 200',
    'unknown name res.statusCode: did you mean res.status_code?',
    'on_http_response',
  ],
  [
    "req.headers('X-Key') == 'a'",
    "req.headers is a value, not a function: write 'a' in req.headers['X-Key']",
  ],
  [
    "req.headers('x-key') != 'a'",
    "req.headers is a value, not a function: write !('a' in req.headers['x-key'])",
  ],
  [
    "req.cookies('sid') == 'a'",
    "req.cookies is a value, not a function: write req.cookies['sid'].exists(c, c.value == 'a')",
  ],
  ["req.query('q') == 'a'", "unknown function req.query(): write 'a' in req.url.query_params['q']"],
  ["headers('x-key') == 'a'", "unknown function headers(): write 'a' in req.headers['x-key']"],
  ["req.method() == 'GET'", 'req.method is a value, not a function: write req.method'],
  [
    "conn.client_ip.matches('10.0.0.0/8')",
    "conn.client_ip never matches '10.0.0.0/8': the value is one address, and a range is no pattern. Write inCidrRange(conn.client_ip, '10.0.0.0/8').",
  ],
  [
    "conn.client_ip.matches('^(10.0.0.0/8|192.168.0.0/16)$')",
    "Write inCidrRanges(conn.client_ip, ['10.0.0.0/8', '192.168.0.0/16']).",
  ],
  ["req.headers['a'].any(v, v == 'b')", 'unknown function any(): did you mean exists()?'],
  [
    "req.headers['a'].some(v => v == 'b')",
    '=> is not an operator: use list.exists(v, test) or list.all(v, test)',
  ],
  [
    'time.now.getHours() < 8',
    'getHours() does not accept (string): write timestamp(time.now).getHours()',
  ],
  [
    "time.now > timestamp('2026-01-01T00:00:00Z')",
    "the operator > does not accept (string, timestamp): write timestamp(time.now) > timestamp('2026-01-01T00:00:00Z')",
  ],
  [
    "secrets.get('a/b') == 'c'",
    'secrets.get() does not accept (string): it is written secrets.get(string, string)',
  ],
  ["secrets['a'] == 'c'", "unknown name secrets.a: use secrets.get('vault', 'name')"],
  ["req.url.path.matches('(?!a)b')", '`(?!`, which has no look-around: use a second expression'],
  ["req.url.path.matches('*.php')", "`*`: '.*' stands for any text"],
  [
    "req.url.path == '/a/*'",
    "'/a/*' stands for a path with a star, not for any path. Write req.url.path.startsWith('/a/').",
  ],
  [
    "'a' in actions.ngrok.openid_connect.identity.claims.groups",
    'unknown name actions.ngrok.openid_connect.identity.claims.groups: did you mean actions.ngrok.oidc?',
  ],
  [
    "'a' in actions.ngrok.terminate_tls.client.san.dns_names",
    'actions.ngrok.terminate_tls.client.san.dns_names has no value in on_http_request: use conn.tls.client.san.dns_names',
  ],
  ['res.code == 200', 'unknown name res.code: did you mean res.status_code?', 'on_http_response'],
  [
    'response.status == 200',
    'unknown name response.status: did you mean res.status_code?',
    'on_http_response',
  ],
  [
    "res.status_code == '200'",
    '== cannot compare an int with a string: write res.status_code == 200',
    'on_http_response',
  ],
  [
    "res.headers['content-type'] == 'text/html'",
    "== cannot compare a list(string) with a string: write 'text/html' in res.headers['content-type']",
    'on_http_response',
  ],
  [
    "res.body == 'a'",
    'unknown name res.body: expressions cannot read the body',
    'on_http_response',
  ],
  [
    'resp.status_code == 200',
    'unknown name resp.status_code: did you mean res.status_code?',
    'on_http_response',
  ],
  [
    "res.status_code >= '500'",
    'the operator >= does not accept (int, string): write res.status_code >= 500',
    'on_http_response',
  ],
]

/** Documents, and the line, code and sentence of their only problem. */
const DOCUMENTS: readonly (readonly [text: string, problem: string])[] = [
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        configuration:\n          status_code: 403\n',
    '4 2204 configuration is not a field of an action. Did you mean config?',
  ],
  [
    'on_http_request:\n  - actions:\n      type: deny\n      config: {status_code: 403}\n',
    '2 2206 actions must be a list. Begin each action with a dash.',
  ],
  [
    'on_http_request:\n  - action:\n      type: deny\n',
    '2 2204 action is not a field of a rule. Did you mean actions?',
  ],
  [
    'on_http_request:\n  - actions: deny\n',
    '2 2206 actions must be a list. Write actions: [{type: deny}].',
  ],
  [
    'on_http_request:\n  - actions: [deny]\n',
    '2 2204 An action must be an object with a type. Write type: deny.',
  ],
  [
    'on_http_request:\n  actions:\n    - type: deny\n',
    '1 2204 on_http_request must be a list of rules. Begin each rule with a dash.',
  ],
  [
    "on_http_request:\n  - expression: req.method == 'GET'\n    actions:\n      - type: deny\n",
    '2 2204 expression is not a field of a rule. Did you mean expressions?',
  ],
  [
    "on_http_request:\n  - expressions: req.method == 'GET'\n    actions:\n      - type: deny\n",
    '2 2204 expressions must be a list of strings. Begin it with a dash.',
  ],
  [
    "on_http_request:\n  - condition: req.method == 'GET'\n    actions:\n      - type: deny\n",
    '2 2204 condition is not a field of a rule. Did you mean expressions?',
  ],
  [
    "on_http_request:\n  - if: req.method == 'GET'\n    actions:\n      - type: deny\n",
    '2 2204 if is not a field of a rule. Did you mean expressions?',
  ],
  [
    'on_http_request:\n  - type: deny\n',
    '2 2206 An action stands in place of a rule. Put it below actions, with a dash before type.',
  ],
  [
    'on_http_request:\n  - deny\n',
    '2 2204 A rule must be an object with actions. Write actions: [{type: deny}].',
  ],
  [
    'on_request:\n  - actions:\n      - type: deny\n',
    '1 2204 on_request is not a phase: did you mean on_http_request?',
  ],
  [
    'on_response:\n  - actions:\n      - type: add-headers\n        config: {headers: {a: b}}\n',
    '1 2204 on_response is not a phase: did you mean on_http_response?',
  ],
  [
    'onHttpRequest:\n  - actions:\n      - type: deny\n',
    '1 2204 onHttpRequest is not a phase: did you mean on_http_request?',
  ],
  [
    'on-http-request:\n  - actions:\n      - type: deny\n',
    '1 2204 on-http-request is not a phase: did you mean on_http_request?',
  ],
  [
    'On_Http_Request:\n  - actions:\n      - type: deny\n',
    '1 2204 On_Http_Request is not a phase: did you mean on_http_request?',
  ],
  [
    'http_request:\n  - actions:\n      - type: deny\n',
    '1 2204 http_request is not a phase: did you mean on_http_request?',
  ],
  [
    'on_tcp_connection:\n  - actions:\n      - type: deny\n',
    '1 2204 on_tcp_connection is not a phase: did you mean on_tcp_connect?',
  ],
  [
    'on_connect:\n  - actions:\n      - type: deny\n',
    '1 2204 on_connect is not a phase: did you mean on_tcp_connect?',
  ],
  [
    '- actions:\n    - type: deny\n',
    '1 2236 The policy is a list, not an object with phases. Begin each rule with a dash below a phase, such as on_http_request.',
  ],
  [
    '- on_http_request:\n  - actions:\n    - type: deny\n',
    '1 2236 The policy is a list, not an object with phases. Begin each rule with a dash below a phase, such as on_http_request.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: custom_response\n        config: {status_code: 200}\n',
    '3 2201 Unknown action custom_response: did you mean custom-response?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: Deny\n',
    '3 2201 Unknown action Deny: did you mean deny?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rate_limit\n        config: {name: x, algorithm: sliding_window, capacity: 1, rate: 60s, bucket_key: [conn.client_ip]}\n',
    '3 2201 Unknown action rate_limit: did you mean rate-limit?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: ratelimit\n',
    '3 2201 Unknown action ratelimit: did you mean rate-limit?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rateLimit\n',
    '3 2201 Unknown action rateLimit: did you mean rate-limit?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: add-header\n        config: {headers: {a: b}}\n',
    '3 2201 Unknown action add-header: did you mean add-headers?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: remove-header\n        config: {headers: [a]}\n',
    '3 2201 Unknown action remove-header: did you mean remove-headers?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: set-headers\n        config: {headers: {a: b}}\n',
    '3 2201 Unknown action set-headers: did you mean add-headers?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: block\n',
    '3 2201 Unknown action block: did you mean deny?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: allow\n',
    '3 2201 Unknown action allow. Requests go on unless an action ends them: deny what is not allowed.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: ip-restriction\n        config: {allow: [10.0.0.0/8]}\n',
    '3 2201 Unknown action ip-restriction: did you mean restrict-ips?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ip\n        config: {allow: [10.0.0.0/8]}\n',
    '3 2201 Unknown action restrict-ip: did you mean restrict-ips?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: oauth2\n',
    '3 2201 Unknown action oauth2: did you mean oauth?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: oidc\n',
    '3 2201 Unknown action oidc: did you mean openid-connect?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: jwt\n',
    '3 2201 Unknown action jwt: did you mean jwt-validation?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: basicauth\n',
    '3 2201 Unknown action basicauth: did you mean basic-auth?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: auth\n',
    '3 2201 Unknown action auth: did you mean basic-auth?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rewrite\n',
    '3 2201 Unknown action rewrite: did you mean url-rewrite?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: url-redirect\n',
    '3 2201 Unknown action url-redirect: did you mean redirect?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: forward\n',
    '3 2201 Unknown action forward: did you mean forward-internal?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: compress\n',
    '3 2201 Unknown action compress: did you mean compress-response?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: webhook\n',
    '3 2201 Unknown action webhook: did you mean verify-webhook?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: response\n',
    '3 2201 Unknown action response: did you mean custom-response?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http_request\n        config: {url: https://a.example}\n',
    '3 2201 Unknown action http_request: did you mean http-request?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config: {status: 403}\n',
    '4 2204 status is not a field of this action. Did you mean status_code?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config: {status_code: "403"}\n',
    '4 2204 status_code must be a number. Write 403 without quotes.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config: {status_code: forbidden}\n',
    '4 2204 status_code must be a number.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config: {status_code: 99}\n',
    '4 2215 status_code must be at least 400.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config: {body: no}\n',
    '4 2204 body is not a field of this action. Use custom-response for a body or headers.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config: {message: no}\n',
    '4 2204 message is not a field of this action. Use custom-response for a body or headers.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config: 403\n',
    '4 2204 config must be an object.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: custom-response\n        config: {status: 200, content: hi}\n',
    '4 2204 status is not a field of this action. Did you mean status_code?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: custom-response\n        config: {status_code: 200, body: {a: b}}\n',
    '4 2204 body must be text.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: custom-response\n        config: {status_code: 200, headers: [a]}\n',
    '4 2204 headers must be an object. Write name: value, without dashes.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: custom-response\n        config: {status_code: 200, headers: {"a:": b}}\n',
    '4 2208 a: is not a valid header name. Remove the colon.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: add-headers\n        config: {headers: {"x-a:": b}}\n',
    '4 2208 x-a: is not a valid header name. Remove the colon.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: add-headers\n        config: {headers: ["x-a: b"]}\n',
    '4 2204 headers must be an object. Write name: value, without dashes.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: add-headers\n        config: {x-a: b}\n',
    '4 2204 x-a is not a field of this action. Put fields of your own below headers.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: remove-headers\n        config: {headers: x-a}\n',
    '4 2204 headers must be a list. Write [x-a].',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: remove-headers\n        config: {headers: {x-a: b}}\n',
    '4 2204 headers must be a list. Begin each item with a dash.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: remove-headers\n        config: {headers: ["x-a:"]}\n',
    '4 2208 x-a: is not a valid header name. Remove the colon.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: redirect\n        config: {url: https://a.example}\n',
    '4 2204 url is not a field of this action. Did you mean to?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: redirect\n        config: {to: https://a.example, status_code: "301"}\n',
    '4 2219 status_code must be 301, 302, 303, 307 or 308. Write 301 without quotes.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: redirect\n        config: {to: https://a.example, status_code: 200}\n',
    '4 2219 status_code must be 301, 302, 303, 307 or 308.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: url-rewrite\n        config: {from: /a, to: "${req.nope}"}\n',
    '4 2224 The expression `req.nope` is not valid: unknown name req.nope (at character 1).',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rate-limit\n        config: {name: x, algorithm: sliding_window, capacity: 30, rate: 60, bucket_key: [conn.client_ip]}\n',
    '4 2204 A duration must be text such as 90s, 10m or 1h. Write 60s.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rate-limit\n        config: {name: x, algorithm: sliding_window, capacity: 30, rate: "60", bucket_key: [conn.client_ip]}\n',
    '4 2225 A duration must be text such as 90s, 10m or 1h. Write 60s.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rate-limit\n        config: {name: x, algorithm: sliding_window, capacity: 30, rate: 1 minute, bucket_key: [conn.client_ip]}\n',
    '4 2225 A duration must be text such as 90s, 10m or 1h. Write 1m.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rate-limit\n        config: {name: x, algorithm: fixed_window, capacity: 30, rate: 60s, bucket_key: [conn.client_ip]}\n',
    '4 2219 algorithm must be sliding_window.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rate-limit\n        config: {name: x, algorithm: sliding_window, capacity: 30, rate: 60s, bucket_key: ["${conn.client_ip}"]}\n',
    '4 2200 The expression `${conn.client_ip}` is not valid: write the expression without ${ and } (at character 1).',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: rate-limit\n        config: {name: x, algorithm: sliding_window, capacity: 30, rate: 60s, bucket_key: []}\n',
    '4 2223 bucket_key must have at least 1 item.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: ftp://a.example}\n',
    '4 2204 ftp://a.example is not an https: or http: URL.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: a.example}\n',
    '4 2204 a.example is not a valid URL.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: /a}\n',
    '4 2204 /a is not a valid URL.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: "${req.nope}"}\n',
    '4 2224 The expression `req.nope` is not valid: unknown name req.nope (at character 1).',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: "ftp://${req.host}/a"}\n',
    '4 2204 ftp://${req.host}/a is not an https: or http: URL. Begin it with https://.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: "${vars.x}"}\n',
    '4 2224 The expression `vars.x` is not valid: vars.x is not set by an earlier set-vars in the same phase (at character 1).',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: https://a.example, method: get}\n',
    '4 2219 method must be GET, PUT, POST, PATCH, DELETE or OPTIONS. Write GET.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: https://a.example, timeout: 5}\n',
    '4 2204 A duration must be text such as 90s, 10m or 1h. Write 5s.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: "https://a b/"}\n',
    '4 2204 https://a b/ is not a valid URL.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: "https://"}\n',
    '4 2204 https:// is not a valid URL.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: "https://${req.host/a"}\n',
    '4 2224 An interpolation is not closed. Add the closing brace.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: https://a.example, headers: [a]}\n',
    '4 2204 headers must be an object. Write name: value, without dashes.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: http-request\n        config: {url: tcp://a.internal:22}\n',
    '4 2204 tcp://a.internal:22 is not an https: or http: URL.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: forward-internal\n        config: {url: https://a.example.com}\n',
    '4 2204 Write the address of an internal endpoint: https://name.internal.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: forward-internal\n        config: {url: a.internal}\n',
    '4 2204 Write the address of an internal endpoint: https://name.internal.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: forward-internal\n        config: {target: https://a.internal}\n',
    '4 2204 target is not a field of this action. Did you mean url?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: forward-internal\n        config: {url: http://localhost:8080}\n',
    '4 2204 Write the address of an internal endpoint: https://name.internal.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: basic-auth\n        config: {credentials: "a:b"}\n',
    '4 2204 credentials must be a list. Write [a:b].',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: basic-auth\n        config: {credentials: [{user: a, password: b}]}\n',
    '4 2204 An item must be text. Write a text such as name:a long password.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: basic-auth\n        config: {credentials: ["ab"]}\n',
    '4 359 Write credentials as name:password.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: basic-auth\n        config: {credentials: ["a:short"]}\n',
    '4 360 A password must have 8 to 128 characters.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: 10.0.0.0/8}\n',
    '4 2204 allow must be a list. Write [10.0.0.0/8].',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [10.0.0.0/33]}\n',
    '4 2217 10.0.0.0/33 is not an IP address or CIDR range.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [203.0.113.7/24, 10.0.0.0/8, "2001:db8::/32", "::1"]}\n',
    '4 2217 203.0.113.7/24 is the whole range 203.0.113.0/24. For one address, write 203.0.113.7.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {enforce: "true", allow: [10.0.0.0/8]}\n',
    '4 2204 enforce must be true or false. Write true without quotes.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: log\n        config: {message: hi}\n',
    '4 2204 message is not a field of this action. Did you mean metadata?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: set-vars\n        config: {a: b}\n',
    '4 2204 a is not a field of this action. Put fields of your own below vars.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: set-vars\n        config: {vars: {a: b}}\n',
    '4 2204 vars must be a list. Begin each item with a dash.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: circuit-breaker\n        config: {error_threshold: "50%"}\n',
    '4 2204 error_threshold must be a number.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: circuit-breaker\n        config: {error_threshold: 50}\n',
    '4 2215 error_threshold must be at most 1.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: circuit-breaker\n        config: {error_threshold: 0.5, tripped_duration: 10}\n',
    '4 2204 A duration must be text such as 90s, 10m or 1h. Write 10s.',
  ],
  [
    'on_http_request:\n	- actions:\n		- type: deny\n',
    '2 2236 The policy is neither JSON nor YAML: Tabs are not allowed as indentation. Indent with spaces, not with tabs.',
  ],
  [
    'on_http_request:\n  - actions:\n    - type: deny\n	  config: {}\n',
    '4 2236 The policy is neither JSON nor YAML: Tabs are not allowed as indentation. Indent with spaces, not with tabs.',
  ],
  ['on_http_request: []\non_http_request: []\n', '2 2236 on_http_request is defined twice.'],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n    actions:\n      - type: deny\n',
    '4 2236 actions is defined twice.',
  ],
  ['{"on_http_request": [], "on_http_request": []}', '1 2236 on_http_request is defined twice.'],
  [
    'on_http_request:\n  - name: *a\n    actions:\n      - type: deny\n',
    '2 2236 *a is an alias for YAML, and no anchor &a comes before it. Put a text that begins with * in quotes.',
  ],
  [
    'on_http_request:\n  - name: @a\n    actions:\n      - type: deny\n',
    '2 2236 The policy is neither JSON nor YAML: a text without quotes cannot begin with reserved character @. Put a text that begins with this sign in quotes.',
  ],
  [
    'on_http_request:\n  - name: %a\n    actions:\n      - type: deny\n',
    '2 2236 The policy is neither JSON nor YAML: a text without quotes cannot begin with directive indicator character %. Put a text that begins with this sign in quotes.',
  ],
  [
    'on_http_request:\n  - name: `a`\n    actions:\n      - type: deny\n',
    '2 2236 The policy is neither JSON nor YAML: a text without quotes cannot begin with reserved character `. Put a text that begins with this sign in quotes.',
  ],
  [
    'on_http_request:\n  - name: a: b\n    actions:\n      - type: deny\n',
    '2 2236 The policy is neither JSON nor YAML: Nested mappings are not allowed in compact mappings. Put a text that has a colon and a blank in quotes, and check the indent.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - !(req.host == 'a')\n    actions:\n      - type: deny\n",
    '3 2204 A YAML string that starts with ! must be in quotes.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - 'a' in req.headers['x']\n    actions:\n      - type: deny\n",
    '3 2236 The policy is neither JSON nor YAML: Unexpected scalar at node end. The line begins with a quote that ends too early: put the whole text in the other kind of quotes.',
  ],
  [
    'on_http_request:\n  - expressions:\n      - "a" == req.host\n    actions:\n      - type: deny\n',
    '3 2236 The policy is neither JSON nor YAML: Unexpected scalar at node end. The line begins with a quote that ends too early: put the whole text in the other kind of quotes.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - req.host == 'a: b'\n    actions:\n      - type: deny\n",
    '3 2204 An expression must be a string. Put it in quotes.',
  ],
  [
    'on_http_request:\n  - expressions:\n      - "req.url.path.matches(\'\\d\')"\n    actions:\n      - type: deny\n',
    '3 2236 The policy is neither JSON nor YAML: Invalid escape sequence \\d. Write the text in single quotes, or double the backslash.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - [req.host == 'a']\n    actions:\n      - type: deny\n",
    '3 2204 An expression must be a string. Put it in quotes.',
  ],
  [
    'on_http_request:\n  - expressions:\n      - true\n    actions:\n      - type: deny\n',
    '3 2204 An expression must be a string. Put it in quotes.',
  ],
  [
    'on_http_request:\n  - expressions:\n      - {a: b}\n    actions:\n      - type: deny\n',
    '3 2204 An expression must be a string. Put it in quotes.',
  ],
  [
    '{"on_http_request": [{"actions": [{"type": "deny"}]} // x\n]}',
    '1 2236 The policy is neither JSON nor YAML: Unexpected scalar at node end. JSON has no comments: remove it.',
  ],
  [
    '{"on_http_request": [/* a */ {"actions": [{"type": "deny"}]}]}',
    '1 2236 The policy is neither JSON nor YAML: Missing , or : between flow sequence items. JSON has no comments: remove it.',
  ],
  [
    '{"on_http_request": [{"actions": [{"type": "deny"}]}]',
    '1 2236 The policy is neither JSON nor YAML: a } is missing at the end.',
  ],
  [
    '{"on_http_request": [{"actions": [{"type": "deny"\n',
    '1 2236 The policy is neither JSON nor YAML: a } is missing at the end.',
  ],
  [
    '{\n "on_http_request": [{"actions": [{"type": "deny"}]}\n}\n',
    '3 2236 The policy is neither JSON nor YAML: a ] is missing here.',
  ],
  [
    '{\n "on_http_request": [{"actions": [{"type": "deny"}]\n "x": 1}]}',
    '3 2236 The policy is neither JSON nor YAML: Missing , between flow map items. Look for a missing comma, quote, colon or bracket.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n       config: {}\n',
    '4 2236 The policy is neither JSON nor YAML: a line without - is indented less than the item before it. Check the indentation of this line and of the line before it.',
  ],
  [
    '{“on_http_request”: []}',
    '1 2204 “on_http_request” is not a phase: did you mean on_http_request?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: “deny”\n',
    '3 2201 Unknown action “deny”: did you mean deny?',
  ],
  [
    '"{\\"on_http_request\\": []}"',
    '1 2236 The policy is a text within quotes. Remove the quotes around it and the backslashes in it.',
  ],
  [
    '"on_http_request: []"',
    '1 2236 The policy is a text within quotes. Remove the quotes around it and the backslashes in it.',
  ],
  [
    '""',
    '1 2236 The policy is empty. Write rules below on_tcp_connect, on_http_request or on_http_response.',
  ],
  [
    '',
    '1 2236 The policy is empty. Write rules below on_tcp_connect, on_http_request or on_http_response.',
  ],
  [
    '# nothing\n',
    '1 2236 The policy is empty. Write rules below on_tcp_connect, on_http_request or on_http_response.',
  ],
  [
    'null',
    '1 2236 The policy is empty. Write rules below on_tcp_connect, on_http_request or on_http_response.',
  ],
  ['[]', '1 2236 The policy is an empty list. Write {} for a policy without rules.'],
  [
    'hello',
    '1 2236 The policy must be an object with on_tcp_connect, on_http_request, on_http_response.',
  ],
  [
    'on_http_request: deny',
    '1 2204 on_http_request must be a list of rules. Write each rule as an item below it.',
  ],
  [
    'on_http_request: {}',
    '1 2204 on_http_request must be a list of rules. Begin each rule with a dash.',
  ],
  [
    'traffic_policy:\n  on_http_request:\n    - actions:\n        - type: deny\n',
    '1 2236 The policy is inside traffic_policy. Remove the line traffic_policy and indent the rest less.',
  ],
  [
    'policy:\n  on_http_request: []\n',
    '1 2236 The policy is inside policy. Remove the line policy and indent the rest less.',
  ],
  [
    'trafficPolicy:\n  on_http_request: []\n',
    '1 2236 The policy is inside trafficPolicy. Remove the line trafficPolicy and indent the rest less.',
  ],
  [
    'traffic_policy: \'{"on_http_request":[]}\'\n',
    '1 2236 The policy is a text in traffic_policy. Save that text alone.',
  ],
  [
    'traffic_policy: |\n  on_http_request: []\n',
    '1 2236 The policy is a text in traffic_policy. Save that text alone.',
  ],
  [
    '{"traffic_policy": "{\\"on_http_request\\": []}"}',
    '1 2236 The policy is a text in traffic_policy. Save that text alone.',
  ],
  [
    'version: 3\nendpoints:\n  - name: a\n    url: https://a.example\n    traffic_policy:\n      on_http_request: []\n    upstream:\n      url: 80\n',
    '1 2236 This is the configuration of an agent, not a policy. Save the part below endpoints[0].traffic_policy as the policy.',
  ],
  [
    'version: 3\nagent:\n  authtoken: x\ntunnels:\n  a:\n    proto: http\n    addr: 80\n    traffic_policy:\n      on_http_request: []\n',
    '1 2236 This is the configuration of an agent, not a policy. Save the part below tunnels.a.traffic_policy as the policy.',
  ],
  [
    'version: 2\nauthtoken: x\ntunnels:\n  a:\n    policy:\n      inbound: []\n',
    '1 2236 This is the configuration of an agent, not a policy. Save the part below tunnels.a.policy as the policy.',
  ],
  [
    'apiVersion: ngrok.k8s.ngrok.com/v1alpha1\nkind: NgrokTrafficPolicy\nmetadata:\n  name: a\nspec:\n  policy:\n    on_http_request:\n      - actions:\n          - type: deny\n',
    '1 2236 This is a Kubernetes resource (NgrokTrafficPolicy), not a policy. Save the part below spec.policy as the policy.',
  ],
  [
    'apiVersion: v1\nkind: ConfigMap\ndata: {}\n',
    '1 2236 This is a Kubernetes resource (ConfigMap) without a policy. Save the part below spec.policy of the resource that has one.',
  ],
  [
    'apiVersion: a\nkind: NgrokTrafficPolicy\nspec:\n  policy:\n    on_http_request: []\n---\nkind: Service\n',
    '1 2236 This is a Kubernetes resource (NgrokTrafficPolicy), not a policy. Save the part below spec.policy as the policy.',
  ],
  [
    'spec:\n  policy:\n    on_http_request: []\n',
    '1 2236 The policy is below spec.policy. Save that part alone.',
  ],
  [
    'rules:\n  - actions:\n      - type: deny\n',
    '1 2204 rules is not a phase: did you mean on_http_request?',
  ],
  [
    'metadata: x\non_http_request: []\n',
    '1 2204 metadata is not part of a policy. Set it as an option of the endpoint.',
  ],
  [
    'version: 3\non_http_request: []\n',
    '1 2204 version is not a phase: use on_tcp_connect, on_http_request, on_http_response.',
  ],
  [
    'name: x\non_http_request: []\n',
    '1 2204 name is not a phase: use on_tcp_connect, on_http_request, on_http_response.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        name: x\n',
    '4 2204 name is not a field of an action. Put fields of the action below config.',
  ],
  [
    'on_http_request:\n  - actions:\n      - name: deny\n',
    '3 2204 name is not a field of an action. Did you mean type?',
  ],
  [
    'on_http_request:\n  - actions:\n      - deny:\n          status_code: 403\n',
    '3 2204 The action has no type. Write type: deny, and its fields below config.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        status_code: 403\n',
    '4 2204 status_code is not a field of an action. Put fields of the action below config.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type:\n          deny\n      - action: deny\n',
    '5 2204 action is not a field of an action. Did you mean type?',
  ],
  [
    "on_http_request:\n- expressions:\n  - req.method == 'GET'\n  - actions:\n    - type: deny\n",
    '4 2204 actions stands among the expressions. Indent it like expressions, without a dash.',
  ],
  [
    'on_http_request:\n  expressions: []\n  actions: []\n',
    '1 2204 on_http_request must be a list of rules. Begin each rule with a dash.',
  ],
  [
    '{"on_http_request": "[]"}',
    '1 2204 on_http_request must be a list of rules. Write each rule as an item below it.',
  ],
  [
    '{"on_http_request": [{"actions": "[]"}]}',
    '1 2206 actions must be a list, not text. Remove the quotes around it.',
  ],
  [
    'on_http_request:\n  - rule:\n      actions:\n        - type: deny\n',
    '2 2204 rule is not a field of a rule. Known fields: name, expressions and actions.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: custom-response\n        config: {status_code: 200, content_type: text/html, content: hi}\n',
    '4 2204 content_type is not a field of this action. Write headers: {content-type: text/html}.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: 10.0.0.0/8 192.168.0.0/16}\n',
    '4 2204 allow must be a list. Write [10.0.0.0/8, 192.168.0.0/16].',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: ["10.0.0.0/8,192.168.0.0/16"]}\n',
    '4 2217 10.0.0.0/8,192.168.0.0/16 is not an IP address or CIDR range. Write each range as an item: [10.0.0.0/8, 192.168.0.0/16].',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [10.1.*]}\n',
    '4 2217 10.1.* is not an IP address or CIDR range. Write 10.1.0.0/16.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [any]}\n',
    '4 2217 any is not an IP address or CIDR range. Write 0.0.0.0/0 and ::/0.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [10.0.0.1-10.0.0.9]}\n',
    '4 2217 10.0.0.1-10.0.0.9 is not an IP address or CIDR range. Write the range as CIDR, such as 10.0.0.0/28.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [office.example]}\n',
    '4 2217 office.example is not an IP address or CIDR range. Write its address: names are not looked up.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [{cidr: 10.0.0.0/8}]}\n',
    '4 2204 An item must be text. Write a text such as 10.0.0.0/8.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: jwt-validation\n        config: {}\n',
    '4 2204 issuer, http and jws are missing.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: jwt-validation\n        config: {issuer: https://a.example/, http: {tokens: [{type: jwt, method: header, name: a}]}, jws: {allowed_algorithms: [RS256], keys: {sources: {additional_jkus: [https://a.example/k]}}}}\n',
    '4 2204 issuer must be an object. Write {allow_list: [{value: https://a.example/}]}.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: jwt-validation\n        config: {issuer: {allow_list: [{value: https://a.example/}]}, jwks_url: https://a.example/k, http: {tokens: [{type: jwt, method: header, name: a}]}, jws: {allowed_algorithms: [RS256], keys: {sources: {additional_jkus: [https://a.example/k]}}}}\n',
    '4 2204 jwks_url is not a field of this action. Write it as jws.keys.sources.additional_jkus.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: verify-webhook\n        config: {provider: GitHub, secret: x}\n',
    '4 2256 The provider GitHub is not available: did you mean github?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: verify-webhook\n        config: {provider: stripe-connect, secret: x}\n',
    '4 2256 The provider stripe-connect is not available: use stripe, bitbucket, circleci, typeform, dropbox, frameio or one of 62 more, which "Providers of webhooks" in the docs lists.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: oauth\n        config: {provider: okta}\n',
    '4 2256 The provider okta is not available. Use one of amazon, facebook, github, gitlab, google, linkedin, microsoft, twitch, or openid-connect.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: oauth\n        config: {provider: gogle}\n',
    '4 2256 The provider gogle is not available. Did you mean google?',
  ],
  [
    'actions:\n  - type: deny\n',
    '1 2236 The policy is a single rule without a phase. Write on_http_request: above it, and begin the rule below it with a dash.',
  ],
  [
    'name: x\nexpressions: ["true"]\nactions:\n  - type: deny\n',
    '1 2236 The policy is a single rule without a phase. Write on_http_request: above it, and begin the rule below it with a dash.',
  ],
  [
    'type: deny\nconfig: {status_code: 403}\n',
    '1 2236 The policy is a single action without a rule. Write on_http_request: above it, below that - actions:, and begin the action with a dash.',
  ],
  [
    'on_http_request: []\nactions:\n  - type: deny\n',
    '2 2204 actions belongs to a rule. Indent it like the other fields of a rule, below a phase.',
  ],
  [
    'on_http_request:\n  - expressions:\n      - !("a" in req.headers)\n    actions:\n      - type: deny\n',
    '3 2236 A YAML string that starts with ! must be in quotes.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - !req.url.path.matches('[0-9]+')\n    actions:\n      - type: deny\n",
    '3 2236 A YAML string that starts with ! must be in quotes.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - !conn.client_ip.startsWith('10.') || req.host == 'a'\n    actions:\n      - type: deny\n",
    '3 2236 A YAML string that starts with ! must be in quotes.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - !inCidrRange(conn.client_ip, '10.0.0.0/8')\n    actions:\n      - type: deny\n",
    '3 2236 A YAML string that starts with ! must be in quotes.',
  ],
  [
    "on_http_request:\n  - expressions:\n      - !req.headers['x-a'].exists(v, v == 'b')\n    actions:\n      - type: deny\n",
    '3 2236 A YAML string that starts with ! must be in quotes.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: oauth\n        config: {provider: google, client_id: a, client_secret: b, allow_domains: [a.example]}\n',
    "4 2204 allow_domains is not a field of this action. Check the visitor in a rule after it, such as !actions.ngrok.oauth.identity.email.endsWith('@example.com') with deny.",
  ],
  [
    'on_http_request:\n  - actions:\n      - type: oauth\n        config: {provider: google, client_id: a, client_secret: b, scopes: openid email}\n',
    '4 2204 scopes must be a list. Write [openid, email].',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: redirect\n        config: {to: https://a.example, permanent: true}\n',
    '4 2204 permanent is not a field of this action. Write status_code: 301.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: url-rewrite\n        config: {match: /a, to: /b}\n',
    '4 2204 match is not a field of this action. Did you mean from?',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: [$MY_IP]}\n',
    '4 2217 $MY_IP is not an IP address or CIDR range. Replace the placeholder with an address.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: restrict-ips\n        config: {allow: ["${MY_IP}/32"]}\n',
    '4 2224 The expression `MY_IP` is not valid: unknown name MY_IP: there are no environment variables. Use set-vars or secrets (at character 1).',
  ],
  [
    'on_http_response:\n  - actions:\n      - type: compress-response\n        config: {algorithms: [gzip, brotli]}\n',
    '4 2219 An item must be gzip, deflate, br or compress.',
  ],
  [
    'on_http_response:\n  - actions:\n      - type: compress-response\n        config: {algorithms: [gzip, gzip]}\n',
    '4 2214 An algorithm is listed twice.',
  ],
  [
    'on_tcp_connect:\n  - actions:\n      - type: terminate-tls\n        config: {min_version: TLSv1.2}\n',
    '4 2219 min_version must be 1.2 or 1.3. Write 1.2.',
  ],
  [
    'on_tcp_connect:\n  - name: restrict-ips\n    config:\n      allow: [10.0.0.0/8]\n',
    '3 2206 config belongs to an action. Write actions: [{type: restrict-ips, config: …}].',
  ],
  [
    "on_http_request:\n  - actions:\n      - type: owasp-crs-request\n  - expressions: [actions.ngrok.owasp_crs_request.decision == 'deny']\n    actions:\n      - type: deny\n",
    '3 2256 owasp-crs-request is not available at a gateway: the rule set is too heavy for a gateway on a small machine.',
  ],
  [
    'type: cloud\nurl: https://a.example\ntraffic_policy:\n  on_http_request: []\n',
    '3 2236 This is an endpoint, not a policy. Save the part below traffic_policy as the policy.',
  ],
  [
    'apiVersion: a\nkind: NgrokTrafficPolicy\npolicy:\n  on_http_request: []\n',
    '1 2236 This is a Kubernetes resource (NgrokTrafficPolicy), not a policy. Save the part below policy as the policy.',
  ],
  [
    'apiVersion: a\nkind: CloudEndpoint\nspec:\n  trafficPolicy:\n    policy:\n      on_http_request: []\n',
    '1 2236 This is a Kubernetes resource (CloudEndpoint), not a policy. Save the part below spec.trafficPolicy.policy as the policy.',
  ],
  [
    'on_http_request:\n  {{- range .rules }}\n  - x\n',
    '2 2236 The policy is neither JSON nor YAML: Block collections are not allowed within flow collections. This line is a template: render the file first, or put the text in quotes.',
  ],
  [
    'resource "a" { traffic_policy = jsonencode({ on_http_request = [] }) }',
    '1 2236 The policy must be an object with on_tcp_connect, on_http_request, on_http_response.',
  ],
  [
    '<xml/>',
    '1 2236 The policy must be an object with on_tcp_connect, on_http_request, on_http_response.',
  ],
  [
    '#!/bin/sh\n',
    '1 2236 The policy is empty. Write rules below on_tcp_connect, on_http_request or on_http_response.',
  ],
  [
    'on_http_request:\n  - actions:\n      - type: deny\n        config:\n    - type: x\n',
    '4 2236 The policy is neither JSON nor YAML: A block sequence may not be used as an implicit map key. Put a text that has a colon and a blank in quotes, and check the indent.',
  ],
]

/** Advice that shows a part of an expression, or the shape of one. */
const IS_SHAPE =
  /\.\.\.|^(?:it behind|in \[|actions|' or|the expression|\$|\[|type)|^(?:timestamp|rand)/

/** The right form in a clause, if it is an expression. */
const adviceIn = (clause: string) => {
  const form = /(?:: |^|\. )[Ww]rite (.+?)\.?$/s.exec(clause)?.[1]
  return form === undefined || IS_SHAPE.test(form) ? undefined : form
}

describe('likely mistakes', () => {
  for (const [written, clause, phase] of EXPRESSIONS) {
    it(`in the expression ${written}`, () => {
      const [problem, ...others] = problemsOf(JSON.stringify(withExpression(written, phase)))
      expect(others).toEqual([])
      expect(problem).toContain(clause)
    })
  }

  it.each(DOCUMENTS)('in the document %j', (text, problem) => {
    expect(problemsOf(text)).toEqual([problem])
  })

  it.each([
    ['a byte order mark', '\ufeffon_http_request: []\n'],
    ['line ends of Windows', 'on_http_request:\r\n  - actions:\r\n      - type: deny\r\n'],
    ['a trailing comma', '{"on_http_request": [{"actions": [{"type": "deny"},]}]}'],
    [
      'the names of phases before 2024-10',
      'inbound:\n  - actions:\n      - type: deny\noutbound: []\n',
    ],
  ])('that do no harm are accepted: %s', (_, text) => {
    expect(problemsOf(text)).toEqual([])
  })
})

describe('advice', () => {
  const forms = EXPRESSIONS.flatMap(([, clause, phase = 'on_http_request']) => {
    const form = adviceIn(clause)
    return form === undefined ? [] : [[form, phase] as const]
  })

  it('is there for many mistakes', () => {
    expect(forms.length).toBeGreaterThan(40)
    expect(EXPRESSIONS.length + DOCUMENTS.length).toBeGreaterThan(150)
  })

  // An ordinary request has no such headers, cookies, parameters and tokens.
  it.each(forms)('can be evaluated for a bare request: %s', (form, phase) => {
    const exchange = createExchange({ status: 200 })
    expect(() => compileExpression(form, phase).evaluate(exchange)).not.toThrow()
  })
})

describe('an expression that fails', () => {
  const headers = [
    'x-n',
    'abc',
    'authorization',
    'Bearer s3cr3ts3cr3t',
    'cookie',
    'session=t0ps3cr3t',
  ]

  it.each([
    [
      "req.headers['x-key'][0] == 'a'",
      "`req.headers['x-key'][0]` failed: the request has no header x-key",
    ],
    [
      "getReqHeader('x-key')[0] == 'a'",
      "`getReqHeader('x-key')[0]` failed: the request has no header x-key",
    ],
    ["req.headers[req.headers['x-n'][0]][0] == ''", "the request has no header 'abc'"],
    ["req.cookies['sid'][0].value == 'a'", 'the request has no cookie sid'],
    ["req.url.query_params['q'][0] == 'a'", 'the request has no query parameter q'],
    [
      "req.url.path.split('/')[4] == 'a'",
      "req.url.path.split('/') has 2 items, so there is no item 4",
    ],
    ["int(req.headers['x-n'][0]) > 3", "req.headers['x-n'][0] is 'abc', not a whole number"],
    ["json.decode(req.headers['x-n'][0]).a == 1", "is not JSON: req.headers['x-n'][0] is 'abc'"],
    ["timestamp(req.headers['x-n'][0]) > conn.ts.start", "is 'abc', not a timestamp"],
    ["int(req.headers['authorization'][0]) > 3", "req.headers['authorization'][0] is [secret]"],
    ["base64.decode(req.headers['authorization'][0]) == b''", 'is [secret]'],
    ["req.headers[req.headers['authorization'][0]][0] == ''", 'has no header [secret]'],
    ['int(vars.v) == 1', 'vars.v is [secret], not a whole number'],
    ["{'a': 1}[req.headers['authorization'][0]] == 1", 'has no such key'],
    ["req.cookies['session'].map(c, int(c.value))[0] > 1", 'does not fit'],
    ['req.content_length > 5', 'there is no req.content_length. Ask has(req.content_length) first'],
    ["1 / size(req.headers['q']) > 1", 'the divisor is 0'],
  ])('names the part and its value: %s', (expression, message) => {
    const failure = () => {
      const exchange = createExchange({ headers })
      exchange.vars.set('v', 's3cr3t')
      return compileExpression(expression).evaluate(exchange)
    }
    expect(failure).toThrow(message)
    expect(failure).not.toThrow(/out of bounds|BigInt|s3cr3t/)
  })
})

describe('http-request', () => {
  it.each([
    ['ftp://${req.host}/a'],
    ['files.example/${req.host}'],
    ['ftp://files.example/a'],
    ['https://a b/'],
    ['https://${req.nope}/'],
    ['https://${req.host/'],
  ])('is refused with an address that cannot be requested: %s', (url) => {
    const rule = { actions: [{ type: 'http-request', config: { url } }] }
    expect(problemsOf(JSON.stringify({ on_http_request: [rule] }))).toHaveLength(1)
  })

  it.each([
    '${req.url}',
    'https://${req.host}/a',
    'http${req.url.scheme}://a.example',
    'HTTPS://a.example/${req.host}',
  ])('is accepted with %s', (url) => {
    const rule = { actions: [{ type: 'http-request', config: { url } }] }
    expect(problemsOf(JSON.stringify({ on_http_request: [rule] }))).toEqual([])
  })
})
