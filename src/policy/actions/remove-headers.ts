import * as z from 'zod'
import { isHeaderName, listOf } from '../document/config-schema.ts'
import type { HeaderList } from '../exchange/header-list.ts'
import { headOf, isGatewayHeader } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import { HTTP_PHASES } from '../phase.ts'
import { defineAction } from './action.ts'

const MAX_HEADERS = 10
/** To compare a field with a name. */
const FIELD_STEPS = 1

/** Removes headers from the request, in each spelling, or from the response. */
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
        const hint = 'host cannot be removed. Use add-headers to replace it.'
        context.problem('hostHeader', ['headers', index], hint)
      } else if (!isHeaderName(name)) {
        const sentence = `${name} is not a valid header name.`
        context.problem('badHeader', ['headers', index], sentence)
      } else if (name.toLowerCase() === 'user-agent' || isGatewayHeader(name)) {
        context.problem('badHeader', ['headers', index], `${name} cannot be removed.`)
      }
    }
    return (exchange) => {
      const { headers } = headOf(exchange, context.phase)
      exchange.account.spend(FIELD_STEPS * headers.size * names.length)
      const isRequest = context.phase === 'on_http_request'
      const removed = names
        .map((name) => name.toLowerCase())
        .filter((name) => {
          const fields = isRequest ? [name, ...lookAlikes(headers, name)] : [name]
          return fields.map((field) => headers.remove(field)).includes(true)
        })
      exchange.results.set('remove_headers', { headers_removed: removed })
      return CONTINUE
    }
  },
})

/** Fields that some services take for `name`: the variables of CGI have `_` for `-`. */
function lookAlikes(headers: HeaderList, name: string): string[] {
  const alike = name.replaceAll('_', '-')
  return Array.from(headers, ([field]) => field).filter(
    (field) => field.length === name.length && field.toLowerCase().replaceAll('_', '-') === alike,
  )
}
