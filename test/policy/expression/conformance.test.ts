import type { Value } from '@bufbuild/cel-spec/cel/expr/value_pb.js'
import { getConformanceSuite, type IncrementalTest } from '@bufbuild/cel-spec/testdata/tests.js'
import { describe, expect, it } from 'vitest'
import { ExpressionLanguage } from '../../../src/policy/expression/expression.ts'
import type { Variable } from '../../../src/policy/expression/expression-function.ts'
import { toJson, type ValueInput } from '../../../src/policy/expression/value.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

/** Those about messages and enums, and about libraries of functions, are not for policies. */
const SUITES = [
  ...['basic', 'comparisons', 'conversions', 'fields', 'fp_math', 'integer_math', 'lists', 'logic'],
  ...['macros', 'namespace', 'parse', 'plumbing', 'string', 'timestamps'],
]
const MESSAGES =
  /"typeUrl"|TestAllTypes|google\.protobuf\.(?!Timestamp|Duration)|GlobalEnum|NestedEnum|proto[23]|cel\.expr/

function testsBelow(suite: ReturnType<typeof getConformanceSuite>, path = suite.name) {
  const own = suite.tests.map((test) => ({ path: `${path}/${test.name}`, test }))
  const below: typeof own = suite.suites.flatMap((inner) =>
    testsBelow(inner, `${path}/${inner.name}`),
  )
  return [...own, ...below]
}

const withoutTypes = (key: string, value: unknown) => {
  if (key === '$typeName') return undefined
  return typeof value === 'bigint' ? `${value}` : value
}
/** Names of policies have no container to be looked for in. */
const isCore = ({ original }: IncrementalTest) =>
  original.container === '' && !MESSAGES.test(JSON.stringify(original, withoutTypes))

const CORE = getConformanceSuite()
  .suites.filter(({ name }) => SUITES.includes(name))
  .flatMap((suite) => testsBelow(suite))
  .filter(({ test }) => isCore(test))

/** A value of the suite as variables have it; undefined for what they cannot have. */
function inputOf(value: Value | undefined): ValueInput | undefined {
  const { kind } = value ?? { kind: { case: undefined } }
  switch (kind.case) {
    case 'listValue':
      return kind.value.values.map((item) => inputOf(item) as ValueInput)
    case 'mapValue':
      return new Map(
        kind.value.entries.map(({ key, value: item }) => [
          String(inputOf(key)),
          inputOf(item) as ValueInput,
        ]),
      )
    case 'nullValue':
      return null
    case 'uint64Value':
      return { value: kind.value }
    case 'boolValue':
    case 'bytesValue':
    case 'doubleValue':
    case 'int64Value':
    case 'stringValue':
      return kind.value
    default:
      return undefined
  }
}

/** Where it differs on purpose, and what it says then. */
const DIFFERENT: readonly (readonly [path: RegExp, outcome: RegExp])[] = [
  // Who names what there is not is told so before the first request.
  [/\/unbound_is_runtime_error$/, /unknown name|unknown function/],
  [/\/receiver_function_names\//, /unknown function a\.\w+\(\)/],
  // Comparisons that can never be true are mistakes.
  [/\/(not_eq_list_length|eq_mixed_types|eq_list_elem_mixed_types|ne_mixed_types)$/, /compare/],
  // As in other implementations.
  [/\/map_value_repeat_key_heterogeneous$/, /^no error: 1$/],
]

function languageFor(variables: ReadonlyMap<string, Variable<object>>) {
  const clock = new ManualClock()
  const language = new ExpressionLanguage<object>({ clock, functions: [], variables, prices: {} })
  const scope = {
    phase: 'on_http_request',
    typeOf: (path: string) => variables.get(path)?.type,
    names: () => variables.keys(),
  } as const
  return (source: string) => language.compile(source, scope).evaluate({})
}

const withoutVariables = languageFor(new Map())

function evaluate({ bindings, expr }: IncrementalTest['original']): unknown {
  const entries = Object.entries(bindings)
  if (entries.length === 0) return withoutVariables(expr)
  const variables = entries.map(([name, { kind }]) => {
    const value = kind.case === 'value' ? inputOf(kind.value) : undefined
    return [name, { type: 'dyn', read: () => value }] as const
  })
  return languageFor(new Map(variables))(expr)
}

/** `ok`, or what came instead. */
function outcomeOf({ original }: IncrementalTest): string {
  const { resultMatcher } = original
  const isFailure = resultMatcher.case === 'evalError' || resultMatcher.case === 'anyEvalErrors'
  try {
    const value = evaluate(original)
    if (isFailure) return `no error: ${show(value)}`
    const wanted = resultMatcher.case === 'value' ? inputOf(resultMatcher.value) : true
    if (wanted === undefined) return 'ok'
    return show(value) === show(wanted) ? 'ok' : `${show(value)} and not ${show(wanted)}`
  } catch (error) {
    return isFailure ? 'ok' : String(error)
  }
}

function show(value: unknown): string {
  const json = toJson(value instanceof Map ? Object.fromEntries(value) : value)
  const isMap = typeof json === 'object' && json !== null && !Array.isArray(json)
  return JSON.stringify(isMap ? Object.entries(json).sort() : json)
}

describe('the language', () => {
  it('is that of the specification, as far as it is for policies', () => {
    expect(CORE.length).toBeGreaterThan(1_000)
    const wrong: string[] = []
    const used = new Set<RegExp>()
    for (const { path, test } of CORE) {
      const outcome = outcomeOf(test)
      const known = DIFFERENT.find(([name, said]) => name.test(path) && said.test(outcome))
      if (known) used.add(known[0])
      else if (outcome !== 'ok') wrong.push(`${path}: ${test.original.expr}: ${outcome}`)
    }
    expect(wrong).toEqual([])
    expect(used.size).toBe(DIFFERENT.length)
  })

  it('reads names in backquotes, and says where they are wrong', () => {
    const variables = new Map<string, Variable<object>>([
      [
        'm',
        {
          type: 'map(dyn)',
          read: () =>
            new Map([
              ['a-b', 1n],
              ['in', 2n],
            ]),
        },
      ],
    ])
    const run = languageFor(variables)
    expect(run('m.`a-b` + m.`in` == 3 && has(m.`a-b`) && !has(m.`x y`)')).toBe(true)
    expect(run("'m.`a-b`' + \"m.`in`\" + r'`' == 'm.`a-b`m.`in``'")).toBe(true)
    expect(run('m.`a-b` == 1 // m.`in`')).toBe(true)
    expect(() => run('m.`a-b` == 1 && nope')).toThrow(expect.objectContaining({ offset: 16 }))
    expect(() => run('m.`a-b')).toThrow('unexpected `.`a-b`')
    expect(run('.m.`a-b` == 1')).toBe(true)
  })

  it('knows types by their names', () => {
    expect(
      withoutVariables("type(timestamp('2030-01-01T00:00:00Z')) == google.protobuf.Timestamp"),
    ).toBe(true)
    expect(withoutVariables('type(null) == null_type && type(int) == type')).toBe(true)
  })

  it('does not mind what does not matter, and everything else', () => {
    expect(withoutVariables('false && 32')).toBe(false)
    expect(withoutVariables("true || 'x'")).toBe(true)
    expect(() => withoutVariables('true && 32')).toThrow('expected a bool, found an int')
    expect(() => withoutVariables('false || 32')).toThrow('expected a bool, found an int')
  })
})
