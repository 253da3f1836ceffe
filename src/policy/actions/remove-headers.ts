import * as z from 'zod'
import { isHeaderName, listOf } from '../document/config-schema.ts'
import { headOf, isGatewayHeader } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import { HTTP_PHASES } from '../phase.ts'
import { defineAction } from './action.ts'

const MAX_HEADERS = 10
/** To compare a field with a name. */
const FIELD_STEPS = 1

/** Removes headers from the request or the response. */
export const removeHeaders = defineAction({
  type: 'remove-headers',
  phases: HTTP_PHASES,
  config: z.strictObject({ headers: listOf(z.string(), MAX_HEADERS) }),
  example: { headers: ['x-powered-by'] },
  results: { headers_removed: 'list(string)' },
  neverEnds: true,
  build({ headers: names }, context) {
    for (const [index, name] of names.entries()) {
      if (name.toLowerCase() === 'host') {
        const hint = 'host cannot be removed: add-headers with host replaces it.'
        context.problem('hostHeader', ['headers', index], hint)
      } else if (!isHeaderName(name)) {
        const sentence = `${name} is no name of a header.`
        context.problem('badHeader', ['headers', index], sentence)
      } else if (name.toLowerCase() === 'user-agent' || isGatewayHeader(name)) {
        context.problem('badHeader', ['headers', index], `${name} cannot be removed.`)
      }
    }
    return (exchange) => {
      const { headers } = headOf(exchange, context.phase)
      exchange.account.spend(FIELD_STEPS * headers.size * names.length)
      const removed = names.filter((name) => headers.remove(name))
      const lower = removed.map((name) => name.toLowerCase())
      exchange.results.set('remove_headers', { headers_removed: lower })
      return CONTINUE
    }
  },
})
