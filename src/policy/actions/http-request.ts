import * as z from 'zod'
import { durationMs, headers } from '../document/read-config.ts'
import { CONTINUE, refuse } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { aType, canBe } from '../expression/expression-type.ts'
import { type Ask, HttpAsker } from '../outbound/http-asker.ts'
import { HTTP_PHASES } from '../phase.ts'
import { type ActionContext, defineAction } from './action.ts'
import { headerTemplates, MAX_HEADERS } from './headers.ts'

const MAX_QUERY = 32
const MAX_QUERY_KEY = 128
const MAX_QUERY_VALUE = 8_192
const MAX_BODY = 65_536
/** Policies that ask each other in turn are stopped after that many. */
const MAX_DEPTH = 3

const config = z.strictObject({
  url: z.string().min(1).max(8_192),
  method: z.enum(['GET', 'PUT', 'POST', 'PATCH', 'DELETE', 'OPTIONS']).default('GET'),
  query_params: z
    .array(
      z.strictObject({
        key: z.string().min(1).max(MAX_QUERY_KEY),
        value: z.string().max(MAX_QUERY_VALUE),
      }),
    )
    .max(MAX_QUERY)
    .default([]),
  headers: headers(0).default({}),
  body: z.string().max(MAX_BODY).default(''),
  max_redirects: z.int().min(0).max(100).default(0),
  timeout: durationMs('1s', '30s').prefault('3s'),
  retry_condition: z.string().max(4_096).default('false'),
  on_error: z.enum(['continue', 'halt']).default('continue'),
})

/**
 * Sends a request to another server, so that later rules can decide by its response. A circle of policies
 * ends the request, also with `on_error: continue`: the request may protect a device, and a client that
 * causes a circle must not bypass it.
 */
export const httpRequest = defineAction({
  type: 'http-request',
  phases: HTTP_PHASES,
  config,
  fields: {
    url: 'https: or http: URL. May contain expressions. GATEWAY_OUTBOUND_ALLOW must allow hosts outside .internal.',
    method: 'Method of the request.',
    query_params: 'Parameters that are added to the URL.',
    'query_params.key': 'Name of the parameter.',
    'query_params.value': 'Value of the parameter. May contain expressions.',
    headers: `Names and values, at most ${MAX_HEADERS}. Values may contain expressions.`,
    body: 'Body of the request. May contain expressions.',
    max_redirects: 'Number of redirects to follow. 0: a redirect is the answer.',
    timeout: 'Time limit with all redirects and repetitions, 1s to 30s.',
    retry_condition:
      'Expression over attempts and last_attempt. true: repeats the request, at most three times.',
    on_error:
      'Effect when there is no answer. continue: later actions run; halt: answers 502 or 504.',
  },
  example: {
    url: 'http://192.168.1.10/allowed',
    method: 'GET',
    query_params: [{ key: 'tier', value: 'gold' }],
    headers: { accept: 'application/json' },
    body: '',
    max_redirects: 0,
    timeout: '3s',
    retry_condition: 'false',
    on_error: 'continue',
  },
  results: {
    'error.code': 'string',
    'error.message': 'string',
    attempts: 'list(attempt)',
    'req.method': 'string',
    'req.url': 'string',
    'req.header': 'map(list(string))',
    'req.body': 'string',
    'res.status_code': 'int',
    'res.header': 'map(list(string))',
    'res.body': 'string',
    'res.time_ms': 'int',
    'res.resolved_ip': 'string',
  },
  build(parts, context) {
    const prepare = compileAsk(parts, context)
    const retry = context.expression(parts.retry_condition, ['retry_condition'], {
      attempts: 'int',
      last_attempt: 'last_attempt',
    })
    if (retry && !canBe(retry.type, 'bool')) {
      const message = `A condition must be true or false, not ${aType(retry.type)}.`
      context.problem('expression', ['retry_condition'], message)
    }
    const { on_error: onError } = parts
    const asker = new HttpAsker({
      clock: context.clock,
      reach: context.reach,
      timeoutMs: parts.timeout,
      maxRedirects: parts.max_redirects,
      isRetried: (exchange) => {
        try {
          exchange.account.beginStretch()
          return retry?.isTrue(exchange) ?? false
        } catch (error) {
          // The error stays as the result. Later rules see it.
          const isOver = !(error instanceof EvaluationError) || error.isOverspent
          if (!isOver && onError === 'continue') return false
          throw error
        }
      },
    })
    return async (exchange) => {
      if (exchange.askDepth >= MAX_DEPTH) return inCircle()
      const answer = await asker.ask(prepare(exchange), exchange)
      exchange.results.set('http_request', answer)
      const { code, message } = answer.error
      if (code === '' || onError === 'continue') return CONTINUE
      return refuse(code === 'ERR_NGROK_3602' ? 504 : 502, code, message)
    }
  },
})

const inCircle = () =>
  refuse(508, 'ERR_NGROK_3603', `Policies called each other more than ${MAX_DEPTH} times in a row.`)

/** Whether a URL with this start can be requested. An interpolation follows the start. */
const canBeHttp = (start: string) =>
  /^\s*https?:\/\//i.test(start) ||
  ['http://', 'https://'].some((scheme) => scheme.startsWith(start.trim().toLowerCase()))

function compileAsk(
  parts: z.output<typeof config>,
  context: ActionContext,
): (exchange: PolicyExchange) => Ask {
  const url = context.template(parts.url, ['url'])
  const body = context.template(parts.body, ['body'])
  const fieldsFor = headerTemplates(parts.headers, [], context)
  const query = parts.query_params.map(({ key, value }, index) => ({
    key,
    value: context.template(value, ['query_params', index, 'value']),
  }))
  if (url.constant !== undefined && !URL.canParse(url.constant)) {
    context.problem('badValue', ['url'], `${url.constant} is not a valid URL.`)
  } else if (url.constant !== undefined && !/^\s*https?:/i.test(url.constant)) {
    const message = `${url.constant} is not an https: or http: URL.`
    context.problem('badValue', ['url'], message, { isOnlyForNew: true })
  } else if (url.constant === undefined && url.start !== undefined && !canBeHttp(url.start)) {
    const message = `${parts.url} is not an https: or http: URL. Begin it with https://.`
    context.problem('badValue', ['url'], message, { isOnlyForNew: true })
  }
  return (exchange) => {
    const fields: Record<string, string> = {
      'user-agent': 'device-agent-gateway',
    }
    const list = fieldsFor(exchange)
    for (let at = 0; at < list.length; at += 2) fields[list[at] ?? ''] = list[at + 1] ?? ''
    return {
      url: url.render(exchange),
      query: query.map(({ key, value }) => [key, value.render(exchange)] as const),
      method: parts.method,
      headers: fields,
      body: body.render(exchange),
    }
  }
}
