import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { PolicyError } from '../../src/policy/document/problem.ts'
import type { PolicyExchange } from '../../src/policy/exchange/policy-exchange.ts'
import { MAX_STEPS } from '../../src/policy/expression/cost/account.ts'
import { type CompiledPolicy, compilePolicy } from '../../src/policy/policy.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { askedBomb, digestBomb, generateBombs } from '../helpers/policy-bombs.ts'
import { createExchange, replyOf } from '../helpers/policy-exchange.ts'
import { seeded } from '../helpers/seeded.ts'

const FIXTURES = join(import.meta.dirname, 'fixtures/valid')
const options = { clock: new ManualClock(), log: captureLog('silent').log }

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
      /^\/on_http_request\/0\/expressions\/0 .* cannot be used: it takes at least \d+ steps, and an expression may take 16384/,
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

  it('holds for 200 policies that call every function in nested macros', async () => {
    const next = seeded(20_261_122)
    const documents = generateBombs(200, (below) => Math.floor(next() * below))
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
        /^\/on_http_request The rules take at least \d+ steps, and a request has 65536 for all of them\.$/,
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
      expect.stringMatching(/it takes at least \d+ steps, and an expression may take 16384/),
    ])
  })
})
