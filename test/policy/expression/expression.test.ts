// biome-ignore-all lint/suspicious/noTemplateCurlyInString: what interpolations look like
import { describe, expect, it } from 'vitest'
import {
  EvaluationError,
  ExpressionProblem,
} from '../../../src/policy/expression/expression-problem.ts'

import { pathOf } from '../../../src/policy/expression/expression-tree.ts'
import { compileExpression, createExchange, evaluate } from '../../helpers/policy-exchange.ts'

describe('an expression', () => {
  it.each([
    ["req.method == 'GET' && conn.client_ip.startsWith('203.')", true],
    ["req.method == 'GET' ? 'read' : 'write'", 'read'],
    ["[1, 2][1] == 2 && {'a': 1}['a'] == 1 && {'a': 1}.a == 1", true],
    ['1 + 2 * 3 - 4 / 2 % 3', 5],
    ['-(1) < 0 && !(1 > 2)', true],
    ["'a' + 'b' == 'ab' && b'a' + b'b' == b'ab'", true],
    ["r'\\d' == '\\\\d' && '''x''' == 'x'", true],
    ['dyn(1) == 1.0 && 1u == dyn(1)', true],
    ['null == null', true],
  ])('%s comes to %j', (source, value) => {
    expect(evaluate(source)).toEqual(value)
  })

  it('absorbs errors on the side that does not decide', () => {
    expect(evaluate("req.method == 'GET' || req.content_length > 5")).toBe(true)
    expect(evaluate("req.content_length > 5 || req.method == 'GET'")).toBe(true)
    expect(evaluate("req.method == 'PUT' && req.content_length > 5")).toBe(false)
    expect(() => evaluate("req.method == 'PUT' || req.content_length > 5")).toThrow(EvaluationError)
  })

  it.each([
    ["req.headers['x'][0] == 'a'", 'the request has no header x'],
    ['int(req.method) == 1', "req.method is 'GET', not a whole number"],
    ['{"a": 1}[req.method]', 'no such key'],
    ["json.decode(req.method) == ''", 'not JSON'],
    ['1 / size(req.url.query) > 0', 'divisor is 0'],
    ["''.matches(req.headers['x-pattern'][0])", 'is not a valid RE2 expression'],
  ])('fails with an error, never with false: %s', (source, message) => {
    const exchange = createExchange({ headers: ['X-Pattern', '('] })
    expect(() => compileExpression(source).evaluate(exchange)).toThrow(
      expect.objectContaining({
        name: 'EvaluationError',
        message: expect.stringContaining(message),
      }),
    )
  })

  it('fails when a condition is no boolean', () => {
    const condition = compileExpression("json.decode('1')")
    expect(() => condition.isTrue(createExchange())).toThrow('not a boolean')
  })

  it('keeps the tree, so that others can know a faster way', () => {
    expect(pathOf(compileExpression('conn.client_ip').form)).toBe('conn.client_ip')
  })

  it('is planned once, however many policies have it', () => {
    const source = "req.headers['x-once'][0] == 'a'"
    const [first, second] = [compileExpression(source), compileExpression(source)]
    expect(second.form).toBe(first.form)
    expect(second.prepare).toBe(first.prepare)
    expect(second).not.toBe(first)
    expect(first.isTrue(createExchange({ headers: ['X-Once', 'a'] }))).toBe(true)
    expect(second.isTrue(createExchange({ headers: ['X-Once', 'b'] }))).toBe(false)
  })

  it('is judged by where it stands, although it was compiled elsewhere', () => {
    expect(compileExpression('res.status_code == 200', 'on_http_response').type.name).toBe('bool')
    expect(() => compileExpression('res.status_code == 200', 'on_http_request')).toThrow(
      ExpressionProblem,
    )
    expect(compileExpression('res.status_code == 200', 'on_http_response').type.name).toBe('bool')
  })

  it('cannot reach what JavaScript objects inherit', () => {
    for (const name of ['constructor', '__proto__', 'toString', 'exchange']) {
      expect(() => compileExpression(name)).toThrow(`unknown name ${name}`)
    }
    expect(() => evaluate("json.decode('{}').constructor")).toThrow('does not fit')
    expect(() => evaluate("vars['__proto__']", { vars: { __proto__: 1 } })).toThrow()
  })
})

