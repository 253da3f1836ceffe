import * as z from 'zod'
import {
  badHeaderName,
  headers,
  isHeaderName,
  isHeaderValue,
  listOf,
} from '../document/read-config.ts'
import { type HeaderList, HeaderTail } from '../exchange/header-list.ts'
import { headOf, isGatewayHeader } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { HTTP_PHASES } from '../phase.ts'
import { type ActionContext, defineAction } from './action.ts'

/** Headers that an action may set. */
export const MAX_HEADERS = 10
/** Steps of one more field: every later read of the head takes longer. */
const ADD_STEPS = 20

/**
 * The `headers` of a configuration. For an exchange, they are computed to lower-case names and values in
 * turn. Names in `refused`, and names that the gateway writes, cannot be set.
 */
export function headerTemplates(
  map: Readonly<Record<string, string>>,
  refused: readonly string[],
  context: ActionContext,
): (exchange: PolicyExchange) => readonly string[] {
  const entries = Object.entries(map)
  if (entries.length > MAX_HEADERS) {
    context.problem('tooManyEntries', ['headers'], `At most ${MAX_HEADERS} headers are allowed.`)
  }
  const seen = new Set<string>()
  const fields = entries.slice(0, MAX_HEADERS).map(([name, text]) => {
    const path = ['headers', name]
    const lower = name.toLowerCase()
    if (seen.has(lower)) {
      context.problem(
        'badHeader',
        path,
        `${name} is set twice, with different upper and lower case.`,
      )
    }
    seen.add(lower)
    if (!isHeaderName(name)) {
      context.problem('badHeader', path, badHeaderName(name))
    } else if (refused.includes(lower) || isGatewayHeader(lower)) {
      context.problem('badHeader', path, `${name} cannot be set here.`)
    }
    const value = context.template(text, path)
    if (value.constant !== undefined && !isHeaderValue(value.constant)) {
      const fault = /[\r\n]/.test(value.constant)
        ? 'contains a line break'
        : 'contains a character that headers cannot have'
      context.problem('badHeader', path, `The value of ${name} ${fault}.`)
    }
    return { name: lower, value }
  })
  // As most are, and then they are the same for every exchange.
  const constant = fields.flatMap(({ name, value }) => [name, value.constant])
  if (constant.every((text) => text !== undefined)) return () => constant
  return (exchange) =>
    fields.flatMap(({ name, value }) => {
      const text = value.render(exchange)
      if (isHeaderValue(text)) return [name, text]
      throw new EvaluationError(`the value of ${name} is not a valid header value`)
    })
}

/** Appends headers to the request or the response. `host` replaces the existing value. */
export const addHeaders = defineAction({
  type: 'add-headers',
  phases: HTTP_PHASES,
  config: z.strictObject({ headers: headers(1) }),
  fields: {
    headers: `Names and values, at most ${MAX_HEADERS}. They are appended to headers of the same name; host is replaced. Values may contain expressions.`,
  },
  example: { headers: { 'x-served-by': 'the gateway' } },
  results: { headers_added: 'map(string)' },
  neverEnds: true,
  build({ headers: map }, context) {
    const fieldsFor = headerTemplates(map, ['user-agent'], context)
    let last: readonly string[] = []
    let result = resultOf(last)
    let tail: HeaderTail | undefined
    return (exchange) => {
      const { headers: list } = headOf(exchange, context.phase)
      const fields = fieldsFor(exchange)
      exchange.account.spend((ADD_STEPS * fields.length) / 2)
      // Constant values give the same list each time.
      if (fields !== last) {
        last = fields
        result = resultOf(fields)
        tail = undefined
        append(fields, list)
      } else if (tail || !result.headers_added.has('host')) {
        tail ??= new HeaderTail(fields)
        list.extend(tail)
      } else {
        append(fields, list)
      }
      exchange.results.set('add_headers', result)
      return CONTINUE
    }
  },
})

function append(fields: readonly string[], list: HeaderList): void {
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    const value = fields[at + 1] as string
    if (name === 'host') list.set(name, value)
    else list.append(name, value)
  }
}

function resultOf(fields: readonly string[]) {
  const added = new Map<string, string>()
  for (let at = 0; at < fields.length; at += 2) {
    added.set(fields[at] as string, fields[at + 1] as string)
  }
  return { headers_added: added }
}

const MAX_NAMES = 10
/** To compare a field with a name. */
const FIELD_STEPS = 1

/** Removes headers from the request, in each spelling, or from the response. */
export const removeHeaders = defineAction({
  type: 'remove-headers',
  phases: HTTP_PHASES,
  config: z.strictObject({ headers: listOf(z.string(), MAX_NAMES) }),
  fields: {
    headers:
      'Names of headers. On requests, _ and - are the same. host and user-agent cannot be removed.',
  },
  example: { headers: ['x-powered-by'] },
  results: { headers_removed: 'list(string)' },
  neverEnds: true,
  build({ headers: names }, context) {
    for (const [index, name] of names.entries()) {
      if (name.toLowerCase() === 'host') {
        const hint = 'host cannot be removed. Use add-headers to replace it.'
        context.problem('hostHeader', ['headers', index], hint)
      } else if (!isHeaderName(name)) {
        context.problem('badHeader', ['headers', index], badHeaderName(name))
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
