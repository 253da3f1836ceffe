import { requestOf } from '../exchange/message-head.ts'
import { CONTINUE, respond } from '../exchange/outcome.ts'
import { MAX_REPLACED_BODY } from '../rewriting/rewrite-text.ts'
import { defineAction } from './action.ts'
import {
  compileReplacements,
  decodeBody,
  encodingOf,
  forgetBody,
  isText,
  replacementsConfig,
  wholeBody,
} from './fields/body-replace.ts'

/** Replaces in the body of a request before it goes upstream. */
export const requestBodyFindReplace = defineAction({
  type: 'request-body-find-replace',
  phases: ['on_http_request'],
  config: replacementsConfig,
  example: { replacements: [{ from: 'secret-[0-9]+', to: '[hidden]' }] },
  results: { replacements: 'list(replacement)' },
  neverEnds: true,
  build({ replacements }, context) {
    const prepare = compileReplacements(replacements, context)
    return async (exchange) => {
      const request = requestOf(exchange)
      const { headers } = request
      const encoding = encodingOf(headers)
      exchange.results.set('request_body_find_replace', { replacements: [] })
      if (!isText(headers)) return CONTINUE
      const raw = await request.readBody(MAX_REPLACED_BODY)
      if (!raw) return respond({ status: 413, headers: [], body: '' })
      if (raw.length === 0) return CONTINUE
      const replace = prepare(exchange)
      const { body, results } = await replace(await decodeBody(raw, encoding))
      exchange.results.set('request_body_find_replace', { replacements: results })
      if (results.length > 0) {
        forgetBody(headers)
        exchange.transformRequest(wholeBody(() => body))
      }
      return CONTINUE
    }
  },
})
