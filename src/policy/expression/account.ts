import { isAscii } from 'node:buffer'
import { EvaluationError } from './expression-problem.ts'
import { isList, isMap } from './value.ts'

/** Price of a function, in steps. */
export interface Price {
  /** Steps of each call. */
  readonly call: number
  /** For 1,024 characters or bytes of its operands; see `textSize`. */
  readonly kib?: number
  /** For each item of its lists and maps. */
  readonly item?: number
  /** It works through the items of items, too, and through their texts. */
  readonly isDeep?: boolean
}

/** Prices by the name of a function, or by its signature where overloads differ. */
export type Prices = Readonly<Record<string, Price>>

/** Entries of a map to items of a list. */
const MAP_FACTOR = 3
/** Steps of an object, in addition to its items: it is wrapped and inspected in several ways. */
const OBJECT_STEPS = 4
/** Factor of a text that is not ASCII, for each byte in UTF-8: reading goes from character to character. */
const BYTE_FACTOR = 3
/** Steps of each map entry in a search for a number. */
export const ENTRY_STEPS = 0.4
/** To read a byte that is not ASCII as a character. */
const OTHER_BYTE_STEPS = 0.2
/** Most UTF-8 bytes of a character that has two bytes in memory. */
const MAX_BYTES = 3
const TWO_BYTES = /[^\0-\xff]/

/** For 1,024 bytes that are compared one by one. */
const BYTES_KIB = 100
/** Steps of each character of a format. */
const FORM_STEPS = 1
/** Steps of a number with decimals in `format`, and of 1,024 characters in base 16. */
const POINT_STEPS = 2_600
const BASE_16_KIB = 1_600

/** Price of functions without their own price. */
export const DEFAULT_PRICE: Price = { call: 10 }

/** Steps of a call with these operands. Counting may stop at `most`. */
export function stepsOf(price: Price, args: readonly unknown[], most: number): number {
  const { call, kib, item } = price
  if (kib === undefined && item === undefined) return call
  let steps = call
  for (const arg of args) steps += sizeSteps(arg, price, most - steps)
  return steps
}

function sizeSteps(value: unknown, price: Price, most: number): number {
  const { kib = 0, item = 0, isDeep = false } = price
  if (typeof value === 'string') return kib === 0 ? 0 : (textSize(value) * kib) / 1_024
  const size = sizeOf(value)
  if (size === undefined) return isDeep && typeof value === 'object' ? OBJECT_STEPS : 0
  if (value instanceof Uint8Array) return (size * (isDeep ? Math.max(kib, BYTES_KIB) : kib)) / 1_024
  let steps = size * item * (isDeep && isMap(value) ? MAP_FACTOR : 1)
  if (!isDeep) return steps
  steps += OBJECT_STEPS
  const parts: Iterable<unknown> = isList(value) || isMap(value) ? value : []
  for (const part of parts) {
    if (steps > most) break
    if (!Array.isArray(part)) steps += sizeSteps(part, price, most - steps)
    else for (const half of part) steps += sizeSteps(half, price, most - steps)
  }
  return steps
}

/**
 * Counted characters of a text. Text beyond ASCII counts more: encoding, changing case and searching process
 * it character by character.
 */
function textSize(text: string): number {
  const { length } = text
  if (TWO_BYTES.test(text)) return BYTE_FACTOR * MAX_BYTES * length
  const bytes = Buffer.byteLength(text)
  return bytes === length ? length : BYTE_FACTOR * bytes
}

/** Steps of comparing two values for equality. */
export function equalitySteps(price: Price, operands: readonly unknown[], most: number): number {
  const [left, right] = operands
  return sizeOf(left) === sizeOf(right) ? stepsOf(price, [left], most) : price.call
}

/** Steps of searching a value in a list. */
export function membershipSteps(price: Price, operands: readonly unknown[], most: number): number {
  const [value, list] = operands
  if (typeof value === 'object') {
    return stepsOf({ ...price, item: (price.item ?? 0) + OBJECT_STEPS }, [list], most)
  }
  const each = stepsOf({ ...price, call: 0 }, [value], most) + (price.item ?? 0)
  return price.call + (sizeOf(list) ?? 0) * each
}