describe('a check', () => {
  it.each([
    ['', 'it is empty', 0],
    ['  ', 'it is empty', 0],
    ['1 +', 'the end is missing', 2],
    ["req.method == 'GET' &&", 'the end is missing', 20],
    ['!', 'the end is missing', 1],
    ['${req.host} == "a"', 'write the expression without ${ and }', 0],
    ["req.method = 'GET'", '= is not an operator: did you mean ==?', 11],
    ["req.method === 'GET'", '=== is not an operator: did you mean ==?', 11],
    ["req.method <> 'GET'", '<> is not an operator: did you mean !=?', 11],
    ['true and false', 'and is not an operator: did you mean &&?', 5],
    ['true OR false', 'OR is not an operator: did you mean ||?', 5],
    ['true & false', '& is not an operator: did you mean &&?', 5],
    ['true | false', '| is not an operator: did you mean ||?', 5],
    ['not true', 'not is not an operator: did you mean !?', 4],
    ["req.host.startsWith('a)", 'a string is not closed', 20],
    ['req.host == "it', 'a string is not closed', 12],
    ['(req.host == "a"', '( is not closed', 0],
    ["req.host in ['a'", '[ is not closed', 12],
    ['req.host == "a")', ') has no matching bracket', 15],
    ['[1, 2) == []', ') has no matching bracket', 5],
    ["req.host == 'it's'", 'a string is not closed', 17],
    ["1 == 1 // it's (\n 2", 'unexpected `2`', 18],
    ['req.host 5', 'unexpected `5`', 9],
    ['if == 1', 'if is a reserved identifier', 0],
    ['req.method + 1', 'the operator + does not accept (string, int)', 11],
    ["res.status_code < '200'", 'in on_http_request', undefined],
    ['size(req.url.port)', 'size() does not accept (int)', 0],
    ['1 in req.headers', 'in req.headers does not accept (int)', undefined],
    ['req.headers[1] == []', 'req.headers[] does not accept (int)', undefined],
    ['req.method.nope', 'a string has no field nope', 10],
    ["req.headers['x'][0] + 1", 'does not accept (string, int)', undefined],
    ["req.headers['x']['y']", 'a list(string) has no field y', undefined],
    ['req.method[0]', 'a string has no items', undefined],
    ['req.method.all(x, true)', 'a string has no items', undefined],
    ['req.headers.map(k, k + 1).size() > 0', 'does not accept (string, int)', undefined],
    [
      'json.decode(req.host).map(k, k + 1).size() > 0 && !req.method',
      'the operator ! does not accept (string)',
      undefined,
    ],
    ["req.method || req.host == 'h'", 'expected a bool, found a string', undefined],
    ['req.method ? 1 : 2', 'expected a bool, found a string', undefined],
    ['foo(1)', 'unknown function foo()', undefined],
    ['req.host.includes("x")', 'unknown function req.host.includes()', undefined],
    ['req.host.starts_with("x")', 'unknown function', undefined],
    ['startsWith(req.host, "x")', 'does not accept', undefined],
    ['1 / 0', 'the divisor is 0', undefined],
    ["'a'.matches('(')", 'is not a valid RE2 expression', undefined],
    ["req.host.matches('(')", 'the pattern is not a valid RE2 expression', undefined],
    ["matches(req.host, '[')", 'the pattern is not a valid RE2 expression', undefined],
    ["timestamp(time.now).getHours('Mars/Base') > 1", 'Mars/Base is not a time zone', undefined],
    ["req.host.sha256('octal')", "'hex' or 'base64'", undefined],
    ["'%z'.format([req.host])", 'format() has no clause %z', undefined],
    ["'%'.format([req.host])", 'format() has no clause %', undefined],
    ["'%s %.2f%%'.format([req.host])", 'format() has 2 clauses for 1 values', undefined],
    ["timestamp('yesterday') < timestamp(time.now)", "'yesterday' is not a timestamp", undefined],
    ["duration('90 s') > duration('1s')", 'duration', undefined],
    ['has(req)', 'has() accepts a field', undefined],
    ['google.protobuf.Int32Value{value: 1}', 'message construction is not supported', undefined],
    ['[1].map(req, req)', 'req cannot be used as a macro variable', undefined],
    ['"\\ud800"', 'surrogate', undefined],
  ])('refuses %j: %s', (source, message, offset) => {
    let problem: unknown
    try {
      compileExpression(source)
    } catch (error) {
      problem = error
    }
    expect(problem).toBeInstanceOf(ExpressionProblem)
    expect(problem).toMatchObject({
      message: expect.stringContaining(message),
      ...(offset !== undefined && { offset }),
    })
  })

  it('finds the place of a problem on a later line', () => {
    const source = "req.method == 'GET' &&\n  req.nope == 'x'"
    expect(() => compileExpression(source)).toThrow(expect.objectContaining({ offset: 25 }))
  })

  it.each([
    "req.headers['x'][0] + 'suffix'",
    'json.decode(req.method).a.b[0] > 1',
    "[1, 'a', null].exists(x, x == 1)",
    'req.url.query_params.exists(k, req.url.query_params[k].size() > 1)',
    '(req.method == "GET" ? 1 : "a") == 1',
    'type(req.method) == string',
  ])('lets pass what may succeed: %s', (source) => {
    expect(() => compileExpression(source)).not.toThrow()
  })
})

describe('limits of expressions', () => {
  it.each([
    [`${"'".padEnd(4_096, 'x')}'`, 'more than 4096 characters'],
    [Array(601).fill('1').join('+'), 'more than 600 tokens'],
    [`${'('.repeat(33)}1${')'.repeat(33)}`, 'brackets are nested more than 32 levels deep'],
    [`[${Array(20).fill('1').join(',')}].map(x, ${Array(100).fill('x').join(' + ')})`, undefined],
    ['[1].map(a, [1].map(b, [1].map(c, c)))', 'macros are nested more than 2 levels deep'],
  ])('%.20s…: %s', (source, message) => {
    if (message) expect(() => compileExpression(source)).toThrow(message)
    else expect(() => compileExpression(source)).not.toThrow()
  })

  it('count what macros are written out to', () => {
    const source = Array(70).fill('[1].exists(x, x == 1)').join(' || ').slice(0, 4_000)
    expect(() => compileExpression(source.slice(0, source.lastIndexOf(' ||')))).toThrow(
      /more than 600 (tokens|parts)/,
    )
  })
})
