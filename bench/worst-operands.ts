/**
 * The most that functions take of the processor in one expression: each is called as often as the
 * expression may, with operands of many kinds and sizes. Fails where one takes longer than it should.
 */
import { celEnv } from '@bufbuild/cel'
import { strings } from '@bufbuild/cel/ext'
import { systemClock } from '../src/base/clock.ts'
import { ACTIONS } from '../src/policy/actions/all-actions.ts'
import type { PolicyExchange } from '../src/policy/exchange/policy-exchange.ts'
import { MAX_EXPRESSION_STEPS } from '../src/policy/expression/account.ts'
import { overloadOf } from '../src/policy/expression/accounted-functions.ts'
import type { CompiledExpression } from '../src/policy/expression/compiled-expression.ts'
import { EvaluationError, ExpressionProblem } from '../src/policy/expression/expression-problem.ts'

import { isList, isMap, type ValueInput } from '../src/policy/expression/value.ts'
import type { Phase } from '../src/policy/phase.ts'
import { PolicyScope, policyLanguage } from '../src/policy/policy-language.ts'

import { FUNCTIONS } from '../src/policy/vocabulary/all-functions.ts'
import { VARIABLES } from '../src/policy/vocabulary/variables.ts'
import { createExchange, type ExchangeParts } from '../test/helpers/policy-exchange.ts'
import { seeded } from '../test/helpers/seeded.ts'
import { drawOperand, drawPart } from './operand-corpus.ts'
import { cpuUs } from './processor-time.ts'
import { printTable, progress } from './tools.ts'

/** Operands that are tried for each function. */
const SAMPLES = Number(process.env.BENCH_SAMPLES ?? 60)
/** Functions that are measured: all unless an expression for their calls is given. */
const ONLY = new RegExp(process.env.BENCH_ONLY ?? '')
const MAX_MS = 5
/** What takes longer is measured again, and the best counts: neighbours make some of them slow. */
const SUSPECT_US = 1_500
const AGAIN = 12
/** Searches for a call that seems to take too long: the first one runs code that is not compiled yet. */
const SEARCHES = 3
const SHOWN = Number(process.env.BENCH_SHOWN ?? 30)
const NAMES = ['a', 'b', 'c', 'd'] as const
const SIZED = new Set(['string', 'bytes', 'list', 'map', 'dyn'])

const scope = new PolicyScope()
for (const action of ACTIONS.values()) scope.addAction(action)
scope.addVariable(undefined)
const language = policyLanguage(systemClock)

interface Signature {
  readonly name: string
  readonly isMethod: boolean
  readonly parameters: readonly string[]
}

interface Call {
  readonly source: string
  readonly parameters: readonly string[]
  readonly phase: Phase
}

interface Measured {
  readonly us: number
  readonly steps: number
}

interface Row {
  readonly source: string
  readonly us: number
  readonly times: number
  readonly operands: string
}

/** As large a head as there can be, with names that are equally long. */
const HEAD: ExchangeParts = (() => {
  const name = (n: number) => `x-${'a'.repeat(100)}${String(n).padStart(3, '0')}`
  const fields = Array.from({ length: 250 }, (_, n) => [name(n), 'b'.repeat(120)]).flat()
  const cookie = Array.from({ length: 400 }, (_, n) => `c${n}=v`).join('; ')
  const list = `a/b;${'c=1;'.repeat(500)}`
  const query = Array.from({ length: 400 }, (_, n) => `k${n}=v`).join('&')
  const setCookies = Array(200).fill(['set-cookie', 'a=1; Path=/; Max-Age=9']).flat()
  return {
    headers: [...fields, 'cookie', cookie, 'content-type', list, 'content-encoding', list],
    url: `https://h/${'%41'.repeat(800)}?${query}`,
    status: 200,
    responseHeaders: [...fields, ...setCookies],
  }
})()

const OPERATORS: Readonly<Record<string, string>> = {
  ...{ '_+_': '+', '_-_': '-', '_*_': '*', '_/_': '/', '_%_': '%', '@in': 'in' },
  ...{ '_==_': '==', '_!=_': '!=', '_<_': '<', '_<=_': '<=', '_>_': '>', '_>=_': '>=' },
}

/** How a function is called; undefined for what no author can write. */
function sourceOf({ name, isMethod, parameters }: Signature, first: string): string | undefined {
  const args = parameters.map((_, index) => (index === 0 ? first : `dyn(vars.${NAMES[index]})`))
  const operator = OPERATORS[name]
  if (operator) return `${args[0]} ${operator} ${args[1]}`
  if (name === '!_' || name === '-_') return `${name[0]}${args[0]}`
  if (name === '@sort_by') return 'vars.a.sortBy(y, y)'
  if (!/^[A-Za-z]/.test(name)) return undefined
  return isMethod
    ? `${args[0]}.${name}(${args.slice(1).join(', ')})`
    : `${name}(${args.join(', ')})`
}