/** Steps of reading bytes as text. */
export function bytesSteps(price: Price, operands: readonly unknown[], most: number): number {
  const [bytes] = operands
  const isOther = bytes instanceof Uint8Array && !isAscii(bytes)
  return stepsOf(price, operands, most) + (isOther ? OTHER_BYTE_STEPS * bytes.length : 0)
}

/** Steps of formatting values. Some formats cost far more than others. */
export function formatSteps(price: Price, operands: readonly unknown[], most: number): number {
  const [form, values] = operands
  const filled = stepsOf(price, [values], most)
  if (typeof form !== 'string') return filled
  const steps = filled + FORM_STEPS * form.length
  const points = form.match(/%(?:\.\d+)?[ef]/gi)?.length ?? 0
  const base16 = /%x/i.test(form)
    ? stepsOf({ call: 0, kib: BASE_16_KIB, isDeep: true }, [values], most)
    : 0
  return steps + POINT_STEPS * points + base16
}

/** Length of a text, or number of items; undefined for values without a size. */
function sizeOf(value: unknown): number | undefined {
  if (typeof value === 'string' || value instanceof Uint8Array) return value.length
  return typeof value === 'object' && value !== null && 'size' in value
    ? Number(value.size)
    : undefined
}

/** Steps of a key in JSON text, and of everything else between commas or brackets. */
const KEY_STEPS = 6
const VALUE_STEPS = 1

/**
 * Steps of parsing JSON text, in addition to its characters. Objects and keys are the slow part, and new keys
 * most of all.
 */
export function jsonSteps(text: string): number {
  let keys = 0
  let values = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === COLON) keys += 1
    else if (code === COMMA || code === BRACKET || code === BRACE) values += 1
  }
  return KEY_STEPS * keys + VALUE_STEPS * values
}

const [COLON, COMMA, BRACKET, BRACE] = [0x3a, 0x2c, 0x5b, 0x7b]

/** Budget of one subject, in steps of 110 to 180 ns on a quiet core: 7 to 12 ms. */
export const MAX_STEPS = 65_536
/** Budget of one expression, and of all expressions of an action. Nothing else runs meanwhile. */
export const MAX_EXPRESSION_STEPS = 16_384

/** Budget of all work for one subject, such as a request that a policy judges. */
export class Account {
  readonly #sentence: string
  #left: number
  /** Reserved steps that the running expression cannot use. */
  #held = 0
  /** Steps until other work gets a turn, and the steps spent at the start of the expression. */
  #stretch = MAX_EXPRESSION_STEPS
  #begunAt = 0
  #spent = 0

  /** `sentence`: message of the error when the budget is exhausted. */
  constructor(maxSteps = MAX_STEPS, sentence = 'the policy takes too long for a request') {
    this.#left = maxSteps
    this.#sentence = sentence
  }

  /** Steps so far. */
  get spent(): number {
    return this.#spent
  }

  /** Steps that there are still; negative when too many were spent. */
  get left(): number {
    return this.#left
  }

  get isOverspent(): boolean {
    return this.#left < 0
  }

  /** Throws EvaluationError when it comes to more than there is, now and from then on. */
  spend(steps: number): void {
    this.#spent += steps
    this.#left -= steps
    if (this.#left < 0) this.refuse()
  }

  /** Others could go on just now: expressions may hold them up again. */
  beginStretch(): void {
    this.#stretch = MAX_EXPRESSION_STEPS
  }

  /** Leaves an expression, or the like, no more than there is for a stretch, until it is released. */
  hold(): void {
    this.#begunAt = this.#spent
    this.#held = Math.max(0, this.#left - this.#stretch)
    this.#left -= this.#held
  }

  /** Returns the reserved steps, unless the rest was spent. */
  release(): void {
    this.#stretch -= this.#spent - this.#begunAt
    if (this.#left >= 0) this.#left += this.#held
    this.#held = 0
  }

  /** Spends the steps of a call with these operands. */
  pay(price: Price, operands: readonly unknown[]): void {
    this.spend(stepsOf(price, operands, this.#left))
  }

  /** Throws the EvaluationError of an exhausted budget. */
  refuse(): never {
    throw new EvaluationError(this.#sentence, { isOverspent: true })
  }
}
