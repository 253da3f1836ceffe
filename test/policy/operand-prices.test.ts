import { describe, expect, it } from 'vitest'
import { Account, MAX_EXPRESSION_STEPS } from '../../src/policy/expression/account.ts'
import { Pattern } from '../../src/policy/expression/pattern.ts'
import { compileExpression, createExchange } from '../helpers/policy-exchange.ts'

const SIZE = 4_096
const a = 'a'.repeat(SIZE)

/** What an expression pays, and whether that was more than there is. */
function paid(source: string, vars: Readonly<Record<string, unknown>> = {}, account = {}) {
  const exchange = createExchange(account)
  for (const [name, value] of Object.entries(vars)) exchange.vars.set(name, value)
  try {
    compileExpression(source, 'on_http_request', Object.keys(vars)).evaluate(exchange)
  } catch (error) {
    expect(error).toMatchObject({ name: 'EvaluationError' })
  }
  const { spent, isOverspent } = exchange.account
  return { spent, isOverspent }
}

const json = (pair: (index: number) => string) => {
  const pairs: string[] = []
  for (let length = 0; length < SIZE; length += (pairs.at(-1)?.length ?? 0) + 1) {
    pairs.push(pair(pairs.length))
  }
  return pairs.join(',')
}

describe('operands of one size that take long', () => {
  // biome-ignore format: a table
  const CASES: readonly (readonly [string, unknown, unknown, number])[] = [
    ["vars.a.md5() != ''", a, '\u3000'.repeat(SIZE), 3],
    ["vars.a.upper() != ''", a, '\u0100'.repeat(SIZE), 15],
    ["vars.a.lowerAscii() != ''", a, 'A\u0100'.repeat(SIZE / 2), 20],
    ["vars.a.contains('ab')", 'b'.repeat(SIZE), a, 100],
    ["vars.a.indexOf('ab') < 0", 'b'.repeat(SIZE), a, 100],
    ["vars.a.lastIndexOf('ab') < 0", 'b'.repeat(SIZE), a, 100],
    ["vars.a.split('ab') != []", 'b'.repeat(SIZE), a, 30],
    ["vars.a.replace('ab', 'x') != ''", 'b'.repeat(SIZE), a, 15],
    ["vars.a.trim() != 'x'", a, ' '.repeat(SIZE), 5],
    ["vars.a.escapeUrl() != ''", a, '\\'.repeat(SIZE), 3],
    ['vars.a.isURL()', `https://h/${a}`, `https://${'\u00e9'.repeat(SIZE)}`, 50],
    ['vars.a.isJson()', `"${a}"`, `{${json((n) => `"${n}":1`)}}`, 10],
    ['vars.a.isJson()', `"${a}"`, `[${json(() => '1')}]`, 5],
    ["vars.a.decodeBase64() != ''", 'YWFh'.repeat(SIZE / 4), '////'.repeat(SIZE / 4), 4],
    ["string(vars.a) != ''", Buffer.alloc(SIZE, 'a'), Buffer.alloc(SIZE, 0xc3), 5],
    ["[vars.a].join() != ''", 'a', '\u0100'.repeat(SIZE), 3],
    ["vars.a.startsWith('b') || 'b'.startsWith(vars.a)", a, a, 0],
    ["hasReqHeader(vars.a)", 'a', a, 2],
    ['5 in vars.a', new Map([['a', 1]]), new Map(Array.from({ length: SIZE }, (_, n) => [`${n}`, 1])), 50],
    ['vars.a[5] == 1', new Map([['a', 1]]), new Map(Array.from({ length: SIZE }, (_, n) => [`${n}`, 1])), 15],
  ]

  it.each(CASES.map(([source, usual, worst, times]) => ({ source, usual, worst, times })))(
    'cost more in $source',
    ({ source, usual, worst, times }) => {
      const [few, many] = [paid(source, { a: usual }).spent, paid(source, { a: worst }).spent]
      expect(many).toBeGreaterThanOrEqual(times * few)
    },
  )

  it('cost as much behind a tab, which the parser of URLs does not see', () => {
    const host = `xn--${'a'.repeat(SIZE)}`
    const [plain, behind] = [`http://${host}`, `http:/\t/${host}`].map(
      (text) => paid('vars.a.isURL()', { a: text }).spent,
    )
    expect(behind).toBeGreaterThanOrEqual((plain ?? 0) * 0.9)
  })

  it('cost as much with an exponent as with a point', () => {
    const [point, exponent] = ['%.20f', '%.20e'].map(
      (form) => paid(`'${form}'.format([vars.a]) != ''`, { a: 5e-324 }).spent,
    )
    expect(exponent).toBeGreaterThanOrEqual(point ?? Number.POSITIVE_INFINITY)
  })

  it('cost each time that cookies are looked at, which have to be compared', () => {
    const head = (count: number) => ({
      headers: Array.from({ length: count }, (_, n) => [
        'cookie',
        `c${n}=${'x'.repeat(200)}`,
      ]).flat(),
    })
    const look = (times: number, count: number) =>
      paid(`lists.range(${times}).exists(i, 'none' in req.cookies)`, {}, head(count)).spent
    const more = (count: number) => look(20, count) - look(10, count)
    expect(more(10)).toBeGreaterThan(more(1) + 10 * 9)
  })

  it('are paid for before they are read', () => {
    for (const [source, operand] of [
      ['vars.a.isJson()', `{${json((n) => `"${n}":1`).repeat(30)}}`],
      ["vars.a.contains('ab')", a.repeat(100)],
      ["vars.a.trim() == ''", ' '.repeat(1_000_000)],
      ["vars.a.xxhash64() == ''", a.repeat(100)],
    ] as const) {
      expect([source, paid(source, { a: operand })]).toEqual([
        source,
        { spent: expect.any(Number), isOverspent: true },
      ])
    }
  })

  it('include a head with many names that are equally long', () => {
    const head = (count: number) => ({
      headers: Array.from({ length: count }, (_, n) => [
        `x-${String(n).padStart(3, '0')}`,
        'v',
      ]).flat(),
    })
    const of = (count: number) => paid("hasReqHeader('x-abc')", {}, head(count)).spent
    expect(of(240) - of(0)).toBeGreaterThan(90)
  })
})