function allCalls(): Call[] {
  const signatures: Signature[] = [
    ...FUNCTIONS,
    ...Array.from(celEnv({ funcs: strings }).funcs, (func) => ({
      name: func.name,
      ...overloadOf(func),
    })),
  ]
  const calls = new Map<string, Call>()
  const add = (source: string | undefined, parameters: readonly string[]) => {
    if (source === undefined) return
    const isResponse = source.includes('Res') || source.includes('res.')
    const phase = isResponse ? 'on_http_response' : 'on_http_request'
    calls.set(`${source} ${parameters.join()}`, { source, parameters, phase })
  }
  for (const signature of signatures) {
    const { parameters } = signature
    add(sourceOf(signature, 'dyn(vars.a)'), parameters)
    // A text that was put together just now takes longer to read.
    if (parameters[0] === 'string') add(sourceOf(signature, "(dyn(vars.a) + 'x')"), parameters)
  }
  for (const first of ['map', 'list', 'dyn']) {
    for (const second of ['int', 'string', 'double']) {
      add('dyn(vars.a)[dyn(vars.b)]', [first, second])
    }
  }
  for (const map of ['req.headers', 'req.cookies', 'req.url.query_params', 'res.headers']) {
    add(`${map}[dyn(vars.a)]`, ['string'])
    add(`dyn(vars.a) in ${map}`, ['string'])
  }
  for (const name of VARIABLES.keys()) if (name !== 'vars') add(name, [])
  return [...calls.values()].filter(({ source }) => ONLY.test(source))
}

function describe(value: ValueInput): string {
  if (typeof value === 'string') {
    if (value.length <= 16) return JSON.stringify(value)
    return `${JSON.stringify(`${value.slice(0, 8)}…${value.slice(-6)}`)} (${value.length})`
  }
  if (value instanceof Uint8Array) return `bytes of ${value[0]} (${value.length})`
  if (isMap(value)) return `map of ${describe([...value][1]?.[1] ?? null)} (${value.size})`
  if (isList(value)) return `list of ${describe(value.get(1) ?? null)} (${value.size})`
  return typeof value === 'object' && value !== null ? 'a time' : String(value)
}

class Search {
  readonly #call: Call
  readonly #expression: CompiledExpression<PolicyExchange>
  readonly #draw: (below: number) => number

  constructor(call: Call) {
    this.#call = call
    // What fails is absorbed, so that all of them run.
    const source = `lists.range(vars.n).exists(x, [${call.source}].size() == 0)`
    this.#expression = language.compile(source, scope.in(call.phase))
    const next = seeded(20_261_122)
    this.#draw = (below) => Math.floor(next() * below)
  }

  worst(): Row {
    const { source, parameters } = this.#call
    const nothing = parameters.map(() => null)
    this.#run(nothing, 0)
    const empty = this.#run(nothing, 0).steps
    let worst: Row = { source, us: 0, times: 0, operands: '' }
    const samples = parameters.some((type) => SIZED.has(type)) ? SAMPLES : 8
    for (let sample = 0; sample < samples; sample += 1) {
      const operands = this.#operands()
      const one = this.#run(operands, 1)
      const left = (MAX_EXPRESSION_STEPS - empty) / Math.max(1, one.steps - empty)
      const times = Math.max(1, Math.min(10_000, Math.floor(left)))
      let { us } = times === 1 ? one : this.#run(operands, times)
      for (let again = 0; again < AGAIN && us > Math.max(worst.us, SUSPECT_US); again += 1) {
        us = Math.min(us, this.#run(operands, times).us)
      }
      if (us <= worst.us) continue
      worst = { source, us, times, operands: operands.map(describe).join(', ') }
    }
    return worst
  }

  #operands(): ValueInput[] {
    const draw = this.#draw
    const operands: ValueInput[] = []
    for (const [index, type] of this.#call.parameters.entries()) {
      const [first] = operands
      if (typeof first === 'string' && type === 'string' && draw(2) === 0) {
        operands.push(drawPart(first, draw))
      } else if (index > 0 && type === this.#call.parameters[0] && draw(4) === 0) {
        operands.push(first as ValueInput)
      } else {
        operands.push(drawOperand(type, draw))
      }
    }
    return operands
  }

  #run(operands: readonly ValueInput[], times: number): Measured {
    const exchange = createExchange(HEAD)
    for (const [index, value] of operands.entries()) exchange.vars.set(NAMES[index] ?? '', value)
    exchange.vars.set('n', BigInt(times))
    const since = cpuUs()
    try {
      this.#expression.evaluate(exchange)
    } catch (error) {
      if (!(error instanceof EvaluationError)) throw error
    }
    return { us: cpuUs() - since, steps: exchange.account.spent }
  }
}

const isLong = ({ us }: Row) => us > 1_000 * MAX_MS

function measure(call: Call): Row {
  let row = new Search(call).worst()
  for (let search = 1; search < SEARCHES && isLong(row); search += 1) {
    const next = new Search(call).worst()
    if (next.us < row.us) row = next
  }
  return row
}

const rows: Row[] = []
for (const call of allCalls()) {
  progress(call.source)
  try {
    rows.push(measure(call))
  } catch (error) {
    // Some variables are objects of others alone.
    if (!(error instanceof ExpressionProblem)) throw error
    console.log(`not measured: ${call.source}: ${error.message}`)
  }
}
rows.sort((a, b) => b.us - a.us)
printTable(
  ['call', 'ms', 'times', 'operands'],
  rows
    .slice(0, SHOWN)
    .map(({ source, us, times, operands }) => [
      source.replaceAll(/dyn\((vars\.\w)\)/g, '$1'),
      (us / 1_000).toFixed(2),
      String(times),
      operands,
    ]),
)
const long = rows.filter(isLong)
console.log(`\n${rows.length} calls; ${long.length} take more than ${MAX_MS} ms in one expression.`)
process.exitCode = long.length > 0 ? 1 : 0
