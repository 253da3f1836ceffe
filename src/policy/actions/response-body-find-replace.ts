import { hasWholeBody, responseOf } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import { RESPONSE_PHASE } from '../phase.ts'
import { defineAction } from './action.ts'
import {
  canDecode,
  compileReplacements,
  decodeBody,
  encodingOf,
  forgetBody,
  replacementsConfig,
  wholeBody,
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
      if (!hasWholeBody(exchange) || !canDecode(headers)) return CONTINUE
      const encoding = encodingOf(headers)
      const replace = prepare(exchange)
      forgetBody(headers)
      exchange.transformResponse(
        wholeBody(async (raw) => (await replace(await decodeBody(raw, encoding))).body),
      )
      return CONTINUE
    }
  },
})
