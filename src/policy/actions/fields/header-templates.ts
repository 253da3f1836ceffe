import { isHeaderName, isHeaderValue } from '../../document/config-schema.ts'
import { isGatewayHeader } from '../../exchange/message-head.ts'
import type { PolicyExchange } from '../../exchange/policy-exchange.ts'
import { EvaluationError } from '../../expression/evaluation-error.ts'
import type { ActionContext } from '../action.ts'

const MAX_HEADERS = 10
/** Of one more field: whatever looks into the head afterwards takes longer. */
export const ADD_STEPS = 20

/**
 * The `headers` of a configuration: computed for an exchange they are lower-case name and value in
 * turn. Names in `refused` cannot be set, nor those that the gateway itself writes.
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
      context.problem('badHeader', path, `${name} is not a valid header name.`)
    } else if (refused.includes(lower) || isGatewayHeader(lower)) {
      context.problem('badHeader', path, `${name} cannot be set here.`)
    }
    const value = context.template(text, path)
    if (value.constant !== undefined && !isHeaderValue(value.constant)) {
      context.problem('badHeader', path, `The value of ${name} is not a valid header value.`)
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
