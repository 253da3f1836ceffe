import { describe, expect, it } from 'vitest'
import type { Clock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/logger.ts'
import { KnownDocuments } from '../../../src/policy/document/known-documents.ts'
import { type CompiledPolicy, compilePolicy } from '../../../src/policy/policy.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { createExchange } from '../../helpers/policy-exchange.ts'

const clock: Clock = new ManualClock()
const log = createLogger('silent')

/** Admits one request of each client. */
const LIMIT = JSON.stringify({
  on_http_request: [
    {
      actions: [
        {
          type: 'rate-limit',
          config: {
            name: 'one',
            algorithm: 'sliding_window',
            capacity: 1,
            rate: '60s',
            bucket_key: ['conn.client_ip'],
          },
        },
      ],
    },
  ],
})

const compile = (text: string, documents: KnownDocuments) =>
  compilePolicy(text, { clock, log, documents })
const outcomeOf = async (policy: CompiledPolicy) =>
  (await policy.onHttpRequest(createExchange())).kind

describe('a text that many policies have', () => {
  it('is read once', () => {
    const documents = new KnownDocuments()
    compile(LIMIT, documents)
    const known = documents.find(LIMIT)
    compile(LIMIT, documents)
    expect(documents.find(LIMIT)).toBe(known)
    const [action] = known?.document.rules.on_http_request[0]?.actions ?? []
    expect(action && documents.configOf(action)?.value).toMatchObject({ capacity: 1 })
  })

  it('counts for each of them apart', async () => {
    const documents = new KnownDocuments()
    const [first, second] = [compile(LIMIT, documents), compile(LIMIT, documents)]
    expect([await outcomeOf(first), await outcomeOf(first)]).toEqual(['continue', 'respond'])
    expect([await outcomeOf(second), await outcomeOf(second)]).toEqual(['continue', 'respond'])
  })

  it('cannot be changed by what reads it', () => {
    const documents = new KnownDocuments()
    compile(LIMIT, documents)
    const [action] = documents.find(LIMIT)?.document.rules.on_http_request[0]?.actions ?? []
    const config = action && documents.configOf(action)?.value
    expect(Object.isFrozen(config)).toBe(true)
    expect(Object.isFrozen((config as { bucket_key: unknown }).bucket_key)).toBe(true)
  })

  it('is refused each time with all that is wrong', () => {
    const documents = new KnownDocuments()
    for (const text of [LIMIT.replace('60s', '61s'), LIMIT.replace('actions', 'action'), '{']) {
      const problemsOf = () => {
        try {
          compile(text, documents)
        } catch (error) {
          return (error as { problems: readonly unknown[] }).problems
        }
        throw new Error('it was compiled')
      }
      const first = problemsOf()
      expect(first.length).toBeGreaterThan(0)
      expect(problemsOf()).toEqual(first)
    }
  })

  it('makes room when there are many others, and is never kept when it is long', () => {
    const documents = new KnownDocuments()
    const empty = (n: number) => `{"on_http_request": []}${' '.repeat(n)}`
    for (let n = 0; n <= 64; n += 1) compile(empty(n), documents)
    expect(documents.find(empty(0))).toBeUndefined()
    expect(documents.find(empty(1))).toBeDefined()
    compile(empty(20_000), documents)
    expect(documents.find(empty(20_000))).toBeUndefined()
  })
})
