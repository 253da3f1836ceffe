import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { PolicyError } from '../../src/policy/document/problem.ts'
import type { PolicyExchange } from '../../src/policy/exchange/policy-exchange.ts'
import { MAX_STEPS } from '../../src/policy/expression/account.ts'
import { type CompiledPolicy, compilePolicy } from '../../src/policy/policy.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { askedBomb, digestBomb, generateBombs } from '../helpers/policy-bombs.ts'
import { createExchange, type ExchangeParts, replyOf } from '../helpers/policy-exchange.ts'
import { seeded } from '../helpers/seeded.ts'

const FIXTURES = join(import.meta.dirname, 'fixtures/valid')
/** Stored policies run, although some of their conditions are constant. */
const options = { clock: new ManualClock(), log: captureLog('silent').log, isStored: true }

function problemsOf(source: unknown): string[] {
  try {
    compilePolicy(source, options)
    return []
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error
    return error.problems.map(({ pointer, message }) => `${pointer} ${message}`)
  }
}

async function runAll(policy: CompiledPolicy, exchange: PolicyExchange): Promise<string> {
  const outcome = await policy.onHttpRequest(exchange)
  if (outcome.kind === 'respond') return replyOf(outcome).body
  exchange.response ??= { status: 200, headers: createExchange().request?.headers as never }
  await policy.onHttpResponse(exchange)
  return outcome.kind
}

describe('the budget of a request', () => {
  it.each(readdirSync(FIXTURES))('is far above what %s takes', async (name) => {
    const policy = compilePolicy(readFileSync(join(FIXTURES, name), 'utf8'), options)
    const exchange = createExchange({ method: 'POST', headers: ['authorization', 'Bearer x'] })
    await runAll(policy, exchange)
    expect(exchange.account.spent).toBeGreaterThanOrEqual(0)
    expect(exchange.account.spent).toBeLessThan(MAX_STEPS / 50)
  })

  it.each([4, 20])('is known to be too small for %i rules of digests', (rules) => {
    const [first, ...others] = problemsOf(digestBomb(rules))
    expect(first).toMatch(
      /^\/on_http_request\/0\/expressions\/0 .* is not valid: it takes at least \d+ steps; the limit is 16384/,
    )
    expect(others.length).toBe(99)
  })

  it('ends what only a request makes too much, whichever rule comes to it', async () => {
    const policy = compilePolicy(askedBomb(), options)
    for (const [n, isTooMuch] of [
      ['1', false],
      ['40', true],
      ['4096', true],
    ] as const) {
      const exchange = createExchange({ headers: ['x-n', n] })
      const body = await runAll(policy, exchange)
      expect([n, body]).toEqual([n, isTooMuch ? expect.stringContaining('too long') : 'continue'])
      expect(exchange.account.isOverspent).toBe(isTooMuch)
    }
  })

  it('is one for all rules, phases and connections of a request', async () => {
    const expression = "lists.range(int(req.headers['x-n'][0])).map(x, x * x * x) != []"
    const expressions = Array(4).fill(expression)
    const rule = { expressions, actions: [{ type: 'log', config: { metadata: {} } }] }
    const policy = compilePolicy({ on_http_request: [rule], on_http_response: [rule] }, options)
    const spentBy = async (phases: number, n: number) => {
      const exchange = createExchange({ headers: ['x-n', String(n)], status: 200 })
      await policy.onHttpRequest(exchange)
      if (phases === 2) await policy.onHttpResponse(exchange)
      return exchange.account
    }
    const half = (await spentBy(1, 100)).spent
    expect((await spentBy(2, 100)).spent).toBeCloseTo(2 * half, 0)
    const most = Math.floor((0.8 * MAX_STEPS * 100) / half)
    expect((await spentBy(1, most)).isOverspent).toBe(false)
    expect((await spentBy(2, most)).isOverspent).toBe(true)
  })

  it('is shared with the policy of the endpoint that a request is handed on to', async () => {
    const exchange = createExchange()
    exchange.account.spend(MAX_STEPS - 10)
    const policy = compilePolicy(
      { on_http_request: [{ expressions: ["req.method == 'GET'"], actions: [{ type: 'deny' }] }] },
      options,
    )
    expect(await runAll(policy, exchange)).toContain('takes too long for one request')
  })

  it('is counted for all that actions make of their configuration', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation of policies
    const texts = Array(100).fill('${vars.long}').join('')
    const policy = compilePolicy(
      {
        on_http_request: [
          {
            actions: [
              { type: 'set-vars', config: { vars: [{ long: 'a'.repeat(40_000) }] } },
              { type: 'custom-response', config: { body: texts } },
            ],
          },
        ],
      },
      options,
    )
    expect(await runAll(policy, createExchange())).toContain('takes too long')
  })

  it('holds for 80 policies that call every function in nested macros', async () => {
    const next = seeded(20_261_122)
    const documents = generateBombs(80, (below) => Math.floor(next() * below))
    const ends = { refused: 0, overspent: 0, ran: 0 }
    for (const document of documents) {
      const problems = problemsOf(document)
      if (problems.length > 0) {
        ends.refused += 1
        for (const problem of problems) expect(problem).toMatch(/takes? at least \d+ steps/)
        continue
      }
      const exchange = createExchange({ headers: ['x-n', '60'], status: 200 })
      const body = await runAll(compilePolicy(document, options), exchange)
      if (exchange.account.isOverspent) expect(body).toContain('takes too long')
      ends[exchange.account.isOverspent ? 'overspent' : 'ran'] += 1
    }
    expect(Math.min(ends.refused, ends.overspent, ends.ran)).toBeGreaterThan(2)
  })
})

