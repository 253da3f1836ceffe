import type { Evaluation } from '../expression/evaluation.ts'
import { EvaluationError } from '../expression/evaluation-error.ts'
import {
  checked,
  type ExpressionFunction,
  fn,
  fnWithin,
  method,
  methodWithin,
} from '../expression/expression-function.ts'
import { type Node, textOf } from '../expression/expression-tree.ts'
import { Pattern } from '../expression/pattern.ts'
import { type ListValue, toText } from '../expression/value.ts'

const SURROGATE_PAIR = /[\ud800-\udbff][\udc00-\udfff]/g

/** Strings. Those of the language that go through a whole text are here again, to be accounted. */
export const TEXT_FUNCTIONS: readonly ExpressionFunction[] = [
  method('contains', ['string', 'string'], 'bool', (text, part) => text.includes(part)),
  fn('size', ['string'], 'int', countCodePoints),
  method('size', ['string'], 'int', countCodePoints),
  checked(methodWithin('matches', ['string', 'string'], 'bool', matches), checkPattern),
  checked(fnWithin('matches', ['string', 'string'], 'bool', matches), checkPattern),
  method('lower', ['string'], 'string', (text) => text.toLowerCase()),
  method('upper', ['string'], 'string', (text) => text.toUpperCase()),
  method('lowerAscii', ['string'], 'string', (text) =>
    text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase()),
  ),
  method('upperAscii', ['string'], 'string', (text) =>
    text.replace(/[a-z]+/g, (letters) => letters.toUpperCase()),
  ),
  method('reverse', ['string'], 'string', (text) => Array.from(text).reverse().join('')),
  method('split', ['string'], 'list(string)', (text) => text.split(' ')),
  method('split', ['string', 'string'], 'list(string)', (text, separator) => text.split(separator)),
  method('split', ['string', 'string', 'int'], 'list(string)', (text, separator, parts) =>
    parts < 0n ? text.split(separator) : text.split(separator, Number(parts)),
  ),
  methodWithin('replace', ['string', 'string', 'string'], 'string', (evaluation, text, from, to) =>
    replace(evaluation, text, from, to, -1),
  ),
  methodWithin(
    'replace',
    ['string', 'string', 'string', 'int'],
    'string',
    (evaluation, text, from, to, times) => replace(evaluation, text, from, to, Number(times)),
  ),
  methodWithin('join', ['list'], 'string', (evaluation, list) => join(evaluation, list, '')),
  methodWithin('join', ['list', 'string'], 'string', join),
  fnWithin('_+_', ['string', 'string'], 'string', (evaluation, left, right) => {
    evaluation.limitText(left.length + right.length)
    return left + right
  }),
]

function matches(evaluation: Evaluation, text: string, source: string): boolean {
  return evaluation.patterns.get(source).test(text, evaluation.account)
}

function checkPattern([, pattern]: readonly Node[]): string | undefined {
  const source = textOf(pattern)
  try {
    if (source !== undefined) new Pattern(source)
    return undefined
  } catch (error) {
    return `the pattern ${(error as Error).message}`
  }
}

function countCodePoints(text: string): bigint {
  return BigInt(text.length - (text.match(SURROGATE_PAIR)?.length ?? 0))
}

function join(evaluation: Evaluation, list: ListValue, separator: string): string {
  const texts = Array.from(list, (item) => {
    if (typeof item !== 'string') throw new EvaluationError(`${toText(item)} is not a string`)
    return item
  })
  evaluation.limitText(texts.reduce((sum, text) => sum + text.length + separator.length, 0))
  return texts.join(separator)
}

/** Replaces the first `times` occurrences, all of them when it is negative. */
function replace(
  evaluation: Evaluation,
  text: string,
  from: string,
  to: string,
  times: number,
): string {
  const parts = text.split(from)
  const replaced = times < 0 ? parts.length - 1 : Math.min(times, parts.length - 1)
  if (replaced === 0) return text
  evaluation.limitText(text.length + replaced * to.length)
  return `${parts.slice(0, replaced).join(to)}${to}${parts.slice(replaced).join(from)}`
}
