import {
  type CelFunc,
  CelScalar,
  type CelType,
  type CelValue,
  celEnv,
  celError,
  celFunc,
  celList,
  celMethod,
  isCelError,
  listType,
  mapType,
  objectType,
} from '@bufbuild/cel'
import { strings } from '@bufbuild/cel/ext'
import {
  bytesSteps,
  DEFAULT_PRICE,
  ENTRY_STEPS,
  equalitySteps,
  formatSteps,
  membershipSteps,
  type Price,
  type Prices,
  stepsOf,
} from './account.ts'
import type { Evaluation } from './evaluation.ts'
import type { ExpressionFunction, ParameterType } from './expression-function.ts'
import { ACCOUNTED, APPEND, INDEXED, NEW_LIST } from './node-weight.ts'
import { isMap, type Value } from './value.ts'

const LIST = listType(CelScalar.DYN)
const MAP = mapType(CelScalar.STRING, CelScalar.DYN)
const TYPES: Readonly<Record<ParameterType, CelType>> = {
  bool: CelScalar.BOOL,
  int: CelScalar.INT,
  uint: CelScalar.UINT,
  double: CelScalar.DOUBLE,
  string: CelScalar.STRING,
  bytes: CelScalar.BYTES,
  dyn: CelScalar.DYN,
  list: LIST,
  map: MAP,
  timestamp: objectType('google.protobuf.Timestamp'),
  duration: objectType('google.protobuf.Duration'),
}
const TYPE_NAMES: Readonly<Record<string, string>> = {
  'google.protobuf.Timestamp': 'timestamp',
  'google.protobuf.Duration': 'duration',
}

/** Steps of creating and absorbing an error. */
export const ERROR_STEPS = 40
/** No value has this type. */
const NOTHING = objectType('@nothing')

/** Runs with the operands, the target of a method first. */
type Run = (operands: CelValue[]) => CelValue

type Signature = Pick<CelFunc, 'name' | 'target' | 'arguments' | 'result'>

/** Counts the steps of a call, which matter up to `most`. */
type CountSteps = (price: Price, operands: readonly unknown[], most: number) => number

/** Operators that may stop early: their cost does not depend on all operands. */
const COUNTS: Readonly<Record<string, CountSteps>> = {
  '_==_(dyn,dyn)': equalitySteps,
  '_!=_(dyn,dyn)': equalitySteps,
  '@in(dyn,list)': membershipSteps,
  '.format(string,list)': formatSteps,
  'string(bytes)': bytesSteps,
}

/** Functions for expressions. Each call is paid before it runs; without budget, nothing runs. */
export class AccountedFunctions<Subject> {
  readonly #evaluation: Evaluation<Subject>
  readonly #prices: Prices

  constructor(evaluation: Evaluation<Subject>, prices: Prices) {
    this.#evaluation = evaluation
    this.#prices = prices
  }

