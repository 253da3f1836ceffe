import * as z from 'zod'
import { CONTINUE } from '../exchange/outcome.ts'
import { toJson } from '../expression/value.ts'
import { PHASES } from '../phase.ts'
import { defineAction } from './action.ts'
import { compileValue } from './fields/value-template.ts'

/** Writes metadata into the log of the gateway. */
export const log = defineAction({
  type: 'log',
  phases: PHASES,
  config: z.strictObject({ metadata: z.record(z.string(), z.unknown()) }),
  example: { metadata: { why: 'audit' } },
  results: { metadata: 'map(dyn)' },
  build({ metadata }, context) {
    const compute = compileValue(metadata, ['metadata'], context)
    return (exchange) => {
      const value = compute(exchange)
      const fields = toJson(value) as Record<string, unknown>
      exchange.results.set('log', { metadata: value })
      exchange.logged.push(fields)
      context.log.info({ endpoint: exchange.endpoint.id, metadata: fields }, 'policy log')
      return CONTINUE
    }
  },
})
