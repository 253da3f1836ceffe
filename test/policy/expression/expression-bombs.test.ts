import { describe, expect, it } from 'vitest'
import { MAX_STEPS } from '../../../src/policy/expression/account.ts'
import { refuseOversizeSource } from '../../../src/policy/expression/expression.ts'
import { ExpressionProblem } from '../../../src/policy/expression/expression-problem.ts'
import {
  compileExpression,
  createExchange,
  type ExchangeParts,
} from '../../helpers/policy-exchange.ts'

const LONG = 'a'.repeat(60_000)
/** As much as a request head can bring. */
const REQUEST: ExchangeParts = {
  url: `https://h/?${Array.from({ length: 5_000 }, (_, index) => `k${index}=v`).join('&')}`,
  headers: [
    ...['X-Long', LONG, 'X-Pattern', '(?:a?){80}a{80}', 'X-Words', 'ab '.repeat(20_000)],
    ...['X-Json', JSON.stringify(Array(20_000).fill(1)), 'X-Mixed', 'abba'.repeat(15_000)],
    ...['Cookie', Array.from({ length: 4_000 }, (_, index) => `c${index}=v`).join('; ')],
  ],
}

const list = (length: number) => `[${Array(length).fill('1').join(',')}]`
const long = "req.headers['x-long'][0]"

const BOMBS: readonly string[] = [
  'lists.range(10000).map(a, lists.range(10000).map(b, a * b))',
  'lists.range(10000).map(a, lists.range(10000)).flatten().size() > 0',
  'lists.range(3000).map(a, a).map(b, b).sort().distinct().size() > 0',
  'lists.range(900).all(a, lists.range(900).exists(b, b == a))',
  `${list(150)}.map(a, ${list(100)}.map(b, a + b))`,
  `${long}.replace('a', ${long}).size() > 0`,
  `${long}.replace('', ${long}).size() > 0`,
  `${long}.split('').map(c, c + c).join('').size() > 0`,
  `${long}.split('').join(${long}).size() > 0`,
  `lists.range(1000).map(n, ${long}.lowerAscii()).size() > 0`,
  `lists.range(1000).exists(n, ${long}.contains('b'))`,
  `lists.range(1000).exists(n, ${long}.sha512() == '')`,
  `lists.range(1000).exists(n, ${long}.xxhash64() == '')`,
  `lists.range(1000).exists(n, ${long}.trim().reverse().size() == n)`,
  `lists.range(1000).exists(n, '%s'.format([${long}]) == '')`,
  `lists.range(1000).exists(n, strings.quote(${long}) == '')`,
  `lists.range(1000).exists(n, timestamp(time.now).getHours('Europe/Berlin') == 99)`,
  `['UTC', 'Asia/Tokyo', 'America/Lima', 'Africa/Lagos', 'Asia/Dubai'].all(z, timestamp(time.now).getHours(z) < 24)`,
  `lists.range(1000).exists(n, inCidrRange(conn.client_ip, string(n) + '.0.0.0/8') && false)`,
  `${long}.matches('^(a+)+$') && ${long}.matches('(a|aa)+b')`,
  `${long}.matches('(?:a?){60}a{60}')`,
  `req.headers['x-mixed'][0].matches('[ab]*a[ab]{40}[xy]')`,
  `${long}.matches(req.headers['x-pattern'][0])`,
  `lists.range(1000).exists(n, 'ab'.matches('[ab]{' + string(n % 400) + '}x'))`,
  "json.decode(req.headers['x-json'][0]).map(a, a + 1.0).size() > 0",
  "lists.range(500).exists(n, json.decode(req.headers['x-json'][0]).size() == 0)",
  "lists.range(500).exists(n, 2.0 in json.decode(req.headers['x-json'][0]))",
  "req.cookies.all(c, req.cookies.exists(d, d == c + 'x'))",
  'req.url.query_params.all(k, req.url.query_params.exists(l, l == k))',
  "req.url.query_params.map(k, req.url.query_params[k][0]).join(',').size() > 0",
  "req.headers['x-words'][0].split(' ').map(w, w + 'x').distinct().size() > 0",
  "req.headers['x-words'][0].split(' ').sortBy(w, w).size() > 0",
  `${Array(40).fill(`${long}.lowerAscii()`).join(' + ')} == ''`,
  `${Array(50).fill(long).join(' + ')} == ''`,
  `(${Array(12).fill(long).join(' + ')}).md5() == ''`,
]

