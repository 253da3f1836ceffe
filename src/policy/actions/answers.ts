import * as z from 'zod'
import { headers, problem } from '../document/read-config.ts'
import { CLOSE, CONTINUE, refuse, respond } from '../exchange/outcome.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { HTTP_PHASES, type Phase } from '../phase.ts'
import { defineAction, type RunningAction } from './action.ts'
import { headerTemplates, MAX_HEADERS } from './headers.ts'

/** Statuses without content in the response (RFC 9110 15.3.5, 15.3.6, 15.4.5). */
const BODILESS = new Set([204, 205, 304])

const config = z
  .strictObject({
    status_code: z.int().min(200).max(599).default(200),
    body: z.string().optional(),
    /** As documents before 2024-10 name the body. */
    content: z.string().optional(),
    headers: headers(0).default({}),
  })
  .refine(({ body, content }) => body === undefined || content === undefined, {
    path: ['content'],
    ...problem('badValue', 'content is the old name of body. Use only one of the two.'),
  })

/** Responds in place of the upstream, or replaces its response. */
export const customResponse = defineAction({
  type: 'custom-response',
  phases: HTTP_PHASES,
  config,
  fields: {
    status_code: 'Status of the answer. 204, 205 and 304 have no body.',
    body: 'Body of the answer; default: empty. May contain expressions.',
    content: 'Old name of body.',
    headers: `Names and values, at most ${MAX_HEADERS}. Without content-type, it follows from the body. Values may contain expressions.`,
  },
  example: {
    status_code: 503,
    body: 'Back in a minute.',
    headers: { 'content-type': 'text/plain' },
  },
  isTerminating: true,
  build({ status_code: status, body, content, headers: map }, context) {
    const field = content === undefined ? 'body' : 'content'
    const text = context.template(body ?? content ?? '', [field])
    if (BODILESS.has(status) && text.constant !== '') {
      context.problem(
        'bodyNotAllowed',
        [field],
        `A response with status ${status} cannot have a body.`,
      )
    }
    const fieldsFor = headerTemplates(map, [], context)
    const hasType = Object.keys(map).some((name) => name.toLowerCase() === 'content-type')
    return (exchange) => {
      const answer = text.render(exchange)
      const fields = fieldsFor(exchange)
      const needsType = !hasType && answer !== ''
      const headers = needsType ? [...fields, 'content-type', typeOf(answer)] : fields
      return respond({ status, headers, body: answer }, context.phase === 'on_http_request')
    }
  },
})

/** The media type that a body looks like. */
function typeOf(body: string): string {
  if (/^\s*<(?:!doctype html|html)/i.test(body)) return 'text/html; charset=utf-8'
  if (!/^\s*[[{]/.test(body)) return 'text/plain; charset=utf-8'
  try {
    JSON.parse(body)
    return 'application/json'
  } catch {
    return 'text/plain; charset=utf-8'
  }
}

/** Refuses: a request with an empty answer, a connection by closing it. */
export const deny = defineAction({
  type: 'deny',
  phases: ['on_tcp_connect', 'on_http_request'],
  config: z.strictObject({ status_code: z.int().min(400).max(599).default(403) }),
  fields: {
    status_code: 'Status of the empty answer. In on_tcp_connect, the connection is closed instead.',
  },
  example: { status_code: 403 },
  isTerminating: true,
  build({ status_code: status }, { phase }) {
    const outcome = phase === 'on_tcp_connect' ? CLOSE : respond({ status, headers: [], body: '' })
    return () => outcome
  },
})

/** Drops the connection without an answer. */
export const closeConnection = defineAction({
  type: 'close-connection',
  phases: ['on_tcp_connect', 'on_http_request'],
  config: z.strictObject({}),
  fields: {},
  example: {},
  isTerminating: true,
  build: () => () => CLOSE,
})

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

/** Passes a request or a connection to an internal endpoint. The policy of that endpoint runs next. */
export const forwardInternal = defineAction({
  type: 'forward-internal',
  phases: ['on_tcp_connect', 'on_http_request'],
  config: z.strictObject({
    url: z.string().min(1).max(4_096),
    binding: z.literal('internal').optional(),
    on_error: z.enum(['halt', 'continue']).default('halt'),
  }),
  fields: {
    url: 'https://name.internal, tcp://name.internal:port or tls://name.internal. May contain expressions.',
    binding: 'Kind of the endpoint. It may be left out.',
    on_error:
      'Effect when the endpoint is offline. halt: answers 404 or closes the connection; continue: later actions run.',
  },
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
