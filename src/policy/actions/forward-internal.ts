import * as z from 'zod'
import { CLOSE, CONTINUE, refuse } from '../exchange/outcome.ts'
import { EvaluationError } from '../expression/evaluation-error.ts'
import { defineAction } from './action.ts'

/** How often a request may be handed on before it is taken for a loop. */
const MAX_HOPS = 5
const FORM = /^(https?):\/\/((?:[a-z0-9-]+\.)+internal)(?::(\d{1,5}))?$/i

/** Hands a request to an internal endpoint, whose own policy runs next. */
export const forwardInternal = defineAction({
  type: 'forward-internal',
  phases: ['on_tcp_connect', 'on_http_request'],
  config: z.strictObject({
    url: z.string().min(1).max(4_096),
    on_error: z.enum(['halt', 'continue']).default('halt'),
  }),
  example: { url: 'https://device.internal', on_error: 'halt' },
  results: { url: 'string', 'error.code': 'string', 'error.message': 'string' },
  alwaysEnds: ({ on_error: onError }) => onError === 'halt',
  build({ url: text, on_error: onError }, context) {
    const template = context.template(text, ['url'])
    if (template.constant !== undefined && !FORM.test(template.constant)) {
      const message = 'Write the address of an internal endpoint: https://name.internal'
      context.problem('badValue', ['url'], `${message}.`)
    }
    return (exchange) => {
      const url = template.render(exchange)
      if (!FORM.test(url)) throw new EvaluationError(`${url} is not an internal endpoint`)
      const isLoop = exchange.hops >= MAX_HOPS
      if (!isLoop && context.reach.hasInternal?.(new URL(url))) return { kind: 'forward', url }
      const code = isLoop ? 'ERR_NGROK_3501' : 'ERR_NGROK_3200'
      const message = isLoop
        ? `The request was forwarded more than ${MAX_HOPS} times.`
        : `The endpoint ${url} is offline.`
      if (onError === 'continue') {
        exchange.results.set('forward_internal', { url, error: { code, message } })
        return CONTINUE
      }
      if (context.phase === 'on_tcp_connect') return CLOSE
      return refuse(isLoop ? 508 : 404, code, message)
    }
  },
})