/** What a visitor sends, or a policy computes, decides how long each of these takes. */
describe('the account of a request', () => {
  const set = (vars: object) => ({
    type: 'set-vars',
    config: { vars: Object.entries(vars).map(([name, value]) => ({ [name]: value })) },
  })
  const add = (count: number) => ({
    type: 'add-headers',
    config: {
      headers: Object.fromEntries(Array.from({ length: count }, (_, n) => [`x-${n}`, 'a'])),
    },
  })
  const a = 'a'.repeat(20_000)
  const keyed = (key: string) => ({
    type: 'rate-limit',
    config: {
      name: 'n',
      algorithm: 'sliding_window',
      capacity: 9,
      rate: '60s',
      bucket_key: [key],
    },
  })
  const fields = (count: number) => Array.from({ length: count }, (_, n) => [`x-${n}`, 'v']).flat()
  const path = `https://device.example.com/${'%41'.repeat(10_000)}`

  // biome-ignore format: a table
  const EXPRESSIONS: readonly (readonly [string, number, object?, ExchangeParts?])[] = [
    ["req.url.path != ''", 2_500, {}, { url: path }],
    ['req.headers.size() > 0', 800, {}, { headers: fields(200) }],
    ["req.content_encoding != ['x']", 7_000, {}, { headers: ['content-encoding', `a${' '.repeat(20_000)}b`] }],
    ['req.content_type.parameters.size() >= 0', 7_000, {}, { headers: ['content-type', `a/b;${'c=1;'.repeat(5_000)}`] }],
    ['vars.a.size() > 0', 1_900, { a: '\u{1f600}'.repeat(10_000) }],
    ["vars.a.split('').size() > 0", 500, { a }],
    ["vars.a.split('').size() > 0 || true", 15_000, { a: '\u0100'.repeat(20_000) }],
    ["vars.a.lastIndexOf(vars.b + 'b') < 0", 16_000, { a, b: 'a'.repeat(10_000) }],
    ["vars.a.trim() == ''", 1_000, { a: ' '.repeat(20_000) }],
    ["vars.a.replace('a', 'bcdefghijk').size() > 0", 3_500, { a }],
    ["('https://' + vars.a).isURL() || true", 59_000, { a: '\u00e9'.repeat(20_000) }],
    ["('https://' + vars.a).parseUrl().size() > 0", 20_000, { a: '\u00e9'.repeat(20_000) }],
    ['bytes(vars.a) <= bytes(vars.a)', 1_500, { a }],
    ['bytes(vars.a) == bytes(vars.a)', 1_900, { a }],
    ['vars.a < vars.a', 12, { a }],
    ["[vars.a, vars.a + 'b'].sort().size() > 0", 2_300, { a }],
    ['lists.range(2000).size() > 0 && !inCidrRanges(req.host, lists.range(2000))', 8_000],
    ["'%.2f'.format([1.5]) != ''", 2_600],
    ["'%x'.format([vars.a]) != ''", 30_000, { a }],
  ]

  it.each(
    EXPRESSIONS.map(([source, least, vars = {}, parts = {}]) => ({ source, least, vars, parts })),
  )('pays for $source at least $least steps', async ({ source, least, vars, parts }) => {
    const before = [set({ none: 0, ...vars })]
    const paid = async (expressions: readonly string[]) => {
      const rules = [{ actions: before }, { expressions, actions: [add(1)] }]
      const exchange = createExchange(parts)
      await runAll(compilePolicy({ on_http_request: rules }, options), exchange)
      return exchange.account.spent
    }
    expect((await paid([source])) - (await paid(['true']))).toBeGreaterThan(least)
  })

  // biome-ignore format: a table
  const ACTIONS: readonly (readonly [string, number, readonly object[], ExchangeParts?])[] = [
    ['a key of a limit', 5_000, [keyed("req.headers['x-k']")], { headers: ['x-k', 'k'.repeat(60_000)] }],
    ['names that are removed', 2_000, [{ type: 'remove-headers', config: { headers: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'] } }], { headers: fields(200) }],
    ['headers that are added', 200, [add(10)]],
    ['credentials', 5_000, [{ type: 'basic-auth', config: { credentials: ['a:12345678'], enforce: false } }], { headers: ['authorization', `Basic ${'YWJj'.repeat(15_000)}`] }],
    ['a signed body', 29_000, [{ type: 'verify-webhook', config: { provider: 'github', secret: 's', enforce: false } }], { method: 'POST', body: Buffer.alloc(1_000_000) }],
    ['parts of a replacement, empty ones too', 16_000, [{ type: 'url-rewrite', config: { from: '(b?)a', to: '$1'.repeat(2_000) } }], { url: `https://device.example.com/${'a'.repeat(1_000)}` }],
  ]

  it.each(ACTIONS.map(([what, least, actions, parts = {}]) => ({ what, least, actions, parts })))(
    'pays for $what at least $least steps',
    async ({ least, actions, parts }) => {
      const exchange = createExchange(parts)
      await runAll(compilePolicy({ on_http_request: [{ actions }] }, options), exchange)
      expect(exchange.account.spent).toBeGreaterThan(least)
    },
  )

  it('pays for a body once, however many tokens are looked for in it', async () => {
    const body = JSON.stringify({ id: 'x.y.z', more: 'a'.repeat(200_000) })
    const paid = async (places: number) => {
      const exchange = createExchange({
        method: 'POST',
        headers: ['content-type', 'application/json'],
        body,
      })
      const tokens = Array(places).fill({ type: 'jwt', method: 'body', name: 'ID' })
      const config = {
        issuer: { allow_list: [{ value: 'a' }] },
        http: { tokens },
        jws: {
          allowed_algorithms: ['ES256'],
          keys: { sources: { additional_jkus: ['https://keys.example/jwks.json'] } },
        },
      }
      const actions = [{ type: 'jwt-validation', config }]
      await runAll(compilePolicy({ on_http_request: [{ actions }] }, options), exchange)
      return exchange.account.spent
    }
    const one = await paid(1)
    expect(one).toBeGreaterThan(19_000)
    expect((await paid(10)) - one).toBeLessThan(15_000)
  })

  it('lets others go on between the actions of a rule', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: an interpolation of policies
    const compute = set({ v: '${lists.range(100).map(x, x * x).size()}' })
    const outcomeOf = (actions: number) =>
      compilePolicy({ on_http_request: [{ actions: Array(actions).fill(compute) }] }, options)
    expect(outcomeOf(1).onHttpRequest(createExchange())).toEqual({ kind: 'continue' })
    const exchange = createExchange()
    const outcome = outcomeOf(10).onHttpRequest(exchange)
    expect(outcome).toBeInstanceOf(Promise)
    expect(exchange.account.spent).toBeLessThan(8_000)
    expect(await outcome).toEqual({ kind: 'continue' })
    expect(exchange.account.spent).toBeGreaterThan(15_000)
  })

  it('refuses lists of IP policies that no account could pay for', () => {
    const config = { ip_policies: Array(101).fill('ipp_a') }
    const document = { on_http_request: [{ actions: [{ type: 'restrict-ips', config }] }] }
    expect(() => compilePolicy(document, { ...options, ipPolicy: () => undefined })).toThrow(
      'ip_policies must have at most 100 items',
    )
  })
})

describe('rules that cannot fit', () => {
  const costly = 'lists.range(600).map(x, x * x * x).size() == 0'
  const rule = (expressions: readonly string[], type = 'add-headers') => ({
    expressions,
    actions: [{ type, ...(type === 'deny' ? {} : { config: { headers: { 'x-a': 'b' } } }) }],
  })

  it('are refused together, where each by itself would fit', () => {
    const document = { on_http_request: Array(6).fill(rule([costly])) }
    expect(problemsOf(document)).toEqual([
      expect.stringMatching(
        /^\/on_http_request The rules take at least \d+ steps; a request is limited to 65536\.$/,
      ),
    ])
  })

  it('are not refused where the first expression of a rule may spare the rest', () => {
    const guarded = ["req.method == 'GET'", costly]
    expect(problemsOf({ on_http_request: Array(6).fill(rule(guarded)) })).toEqual([])
  })

  it('are not refused where a rule may end the phase before', () => {
    const document = { on_http_request: [rule([], 'deny'), ...Array(6).fill(rule([costly]))] }
    expect(problemsOf(document)).toEqual([])
  })

  it('are refused where one expression would hold up everybody by itself', () => {
    expect(problemsOf({ on_http_request: [rule([costly.replace('600', '900')])] })).toEqual([
      expect.stringMatching(/it takes at least \d+ steps; the limit is 16384/),
    ])
  })
})
