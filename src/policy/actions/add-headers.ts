import * as z from 'zod'
import { headers } from '../document/config-schema.ts'
import { headOf } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import { HTTP_PHASES } from '../phase.ts'
import { defineAction } from './action.ts'
import { ADD_STEPS, headerTemplates } from './fields/header-templates.ts'

/** Appends headers to the request or the response; `host` takes the place of the one there is. */
export const addHeaders = defineAction({
  type: 'add-headers',
  phases: HTTP_PHASES,
  config: z.strictObject({ headers: headers(1) }),
  example: { headers: { 'x-served-by': 'the gateway' } },
  results: { headers_added: 'map(string)' },
  neverEnds: true,
  build({ headers: map }, context) {
    const fieldsFor = headerTemplates(map, ['user-agent'], context)
    let last: readonly string[] = []
    let result = resultOf(last)
    return (exchange) => {
      const { headers: list } = headOf(exchange, context.phase)
      const fields = fieldsFor(exchange)
      exchange.account.spend((ADD_STEPS * fields.length) / 2)
      for (let at = 0; at < fields.length; at += 2) {
        const name = fields[at] as string
        const value = fields[at + 1] as string
        if (name === 'host') list.set(name, value)
        else list.append(name, value)
      }
      // Where nothing is computed it is the same list each time.
      if (fields !== last) {
        last = fields
        result = resultOf(fields)
      }
      exchange.results.set('add_headers', result)
      return CONTINUE
    }
  },
})

function resultOf(fields: readonly string[]) {
  const added = new Map<string, string>()
  for (let at = 0; at < fields.length; at += 2) {
    added.set(fields[at] as string, fields[at + 1] as string)
  }
  return { headers_added: added }
}
