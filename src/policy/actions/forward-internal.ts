import * as z from 'zod'
import { CLOSE, CONTINUE, refuse } from '../exchange/outcome.ts'
import { EvaluationError } from '../expression/evaluation-error.ts'
import type { Phase } from '../phase.ts'
import { defineAction, type RunningAction } from './action.ts'

/** How often a request may be handed on before it is taken for a loop. */
const MAX_HOPS = 5
const FORM =
  /^(?:(?:https?|tls):\/\/(?:[a-z0-9-]+\.)+internal(?::\d{1,5})?|tcp:\/\/(?:[a-z0-9-]+\.)+internal:\d{1,5})$/i
const OF_REQUESTS = /^https?:/i
const ADVICE: Readonly<Record<Phase, string>> = {
  on_tcp_connect:
    'Write the address of an internal endpoint: tcp://name.internal:port or tls://name.internal for a TCP or TLS endpoint, https://name.internal for an HTTP one',
  on_http_request: 'Write the address of an internal endpoint: https://name.internal',
  on_http_response: '',
}

/** Hands a request, or a connection, to an internal endpoint, whose own policy runs next. */
export const forwardInternal = defineAction({
  type: 'forward-internal',
  phases: ['on_tcp_connect', 'on_http_request'],
  config: z.strictObject({
    url: z.string().min(1).max(4_096),
    binding: z.literal('internal').optional(),
    on_error: z.enum(['halt', 'continue']).default('halt'),
  }),
  example: { url: 'https://device.internal', binding: 'internal', on_error: 'halt' },
  results: { url: 'string', 'error.code': 'string', 'error.message': 'string' },
  alwaysEnds: ({ on_error: onError }) => onError === 'halt',
  build({ url: text, on_error: onError }, context) {
    const template = context.template(text, ['url'])
    const isPossible = (url: string) =>
      FORM.test(url) && (context.phase === 'on_tcp_connect' || OF_REQUESTS.test(url))
    if (template.constant !== undefined && !isPossible(template.constant)) {
      context.problem('badValue', ['url'], `${ADVICE[context.phase]}.`)
    }
    const run: RunningAction = (exchange) => {
      const url = template.render(exchange)
      if (!FORM.test(url)) throw new EvaluationError(`${url} is not an internal endpoint`)
      const { protocol } = exchange.endpoint
      if (OF_REQUESTS.test(url) !== (protocol === 'http' || protocol === 'https')) {
        throw new EvaluationError(`${protocol} traffic cannot be forwarded to ${url}`)
      }
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
    return Object.assign(run, { forwardsTo: template.constant })
  },
})
