import type { Evaluation } from '../expression/evaluation.ts'
import {
  checked,
  type ExpressionFunction,
  fnWithin,
  method,
  methodWithin,
} from '../expression/expression-function.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { type Node, textOf } from '../expression/expression-tree.ts'
import { Pattern } from '../expression/pattern.ts'
import type { ListValue } from '../expression/value.ts'

/** In a shorter text no part takes long to find. */
const SHORT_TEXT = 48
/** To look whether a part begins at a place, and for each character that may have to be compared. */
const PLACE_STEPS = 2
const COMPARE_STEPS = 0.005

/**
 * Position of a part in a text from `from`; -1 if there is none. Each place with its first character is paid
 * before it is compared: their number decides the time of a search.
 */
function find(evaluation: Evaluation, text: string, part: string, from = 0): number {
  if (part.length < 2 || text.length <= SHORT_TEXT) return text.indexOf(part, from)
  const first = part.charAt(0)
  const last = text.length - part.length
  const steps = PLACE_STEPS + COMPARE_STEPS * part.length
  let at = text.indexOf(first, from)
  while (at !== -1 && at <= last) {
    evaluation.spend(steps)
    if (isAt(text, part, at)) return at
    at = text.indexOf(first, at + 1)
  }
  return -1
}

/** `startsWith` goes from character to character, where pieces are compared as a whole. */
function isAt(text: string, part: string, at: number): boolean {
  return text.slice(at, at + part.length) === part
}

/** The same from the end: at `from` or earlier. */
function findLast(evaluation: Evaluation, text: string, part: string, from: number): number {
  if (part.length < 2 || text.length <= SHORT_TEXT) return text.lastIndexOf(part, from)
  const first = part.charAt(0)
  const steps = PLACE_STEPS + COMPARE_STEPS * part.length
  let at = text.length - part.length
  if (from < at) at = from
  while (at >= 0) {
    at = text.lastIndexOf(first, at)
    if (at === -1) return -1
    evaluation.spend(steps)
    if (isAt(text, part, at)) return at
    at -= 1
  }
  return -1
}

/** The pieces of a text between separators, the first `most` of them. */
function piecesOf(evaluation: Evaluation, text: string, separator: string, most: number): string[] {
  if (separator.length < 2 || text.length <= SHORT_TEXT) return text.split(separator, most)
  const pieces: string[] = []
  let from = 0
  while (pieces.length < most) {
    const at = find(evaluation, text, separator, from)
    if (at === -1) {
      pieces.push(text.slice(from))
      break
    }
    pieces.push(text.slice(from, at))
    from = at + separator.length
  }
  return pieces
}

const SURROGATE_PAIR = /[\ud800-\udbff][\udc00-\udfff]/
/** To count the characters of a text with such pairs, for each. */
const COUNT_STEPS = 0.1
/** Steps of each piece of a split text. A piece of one character exists already, except in other scripts. */
const PIECE_STEPS = 0.015
const OTHER_PIECE_STEPS = 1
const SEPARATED_PIECE_STEPS = 0.25
const OTHER_SCRIPT = /[^\0-\xff]/
/** To write 1,024 characters, and of other scripts. */
const WRITE_STEPS = 10
const OTHER_WRITE_STEPS = 30
/** Steps to compare 1,024 characters with another text. */
const COMPARE_KIB_STEPS = 10
/** Steps of each trimmed character. */
const TRIM_STEPS = 0.1
/** To find the other case of a character that is not ASCII. */
const OTHER_CASE_STEPS = 0.15
const OTHER_ASCII_STEPS = 0.5

/**
 * Functions of strings. Those of the language that visit a whole text are replaced here, so that they are
 * paid.
 */
