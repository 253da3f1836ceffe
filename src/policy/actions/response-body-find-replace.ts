import { hasWholeBody, responseOf } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import { RESPONSE_PHASE } from '../phase.ts'
import { defineAction } from './action.ts'
import {
  changedBody,
  compileReplacements,
  decodedBody,
  encodingOf,
  forgetBody,
  isText,
  replacementsConfig,
} from './fields/body-replace.ts'

/** Replaces in the body of a response. It has no results: the body comes after all rules ran. */
export const responseBodyFindReplace = defineAction({
  type: 'response-body-find-replace',
  phases: RESPONSE_PHASE,
  config: replacementsConfig,
  example: { replacements: [{ from: 'http://', to: 'https://' }] },
  neverEnds: true,
  build({ replacements }, context) {
    const prepare = compileReplacements(replacements, context)
    return (exchange) => {
      const { headers } = responseOf(exchange)
      if (!hasWholeBody(exchange) || !isText(headers)) return CONTINUE
      const replace = prepare(exchange)
      const decoded = decodedBody(encodingOf(headers))
      forgetBody(headers)
      if (decoded) exchange.transformResponse(decoded)
      exchange.transformResponse(
        changedBody(async (body) => (await replace(body)).body, context.clock),
      )
      return CONTINUE
    }
  },
})
