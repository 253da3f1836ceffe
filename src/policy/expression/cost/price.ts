import { isAscii } from 'node:buffer'
import { isList, isMap } from '../value.ts'

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
export function textSize(text: string): number {
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