export const TEXT_FUNCTIONS: readonly ExpressionFunction[] = [
  methodWithin('contains', ['string', 'string'], 'bool', (evaluation, text, part) => {
    return find(evaluation, text, part) !== -1
  }),
  methodWithin('startsWith', ['string', 'string'], 'bool', (evaluation, text, part) => {
    return part.length <= text.length && compared(evaluation, text, part, 0)
  }),
  fnWithin('size', ['string'], 'int', countCodePoints),
  methodWithin('size', ['string'], 'int', countCodePoints),
  checked(methodWithin('matches', ['string', 'string'], 'bool', matches), checkPattern),
  checked(fnWithin('matches', ['string', 'string'], 'bool', matches), checkPattern),
  methodWithin('lower', ['string'], 'string', (evaluation, text) => {
    payForCase(evaluation, text)
    return text.toLowerCase()
  }),
  methodWithin('upper', ['string'], 'string', (evaluation, text) => {
    payForCase(evaluation, text)
    return text.toUpperCase()
  }),
  methodWithin('lowerAscii', ['string'], 'string', (evaluation, text) => {
    if (isAscii(text)) return text.toLowerCase()
    evaluation.spend(OTHER_ASCII_STEPS * text.length)
    return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase())
  }),
  methodWithin('upperAscii', ['string'], 'string', (evaluation, text) => {
    if (isAscii(text)) return text.toUpperCase()
    evaluation.spend(OTHER_ASCII_STEPS * text.length)
    return text.replace(/[a-z]+/g, (letters) => letters.toUpperCase())
  }),
  method('reverse', ['string'], 'string', (text) => Array.from(text).reverse().join('')),
  methodWithin('trim', ['string'], 'string', trim),
  methodWithin('indexOf', ['string', 'string'], 'int', (evaluation, text, part) =>
    BigInt(find(evaluation, text, part)),
  ),
  methodWithin('indexOf', ['string', 'string', 'int'], 'int', (evaluation, text, part, from) =>
    BigInt(find(evaluation, text, part, placeIn(text, from))),
  ),
  methodWithin('lastIndexOf', ['string', 'string'], 'int', (evaluation, text, part) =>
    BigInt(findLast(evaluation, text, part, text.length)),
  ),
  methodWithin('lastIndexOf', ['string', 'string', 'int'], 'int', (evaluation, text, part, from) =>
    BigInt(findLast(evaluation, text, part, placeIn(text, from))),
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
  methodWithin('endsWith', ['string', 'string'], 'bool', (evaluation, text, part) => {
    return part.length <= text.length && compared(evaluation, text, part, text.length - part.length)
  }),
  fnWithin('_+_', ['string', 'string'], 'string', (evaluation, left, right) => {
    evaluation.limitText(left.length + right.length)
    return left + right
  }),
]

function compared(evaluation: Evaluation, text: string, part: string, at: number): boolean {
  evaluation.spend((COMPARE_KIB_STEPS * part.length) / 1_024)
  return isAt(text, part, at)
}

function payForCase(evaluation: Evaluation, text: string): void {
  if (OTHER_SCRIPT.test(text)) evaluation.spend(OTHER_CASE_STEPS * text.length)
}

const isAscii = (text: string) => Buffer.byteLength(text) === text.length

function placeIn(text: string, place: bigint): number {
  if (place >= 0n && place < BigInt(text.length)) return Number(place)
  throw new EvaluationError(`${place} is outside a string of ${text.length} characters`)
}

function matches(evaluation: Evaluation, text: string, source: string): boolean {
  return evaluation.patterns.get(source, evaluation.account).test(text, evaluation.account)
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
  const plain = separator === '' ? PIECE_STEPS : SEPARATED_PIECE_STEPS
  const each = OTHER_SCRIPT.test(text) ? OTHER_PIECE_STEPS : plain
  const affordable = Math.floor(evaluation.account.left / each) + 1
  const pieces = piecesOf(evaluation, text, separator, Math.min(most, affordable))
  evaluation.spend(each * pieces.length)
  return pieces
}

/** White space as Unicode has it; no more of it than can be paid for. */
function trim(evaluation: Evaluation, text: string): string {
  const most = Math.floor(evaluation.account.left / TRIM_STEPS) + 1
  let start = 0
  let end = text.length
  for (const stop = Math.min(end, most); start < stop && isSpace(text, start); ) start += 1
  for (const stop = Math.max(start, end - most); end > stop && isSpace(text, end - 1); ) end -= 1
  evaluation.spend(TRIM_STEPS * (text.length - end + start))
  return text.slice(start, end)
}

const WHITE_SPACE: ReadonlySet<number> = new Set([
  ...[0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x20, 0x85, 0xa0, 0x1680],
  ...[0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a],
  ...[0x2028, 0x2029, 0x202f, 0x205f, 0x3000],
])

const isSpace = (text: string, at: number) => WHITE_SPACE.has(text.charCodeAt(at))

function join(evaluation: Evaluation, list: ListValue, separator: string): string {
  const texts = Array.from(list, (item) => {
    if (typeof item !== 'string') throw new EvaluationError('an item of the list is not a string')
    return item
  })
  const length = texts.reduce((sum, text) => sum + text.length + separator.length, 0)
  evaluation.limitText(length)
  payToWrite(evaluation, length, [separator, ...texts])
  return texts.join(separator)
}

/** For a text of that length, which is made of others. */
function payToWrite(evaluation: Evaluation, length: number, texts: readonly string[]): void {
  const steps = texts.some((text) => OTHER_SCRIPT.test(text)) ? OTHER_WRITE_STEPS : WRITE_STEPS
  evaluation.spend((steps * length) / 1_024)
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
  payToWrite(evaluation, length, [text, to])
  return `${parts.slice(0, replaced).join(to)}${to}${parts.slice(replaced).join(from)}`
}
