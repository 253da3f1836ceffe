import { describe, expect, it } from 'vitest'
import { checkPolicy } from '../../../src/policy/check.ts'
import { ExpressionProblem } from '../../../src/policy/expression/expression-problem.ts'
import { compileExpression, onRequest, onResponse } from '../../helpers/policy-exchange.ts'

function problemOf(source: string): ExpressionProblem {
  try {
    compileExpression(source)
  } catch (error) {
    expect(error).toBeInstanceOf(ExpressionProblem)
    return error as ExpressionProblem
  }
  throw new Error(`${source} is accepted`)
}

describe('a comparison of two types', () => {
  it.each([
    // A header is a list: the mistake that switches a deny rule off.
    ["req.headers['x-key'] == 'a'", "'a' in req.headers['x-key']"],
    ["'a' != req.headers['x-key']", "!('a' in req.headers['x-key'])"],
    ["req.headers['x-key'] in ['a', 'b']", "req.headers['x-key'].exists(v, v in ['a', 'b'])"],
    ["getReqHeader('x') == 'a'", "'a' in getReqHeader('x')"],
    ["req.headers[req.host] == 'a'", "'a' in req.headers[req.host]"],
    ["req.url.query_params.q == 'a'", "'a' in req.url.query_params.q"],
    ["req.cookies['sid'][0].value == 5", "req.cookies['sid'][0].value == '5'"],
    ["req.content_encoding == 'br'", "'br' in req.content_encoding"],
    // Numbers and texts.
    ["conn.server_port == '443'", 'conn.server_port == 443'],
    ["conn.client_port in ['443']", 'conn.client_port in [443]'],
    ["conn.client_port in ['443', '80']", 'conn.client_port in [443, 80]'],
    ["'443' in [conn.client_port]", '443 in [conn.client_port]'],
    ['req.method == 1', "req.method == '1'"],
    ['req.method in [1, 2]', "req.method in ['1', '2']"],
    ["conn.client_port == 'a'", "string(conn.client_port) == 'a'"],
    ['conn.client_port == req.host', 'string(conn.client_port) == req.host'],
    ["req.host.size() == '3'", 'req.host.size() == 3'],
    ["conn.is_secure == 'true' || true", undefined],
    ["hasReqHeader('x') == 'true'", "hasReqHeader('x') == true"],
    ['req.method == true', "req.method == 'true'"],
    // `<` compares numbers of different types, `==` does not.
    ['conn.server_port == 443.0', 'conn.server_port == 443'],
    ['conn.server_port == 443u', 'conn.server_port == 443'],
    ['conn.server_port == 1.5', 'double(conn.server_port) == 1.5'],
    ['conn.server_port in [443.0]', 'conn.server_port in [443]'],
    ['1 == 1.0', '1 == 1'],
    // Times.
    [
      "conn.ts.start == '2030-01-01T00:00:00Z'",
      "conn.ts.start == timestamp('2030-01-01T00:00:00Z')",
    ],
    ["duration('60s') == '60s'", "duration('60s') == duration('60s')"],
    ["conn.ts.start == duration('60s')", undefined],
    // What is never null.
    ["req.headers['x'] == null", "size(req.headers['x']) == 0"],
    ['null != req.headers', 'size(req.headers) != 0'],
    ['req.host == null', "req.host == ''"],
    ['conn.server_port == null', undefined],
    // Inside of lists, maps and macros.
    ["req.headers['x'] == [1]", undefined],
    ["req.headers['x'].exists(v, v == 5)", "v == '5'"],
    ['req.headers.exists(k, k == 5)', "k == '5'"],
    ["{'a': 1}.exists(k, k == 1)", "k == '1'"],
    ["{'a': 1} == {1: 1}", undefined],
    ["{'a': 1} == {'a': 'b'}", undefined],
    ["1 in {'a': 1}", undefined],
    ["[1].map(x, x * 2) == ['a'] || req.host == 5", "req.host == '5'"],
    ["type(req.host) == 'string'", undefined],
    ["req.headers == 'a'", undefined],
    ["b'a' == 'a'", undefined],
    ["getReqCookie('a') == conn.tls.client.extensions[0]", undefined],
    ["(req.host == 'a' ? req.headers['x'] : req.headers['y']) == 'a'", undefined],
  ])('is refused: %s', (source, form) => {
    const all = [problemOf(source), ...problemOf(source).further].map(({ message }) => message)
    if (form === undefined) return
    expect(all.join('\n')).toContain(`: write ${form}`)
    // The advice is worth something.
    if (!source.includes('.exists')) expect(() => compileExpression(form)).not.toThrow()
  })

  it.each([
    "req.headers['x-key'][0] == 'a'",
    "'a' in req.headers['x-key']",
    "'x-key' in req.headers",
    "req.headers['x-key'] == ['a']",
    "req.headers['x-key'] != []",
    'conn.client_port in [443, 80]',
    'conn.client_port < 443.0 && conn.client_port >= 1u',
    'dyn(conn.client_port) == 443.0',
    'conn.client_port in [443, 80.0]',
    "json.decode(req.host).a == 'a' && json.decode(req.host).a == 1",
    "json.decode(req.host) == null || json.decode(req.host).list == 'a'",
    "'a' in json.decode(req.host)",
    "json.decode(req.host) in ['a', 'b']",
    'conn.ts.start == null',
    "conn.ts.start == timestamp('2030-01-01T00:00:00Z')",
    'null == null && dyn(null) == 1',
    "[1, 'a', null].exists(x, x == 'a' || x == null)",
    "{'a': 1, 'b': 'c'}.a == 'c'",
    "{'a': 1, 2: 'c'} == {'a': 1}",
    '[] == [1] && {} == {1: 1}',
    "{1: 1} in [{'a': 1}, {2: 2}] || {'b': 1} in [{'a': 1}, {2: 2}]",
    "getReqCookie('a') == getReqCookie('b') && getReqCookie('a') != {'name': 'a'}",
    "getReqCookie('a') == null || getReqCookie('a').value == 'x'",
    'type(req.host) == string && type(1) != type(req.host)',
    "(req.host == 'a' ? 1 : 'b') == 'b'",
    "req.host.split('.') == ['a', 'b']",
    "url.parse(req.host).port == '80'",
    'lists.range(3) == [0, 1, 2]',
    "req.cookies['a'].exists_one(c, c.value == 'b')",
  ])('is accepted: %s', (source) => {
    expect(() => compileExpression(source)).not.toThrow()
  })

  it('is told with its place, by check too', () => {
    const source = "conn.client_ip != '' && req.headers['x-key'] == 'a'"
    expect(problemOf(source)).toMatchObject({
      message: "== cannot compare a list(string) with a string: write 'a' in req.headers['x-key']",
      offset: source.indexOf('=='),
    })
    expect(problemOf("conn.client_port in ['443']").message).toBe(
      'in cannot find an int in a list(string): write conn.client_port in [443]',
    )
    const check = (document: object) =>
      checkPolicy(JSON.stringify(document), { service: 'embedded' })
    expect(check(onRequest('deny', undefined, [source]))).toEqual([
      expect.objectContaining({
        pointer: '/on_http_request/0/expressions/0',
        severity: 'error',
        message: expect.stringContaining("write 'a' in req.headers['x-key']"),
      }),
    ])
    const ofStatus = onResponse('log', { metadata: { a: `\${res.status_code == '500'}` } })
    expect(check(ofStatus)[0]?.message).toContain('write res.status_code == 500')
  })
})
