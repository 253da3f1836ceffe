import { isAscii } from 'node:buffer'
import { EvaluationError } from './expression-problem.ts'
import { isList, isMap } from './value.ts'

/** What a function costs, in steps. */
export interface Price {
  /** Of each call. */
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
/** An item that is an object, beside its own items: it is wrapped, and looked at in several ways. */
const OBJECT_STEPS = 4
/** Of a text that is not ASCII, for each byte in UTF-8: whoever reads it goes from one to the next. */
const BYTE_FACTOR = 3
/** Of an entry of a map in which a number is looked for. */
export const ENTRY_STEPS = 0.4
/** To read a byte that is not ASCII as a character. */
const OTHER_BYTE_STEPS = 0.2
/** What a character of a text that is more than one byte in memory takes in UTF-8 at most. */
const MOST_BYTES = 3
const TWO_BYTES = /[^\0-\xff]/

/** For 1,024 bytes that are compared one by one. */
const BYTES_KIB = 100
/** Of a form, for each of its characters. */
const FORM_STEPS = 1
/** Of a number with digits behind the point in `format`, and of 1,024 characters in base 16. */
const POINT_STEPS = 2_600
const BASE_16_KIB = 1_600

/** Where there is no other. */
export const DEFAULT_PRICE: Price = { call: 10 }

/** What a call with these operands costs; `most` is where counting may stop. */
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
 * How many characters a text counts for: its own where it is ASCII. Others are taken apart and put
 * together one by one, by whoever encodes them, changes their case, or looks for something in them.
 */
function textSize(text: string): number {
  const { length } = text
  if (TWO_BYTES.test(text)) return BYTE_FACTOR * MOST_BYTES * length
  const bytes = Buffer.byteLength(text)
  return bytes === length ? length : BYTE_FACTOR * bytes
}

/** What it costs to tell whether two values are equal. */
export function equalitySteps(price: Price, operands: readonly unknown[], most: number): number {
  const [left, right] = operands
  return sizeOf(left) === sizeOf(right) ? stepsOf(price, [left], most) : price.call
}

/** What it costs to look for a value in a list. */
export function membershipSteps(price: Price, operands: readonly unknown[], most: number): number {
  const [value, list] = operands
  if (typeof value === 'object') {
    return stepsOf({ ...price, item: (price.item ?? 0) + OBJECT_STEPS }, [list], most)
  }
  const each = stepsOf({ ...price, call: 0 }, [value], most) + (price.item ?? 0)
  return price.call + (sizeOf(list) ?? 0) * each
}

/** What it costs to read bytes as a text. */
export function bytesSteps(price: Price, operands: readonly unknown[], most: number): number {
  const [bytes] = operands
  const isOther = bytes instanceof Uint8Array && !isAscii(bytes)
  return stepsOf(price, operands, most) + (isOther ? OTHER_BYTE_STEPS * bytes.length : 0)
}

/** What it costs to put values into a text: some forms are far dearer than others. */
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

/** How long a text is, or how many items there are; undefined for what has no size. */
function sizeOf(value: unknown): number | undefined {
  if (typeof value === 'string' || value instanceof Uint8Array) return value.length
  return typeof value === 'object' && value !== null && 'size' in value
    ? Number(value.size)
    : undefined
}

/** Of a key in JSON text, and of everything else between commas or in brackets. */
const KEY_STEPS = 6
const VALUE_STEPS = 1

/**
 * What it takes to read JSON text, beside going through its characters. Objects and their keys are what
 * takes long, and most of all keys that were never seen before.
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

/** What may be spent for one subject, in steps of about 50 ns: 3 ms. */
export const MAX_STEPS = 65_536
/** What one expression may spend of it, and all of an action: nobody else can go on while they run. */
export const MAX_EXPRESSION_STEPS = 16_384

/** What all the work for one subject costs, such as for the request that a policy judges. */
export class Account {
  readonly #sentence: string
  #left: number
  /** What is there, and not for the expression that runs. */
  #held = 0
  /** What expressions may spend before others can go on, and what was spent when one began. */
  #stretch = MAX_EXPRESSION_STEPS
  #begunAt = 0
  #spent = 0

  /** `sentence`: what the error says when more is spent than there is. */
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

  /** Gives back what was held, unless all of the rest was spent. */
  release(): void {
    this.#stretch -= this.#spent - this.#begunAt
    if (this.#left >= 0) this.#left += this.#held
    this.#held = 0
  }

  /** Spends what a call with these operands costs. */
  pay(price: Price, operands: readonly unknown[]): void {
    this.spend(stepsOf(price, operands, this.#left))
  }

  /** Throws the EvaluationError of who has spent more than there is. */
  refuse(): never {
    throw new EvaluationError(this.#sentence, { isOverspent: true })
  }
}
