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
    return (exchange) => {
      const { headers: list } = headOf(exchange, context.phase)
      const added = new Map<string, string>()
      const fields = fieldsFor(exchange)
      exchange.account.spend((ADD_STEPS * fields.length) / 2)
      for (let at = 0; at < fields.length; at += 2) {
        const [name = '', value = ''] = fields.slice(at, at + 2)
        added.set(name, value)
        if (name === 'host') list.set(name, value)
        else list.append(name, value)
      }
      exchange.results.set('add_headers', { headers_added: added })
      return CONTINUE
    }
  },
})
