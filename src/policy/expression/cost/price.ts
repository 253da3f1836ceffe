import { isList, isMap } from '../value.ts'

/** What a function costs, in steps. */
export interface Price {
  /** Of each call. */
  readonly call: number
  /** For 1,024 characters or bytes of its operands. */
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

/** For 1,024 bytes that are compared one by one. */
const BYTES_KIB = 100
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
  const size = sizeOf(value)
  if (size === undefined) return 0
  if (typeof value !== 'object') return (size * kib) / 1_024
  if (value instanceof Uint8Array) return (size * (isDeep ? Math.max(kib, BYTES_KIB) : kib)) / 1_024
  let steps = size * item * (isDeep && isMap(value) ? MAP_FACTOR : 1)
  if (!isDeep) return steps
  const parts: Iterable<unknown> = isList(value) || isMap(value) ? value : []
  for (const part of parts) {
    if (steps > most) break
    if (!Array.isArray(part)) steps += sizeSteps(part, price, most - steps)
    else for (const half of part) steps += sizeSteps(half, price, most - steps)
  }
  return steps
}

/** What it costs to tell whether two values are equal. */
export function equalitySteps(price: Price, operands: readonly unknown[], most: number): number {
  const [left, right] = operands
  return sizeOf(left) === sizeOf(right) ? stepsOf(price, [left], most) : price.call
}

/** What it costs to look for a value in a list. */
export function membershipSteps(price: Price, operands: readonly unknown[], most: number): number {
  const [value, list] = operands
  if (typeof value === 'object') return stepsOf(price, [list], most)
  const each = stepsOf({ ...price, call: 0 }, [value], most) + (price.item ?? 0)
  return price.call + (sizeOf(list) ?? 0) * each
}

/** What it costs to put values into a text: some forms are far dearer than others. */
export function formatSteps(price: Price, operands: readonly unknown[], most: number): number {
  const steps = stepsOf(price, operands, most)
  const [form, values] = operands
  if (typeof form !== 'string') return steps
  const points = form.match(/%(?:\.\d+)?f/gi)?.length ?? 0
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
