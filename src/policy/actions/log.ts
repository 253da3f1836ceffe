import * as z from 'zod'
import { CONTINUE } from '../exchange/outcome.ts'
import type { Price } from '../expression/cost/price.ts'
import { toJson } from '../expression/value.ts'
import { PHASES } from '../phase.ts'
import { defineAction } from './action.ts'
import { compileValue } from './fields/value-template.ts'

/** Of a line in the log. */
const LOG_PRICE: Price = { call: 100, kib: 60, item: 20, isDeep: true }

/** Writes metadata into the log of the gateway. */
export const log = defineAction({
  type: 'log',
  phases: PHASES,
  config: z.strictObject({ metadata: z.record(z.string(), z.unknown()) }),
  example: { metadata: { why: 'audit' } },
  results: { metadata: 'map(dyn)' },
  neverEnds: true,
  build({ metadata }, context) {
    const compute = compileValue(metadata, ['metadata'], context)
    return (exchange) => {
      const value = compute(exchange)
      exchange.account.pay(LOG_PRICE, [value])
      const fields = toJson(value) as Record<string, unknown>
      exchange.results.set('log', { metadata: value })
      exchange.log(fields)
      context.log.info({ endpoint: exchange.endpoint.id, metadata: fields }, 'policy log')
      return CONTINUE
    }
  },
})