  /** Functions of the language. Without a price, a function takes the same time for all operands. */
  ofLanguage(): CelFunc[] {
    const evaluation = this.#evaluation
    return Array.from(celEnv({ funcs: strings }).funcs, (func) => {
      const price = this.#priceOf(func)
      if (!price) return this.#paying(Object.create(func), func.call.bind(func))
      const count = COUNTS[signatureOf(func)] ?? stepsOf
      const run = signatureOf(func) === '_+_(list,list)' ? concatenate : callOf(func)
      return this.#stopping(func, (operands) => {
        evaluation.spend(count(price, operands, evaluation.account.left))
        return run(operands)
      })
    })
  }

  /** One of ours. */
  own({ name, isMethod, parameters, run }: ExpressionFunction<Subject>): CelFunc {
    const evaluation = this.#evaluation
    const [first, ...rest] = parameters.map((parameter) => TYPES[parameter])
    const types = first ? [first, ...rest] : []
    const [target, args] = isMethod ? [first, rest] : [undefined, types]
    const signature = { name, target, arguments: args, result: CelScalar.DYN }
    const price = this.#priceOf(signature) ?? DEFAULT_PRICE
    return this.#stopping(signature, (operands) => {
      evaluation.pay(price, operands)
      return run(evaluation, ...(operands as Value[])) as CelValue
    })
  }

  /** Functions that rewritten macros call. */
  ofMacros(): CelFunc[] {
    const growing = new WeakMap<object, CelValue[]>()
    const { DYN, INT } = CelScalar
    const accounted = { name: ACCOUNTED, target: undefined, arguments: [DYN, INT], result: DYN }
    return [
      this.#stopping(accounted, ([range, weight]) => {
        this.#evaluation.pay({ call: 0, item: Number(weight) }, [range])
        return range as CelValue
      }),
      this.#stopping(
        { name: INDEXED, target: undefined, arguments: [DYN], result: DYN },
        ([value]) => {
          if (isMap(value)) this.#evaluation.pay({ call: 0, item: ENTRY_STEPS }, [value])
          return value as CelValue
        },
      ),
      celFunc(NEW_LIST, [], LIST, () => {
        const items: CelValue[] = []
        const list = celList(items)
        growing.set(list, items)
        return list
      }),
      celFunc(APPEND, [LIST, DYN], LIST, (list, item) => {
        growing.get(list)?.push(item)
        return list
      }),
    ]
  }

  /** Last overload of a name: operands that fit no other overload reach it, and get an error. */
  misfit(name: string): CelFunc {
    const func = celFunc(name, [NOTHING], CelScalar.DYN, () => null)
    return this.#paying(func, () => {
      this.#evaluation.spend(ERROR_STEPS)
      return undefined
    })
  }

  /** Lowest price of all overloads of a name. */
  leastPriceOf(overloads: Iterable<CelFunc>): number {
    const prices = Array.from(overloads, (func) => this.#priceOf(func)?.call ?? 0)
    return prices.length === 0 ? 0 : Math.min(...prices)
  }

  #priceOf(signature: Signature): Price | undefined {
    const [full, { name }] = [signatureOf(signature), signature]
    if (Object.hasOwn(this.#prices, full)) return this.#prices[full]
    return Object.hasOwn(this.#prices, name) ? this.#prices[name] : undefined
  }

  #stopping(signature: Signature, run: Run): CelFunc {
    const { name, target, result } = signature
    const args = [...signature.arguments]
    const func = target
      ? celMethod(name, target, args, result, function (this: CelValue, ...rest: CelValue[]) {
          return run([this, ...rest])
        })
      : celFunc(name, args, result, (...operands: CelValue[]) => run(operands))
    return this.#paying(func, func.call.bind(func))
  }

  /**
   * Errors are values that `||` absorbs. An exhausted budget is thrown instead, so that nothing absorbs it.
   */
  #paying(func: CelFunc, callOverload: CelFunc['call']): CelFunc {
    const evaluation = this.#evaluation
    const call: CelFunc['call'] = (id, receiver, operands) => {
      const value = callOverload(id, receiver, operands)
      const { account } = evaluation
      if (account.isOverspent) account.refuse()
      if (typeof value === 'object' && isCelError(value)) account.spend(ERROR_STEPS)
      return value
    }
    return Object.assign(func, { call })
  }
}

/** Whether a function is the last overload of a name. */
export const isMisfit = ({ arguments: [first] }: CelFunc): boolean => first === NOTHING

/** Signature of an overload, as prices name it: `.sha256(string)`, `_==_(dyn,dyn)`. */
export function signatureOf(func: Signature): string {
  const { isMethod, parameters } = overloadOf(func)
  return `${isMethod ? '.' : ''}${func.name}(${parameters.join()})`
}

/** How a function of the library can be called, in our words for types. */
export function overloadOf({ target, arguments: args, result }: Signature) {
  return {
    isMethod: target !== undefined,
    parameters: [...(target ? [target] : []), ...args].map(typeName),
    result: typeName(result),
  }
}

const typeName = ({ name }: CelType) => TYPE_NAMES[name] ?? name

function callOf(func: CelFunc): Run {
  return (operands) => {
    const [target, args] = func.target ? [operands[0], operands.slice(1)] : [undefined, operands]
    const result = func.call(0, target, args)
    if (result === undefined || isCelError(result)) throw celError(result ?? 'no overload')
    return result
  }
}

/** A new list: a list of lists becomes slower to read with each concatenation. */
const concatenate: Run = (lists) => {
  return celList((lists as unknown as Iterable<CelValue>[]).flatMap((list) => [...list]))
}
