import type { Evaluation } from '../expression/evaluation.ts'
import { EvaluationError } from '../expression/evaluation-error.ts'
import {
  checked,
  type ExpressionFunction,
  fnWithin,
  method,
  methodWithin,
} from '../expression/expression-function.ts'
import { type Node, textOf } from '../expression/expression-tree.ts'
import { Pattern } from '../expression/pattern.ts'
import { type ListValue, toText } from '../expression/value.ts'

const SURROGATE_PAIR = /[\ud800-\udbff][\udc00-\udfff]/
/** To count the characters of a text with such pairs, for each. */
const COUNT_STEPS = 0.1
/** Of each piece of a text that is split; one of a character is there already, but in other scripts. */
const PIECE_STEPS = 0.02
const OTHER_PIECE_STEPS = 1
const OTHER_SCRIPT = /[^\0-\xff]/
/** To write 1,024 characters. */
const WRITE_STEPS = 10
/** To look for a part from the end: for each character of it, at each place of the text. */
const BACKWARDS_STEPS = 0.01
/** Of each character that is trimmed. */
const TRIM_STEPS = 0.2

/** Strings. Those of the language that go through a whole text are here again, to be accounted. */
export const TEXT_FUNCTIONS: readonly ExpressionFunction[] = [
  method('contains', ['string', 'string'], 'bool', (text, part) => text.includes(part)),
  fnWithin('size', ['string'], 'int', countCodePoints),
  methodWithin('size', ['string'], 'int', countCodePoints),
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
  methodWithin('trim', ['string'], 'string', trim),
  methodWithin('lastIndexOf', ['string', 'string'], 'int', (evaluation, text, part) =>
    lastIndexOf(evaluation, text, part, text.length),
  ),
  methodWithin(
    'lastIndexOf',
    ['string', 'string', 'int'],
    'int',
    (evaluation, text, part, from) => {
      if (from < 0n || from >= BigInt(text.length)) {
        throw new EvaluationError(`${from} is outside of a text of ${text.length} characters`)
      }
      return lastIndexOf(evaluation, text, part, Number(from))
    },
  ),
  methodWithin('split', ['string'], 'list(string)', (evaluation, text) =>
    split(evaluation, text, ' '),
  ),
  methodWithin('split', ['string', 'string'], 'list(string)', split),
  methodWithin(
    'split',
    ['string', 'string', 'int'],
    'list(string)',
    (evaluation, text, separator, parts) =>
      split(evaluation, text, separator, parts < 0n ? undefined : Number(parts)),
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

function countCodePoints(evaluation: Evaluation, text: string): bigint {
  if (!SURROGATE_PAIR.test(text)) return BigInt(text.length)
  evaluation.spend(COUNT_STEPS * text.length)
  let count = 0
  for (let at = 0; at < text.length; at += 1) {
    if ((text.codePointAt(at) as number) > 0xffff) at += 1
    count += 1
  }
  return BigInt(count)
}

/** No more pieces than can be paid for: a text of a megabyte may have a million. */
function split(evaluation: Evaluation, text: string, separator: string, most = 2 ** 32 - 1) {
  const each = OTHER_SCRIPT.test(text) ? OTHER_PIECE_STEPS : PIECE_STEPS
  const affordable = Math.floor(evaluation.account.left / each) + 1
  const pieces = text.split(separator, Math.min(most, affordable))
  evaluation.spend(each * pieces.length)
  return pieces
}

function lastIndexOf(evaluation: Evaluation, text: string, part: string, from: number): bigint {
  evaluation.spend(BACKWARDS_STEPS * Math.max(0, text.length - part.length) * part.length)
  return BigInt(text.lastIndexOf(part, from))
}

/** White space as Unicode has it. */
function trim(evaluation: Evaluation, text: string): string {
  let start = 0
  let end = text.length
  while (start < end && WHITE_SPACE.test(text.charAt(start))) start += 1
  while (end > start && WHITE_SPACE.test(text.charAt(end - 1))) end -= 1
  evaluation.spend(TRIM_STEPS * (text.length - end + start))
  return text.slice(start, end)
}

const WHITE_SPACE = /^\p{White_Space}$/u

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
  const parts = split(evaluation, text, from)
  const replaced = times < 0 ? parts.length - 1 : Math.min(times, parts.length - 1)
  if (replaced === 0) return text
  const length = text.length + replaced * to.length
  evaluation.limitText(length)
  evaluation.spend((WRITE_STEPS * length) / 1_024)
  return `${parts.slice(0, replaced).join(to)}${to}${parts.slice(replaced).join(from)}`
}