describe('a pattern that is made for a request', () => {
  it('is paid for before it is compiled, by its classes and what has another case', () => {
    const steps = (source: string) => {
      const account = new Account()
      Pattern.compile(source, account)
      return account.spent
    }
    expect(steps('abc')).toBeLessThan(100)
    expect(steps('\\pL')).toBeGreaterThan(6_000)
    expect(steps('(?i)\\pL{99}')).toBeGreaterThan(1.5 * steps('\\pL'))
    expect(steps('(?i)[\\x{100}-\\x{2000}]')).toBeGreaterThan(7_000)
    expect(steps('(?i)[\\x{100}-\\x{2000}]')).toBeGreaterThan(50 * steps('[\\x{100}-\\x{2000}]'))
    expect(() => Pattern.compile('(', new Account())).toThrow(/is not a valid RE2 expression/)
    expect(() => Pattern.compile('\\pL(', new Account(1_000))).toThrow('takes too long')
  })

  it.each(['(?i)[a-\\x{10ffff}]', '\\pL\\pM\\pN\\pP\\pS\\pZ', '(?i)[^b-\uffff]'])(
    'is refused when one would take too long: %s',
    (source) => {
      expect(() => new Pattern(source)).toThrow(/is too complex/)
    },
  )

  it('cannot be made again and again', () => {
    const source = "lists.range(99).exists(n, 'ab'.matches('(?i)\\\\pL{' + string(n + 2) + '}x'))"
    const { spent, isOverspent } = paid(source)
    expect(isOverspent).toBe(true)
    expect(spent).toBeLessThan(MAX_EXPRESSION_STEPS + 12_000)
  })

  it('of any kind can be paid for by one expression', () => {
    const dearest = `(?i)${'\\pL'.repeat(4)}[a-z]{100}`
    expect(paid(`'a'.matches('${dearest.replaceAll('\\', '\\\\')}')`).isOverspent).toBe(false)
  })
})
