import * as z from 'zod'
import { listOf as boundedList } from '../document/read-config.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import type { Price } from '../expression/account.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { listOf, mapOf, toJson, type ValueInput } from '../expression/value.ts'
import { PHASES } from '../phase.ts'
import { type ActionContext, type ConfigPath, defineAction } from './action.ts'

/**
 * A value of a configuration with `${…}` in any of its texts. A text that is one interpolation
 * keeps the type of its expression; whole numbers are integers, as in expressions.
 */
function compileValue(
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

const MAX_VARS = 50
/** Characters of all texts in one value: a chain of variables must not grow without end. */
const MAX_SIZE = 65_536
/** Price of visiting all parts of a value. */
const SIZE_PRICE: Price = { call: 2, item: 2, isDeep: true }
const NAME = /^[A-Za-z_]\w*$/

/** Gives values names: later expressions of the phase read them as `vars.name`. */
export const setVars = defineAction({
  type: 'set-vars',
  phases: PHASES,
  config: z.strictObject({ vars: boundedList(z.record(z.string(), z.unknown()), MAX_VARS) }),
  fields: {
    vars: 'Objects with one name and its value each. Expressions after it in the phase read vars.<name>. Texts may contain expressions.',
  },
  example: { vars: [{ tier: 'gold' }] },
  neverEnds: true,
  build({ vars }, context) {
    const setters = vars.flatMap((map, index) => {
      if (Object.keys(map).length !== 1) {
        const message = 'Each item must set one variable, in the form - name: value.'
        context.problem('badVariable', ['vars', index], message)
      }
      if (context.isMended(['vars', index])) context.declare(undefined)
      return Object.entries(map).map(([name, value]) => {
        if (!NAME.test(name)) {
          const message = `${name} is not a valid variable name. Use letters, digits and _.`
          context.problem('badVariable', ['vars', index, name], message)
        }
        const compute = compileValue(value, ['vars', index, name], context)
        // Only later expressions can read it.
        context.declare(name)
        return { name, compute }
      })
    })
    return (exchange) => {
      for (const { name, compute } of setters) {
        const value = compute(exchange)
        exchange.account.pay(SIZE_PRICE, [value])
        if (sizeOf(value) > MAX_SIZE) throw new EvaluationError(`vars.${name} is too large`)
        exchange.vars.set(name, value)
      }
      return CONTINUE
    }
  },
})

/** About how many characters a value holds; stops counting where it is too many. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 8
  let size = 0
  const items: Iterable<unknown> = Symbol.iterator in value ? (value as Iterable<unknown>) : []
  for (const item of items) {
    size += 8 + sizeOf(item)
    if (size > MAX_SIZE) break
  }
  return size
}

/** Price of a log line. */
const LOG_PRICE: Price = { call: 100, kib: 60, item: 20, isDeep: true }

/** Writes metadata into the log of the gateway. */
export const log = defineAction({
  type: 'log',
  phases: PHASES,
  config: z.strictObject({ metadata: z.record(z.string(), z.unknown()) }),
  fields: {
    metadata:
      'Fields of the log line: names and values of any type. Texts may contain expressions.',
  },
  example: { metadata: { why: 'audit' } },
  results: { metadata: 'map(dyn)' },
  neverEnds: true,
  build({ metadata }, context) {
    const compute = compileValue(metadata, ['metadata'], context)
    return (exchange) => {
      const value = compute(exchange)
      exchange.account.pay(LOG_PRICE, [value])
      const fields = exchange.readSecrets.maskJson(toJson(value) as Record<string, unknown>)
      exchange.results.set('log', { metadata: value })
      exchange.log(fields)
      context.log.info({ endpoint: exchange.endpoint.id, metadata: fields }, 'policy log')
      return CONTINUE
    }
  },
})
