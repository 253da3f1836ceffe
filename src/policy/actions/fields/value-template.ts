import type { PolicyExchange } from '../../exchange/policy-exchange.ts'
import type { ValueInput } from '../../expression/value.ts'
import { listOf, mapOf } from '../../expression/value.ts'
import type { ActionContext, ConfigPath } from '../action.ts'

/**
 * A value of a configuration with `${…}` in any of its texts. A text that is one interpolation
 * keeps the type of its expression; whole numbers are integers, as in expressions.
 */
export function compileValue(
  value: unknown,
  path: ConfigPath,
  context: ActionContext,
): (exchange: PolicyExchange) => ValueInput {
  if (typeof value === 'string') {
    const template = context.template(value, path)
    const { constant, only } = template
    if (constant !== undefined) return () => constant
    if (only) return (exchange) => only.evaluate(exchange)
    return (exchange) => template.render(exchange)
  }
  if (Number.isSafeInteger(value)) {
    const integer = BigInt(value as number)
    return () => integer
  }
  if (Array.isArray(value)) {
    const items = value.map((item, index) => compileValue(item, [...path, index], context))
    return (exchange) => listOf(items.map((item) => item(exchange)))
  }
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value).map(
      ([key, item]) => [key, compileValue(item, [...path, key], context)] as const,
    )
    return (exchange) => mapOf(new Map(entries.map(([key, item]) => [key, item(exchange)])))
  }
  return () => value as null | boolean | number
}
