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
  if (typeof value !== 'object' || value instanceof Uint8Array) return (size * kib) / 1_024
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

/** How long a text is, or how many items there are; undefined for what has no size. */
function sizeOf(value: unknown): number | undefined {
  if (typeof value === 'string' || value instanceof Uint8Array) return value.length
  return typeof value === 'object' && value !== null && 'size' in value
    ? Number(value.size)
    : undefined
}
