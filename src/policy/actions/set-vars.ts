import * as z from 'zod'
import { listOf } from '../document/config-schema.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import type { Price } from '../expression/cost/price.ts'
import { EvaluationError } from '../expression/evaluation-error.ts'
import { PHASES } from '../phase.ts'
import { defineAction } from './action.ts'
import { compileValue } from './fields/value-template.ts'

const MAX_VARS = 50
/** Characters of all texts in one value: a chain of variables must not grow without end. */
const MAX_SIZE = 65_536
/** Of looking at all that is in a value. */
const SIZE_PRICE: Price = { call: 2, item: 2, isDeep: true }
const NAME = /^[A-Za-z_]\w*$/

/** Gives values names: later expressions of the phase read them as `vars.<name>`. */
export const setVars = defineAction({
  type: 'set-vars',
  phases: PHASES,
  config: z.strictObject({ vars: listOf(z.record(z.string(), z.unknown()), MAX_VARS) }),
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
        // Only what follows can read it.
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