/** How an expression ends: before it runs, when it has spent all, or within the budget. */
function endOf(source: string): string {
  const exchange = createExchange(REQUEST)
  try {
    compileExpression(source).evaluate(exchange)
  } catch (error) {
    if (error instanceof ExpressionProblem) return error.message
    expect(error).toMatchObject({ name: 'EvaluationError' })
    if (!exchange.account.isOverspent) return (error as Error).message
    expect(error).toMatchObject({ isOverspent: true })
    return 'overspent'
  }
  expect(exchange.account.spent).toBeLessThanOrEqual(MAX_STEPS)
  return 'within the budget'
}

/** Those that are bound to fit: what they do at most is little. */
const HARMLESS = new Set([
  `${long}.matches('^(a+)+$') && ${long}.matches('(a|aa)+b')`,
  `${long}.split('').join(${long}).size() > 0`,
  `(${Array(12).fill(long).join(' + ')}).md5() == ''`,
])

describe('an expression that costs too much', () => {
  it.each(BOMBS)('is known for it, or ends when all is spent: %s', (source) => {
    const end = endOf(source)
    if (HARMLESS.has(source)) return
    expect(end).toMatch(/^it takes at least \d+ steps|^overspent$|a string that is too long/)
  })

  it('ends for good: nothing absorbs that all is spent', () => {
    const spends = `lists.range(200).all(n, ${long}.sha512() != '')`
    for (const source of [`${spends} || true`, `!(${spends} && false)`]) {
      expect(endOf(source)).toBe('overspent')
    }
    expect(endOf(`lists.range(200).exists(n, ${long}.sha512() == '') || true`)).toBe('overspent')
  })

  it('pays for errors that are absorbed', () => {
    const paid = (source: string) => {
      const exchange = createExchange(REQUEST)
      compileExpression(source).evaluate(exchange)
      return exchange.account.spent
    }
    for (const failing of [
      'x / 0 == 1',
      "dyn(x) + 'a' == dyn('b')",
      "json.decode('x' + string(x)) == 1",
    ]) {
      const calls = failing.replace('/ 0', '/ 1').replace("+ 'a'", '+ 1').replace("'x' +", "'1' +")
      const macro = (call: string) => `lists.range(100).exists(x, ${call} && false || x == -1)`
      expect(paid(macro(failing)) - paid(macro(calls))).toBeGreaterThan(30 * 100 * 0.9)
    }
  })
})

describe('a source that costs too much to read', () => {
  it.each([
    '('.repeat(4_000),
    '['.repeat(300),
    '{1:'.repeat(500),
    'f('.repeat(1_000),
    `${'['.repeat(32)}1`,
    'a?'.repeat(1_000),
    '!'.repeat(4_000),
    'a.'.repeat(2_000),
    'a||'.repeat(1_000),
    `'${'\\n'.repeat(2_000)}'`,
    `${' '.repeat(4_000)}a &`,
    `/${'/'.repeat(4_000)}`,
    `"${'\\u00e4'.repeat(600)}"`,
    Array(100).fill('[1].all(x, x > 0)').join('&&'),
    "'a'.matches('(((a{30}){30}){30})')",
    "'a'.matches('a{1000}{1000}')",
    `'a'.matches('${'(a|b)*'.repeat(150)}')`,
  ])('is refused before or while it is read: %.30s', (source) => {
    try {
      compileExpression(source)
    } catch (error) {
      expect(error).toBeInstanceOf(ExpressionProblem)
      return
    }
    // What is taken is small enough for the parser.
    expect(() => refuseOversizeSource(source)).not.toThrow()
  })

  it.each([
    ['(a long text)', `'${'a'.repeat(4_100)}'`],
    ['deep brackets', '('.repeat(33)],
    ['many tokens', `1${'+1'.repeat(301)}`],
  ])('is kept from the parser: %s', (_, source) => {
    expect(() => refuseOversizeSource(source)).toThrow(ExpressionProblem)
  })
})
