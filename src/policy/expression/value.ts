import { type CelInput, celList, celMap, isCelList } from '@bufbuild/cel'

/** A value of an expression, in the shapes that the evaluator hands out. */
export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | Uint8Array
  | ListValue
  | MapValue
  | UintValue
  | MessageValue

export interface ListValue {
  readonly size: number
  get(index: number): Value | undefined
  [Symbol.iterator](): IterableIterator<Value>
}

export interface MapValue {
  readonly size: number
  get(key: string): Value | undefined
  has(key: string): boolean
  keys(): IterableIterator<Value>
  [Symbol.iterator](): IterableIterator<[Value, Value]>
}

/** An unsigned integer; plain integers are bigint, doubles are number. */
export interface UintValue {
  readonly value: bigint
}

/** A timestamp or a duration. */
export interface MessageValue {
  readonly desc: { readonly typeName: string }
  readonly message: { readonly seconds: bigint; readonly nanos: number }
}

/** Return values of functions and variables. The evaluator converts them. */
export type ValueInput =
  | Value
  | TimeInput
  | readonly ValueInput[]
  | ReadonlyMap<string, ValueInput>
  | { readonly [key: string]: ValueInput }

/** A timestamp or a duration on its way into the evaluator. */
export interface TimeInput {
  readonly $typeName: 'google.protobuf.Timestamp' | 'google.protobuf.Duration'
  readonly seconds: bigint
  readonly nanos: number
}

/** The timestamp of milliseconds since the epoch. */
export function timestamp(ms: number): TimeInput {
  const seconds = Math.floor(ms / 1_000)
  const nanos = Math.round((ms - seconds * 1_000) * 1e6)
  return { $typeName: 'google.protobuf.Timestamp', seconds: BigInt(seconds), nanos }
}

/** The duration of whole seconds. */
export function duration(seconds: bigint): TimeInput {
  return { $typeName: 'google.protobuf.Duration', seconds, nanos: 0 }
}

/** RFC 3339 in UTC, without a fraction of zero: `2024-07-13T00:10:16Z`. */
export function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace('.000Z', 'Z')
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

/**
 * Values in the form of the evaluator. Arrays and plain maps work, too, but their content is wrapped at each
 * read.
 */
export const listOf = (items: readonly ValueInput[]): ListValue =>
  celList(items as readonly CelInput[]) as ListValue

export const mapOf = (entries: ReadonlyMap<string, ValueInput>): MapValue =>
  celMap(entries as ReadonlyMap<string, CelInput>) as unknown as MapValue

/** Parsed JSON as a value. Objects become maps with any keys. */
export function valueOfJson(json: unknown): Value {
  if (typeof json !== 'object' || json === null) return json as Value
  if (Array.isArray(json)) return listOf(json.map(valueOfJson))
  const entries = new Map<string, Value>()
  for (const key of Object.keys(json)) {
    entries.set(key, valueOfJson((json as Record<string, unknown>)[key]))
  }
  return mapOf(entries)
}

/** The value as JSON; integers that a double cannot hold become strings, bytes base64. */
export function toJson(value: unknown): Json {
  switch (typeof value) {
    case 'bigint':
      return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString()
    case 'object':
      break
    default:
      return value as Json
  }
  if (value === null) return null
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64')
  if (isMessage(value)) return formatMessage(value)
  if (isMap(value)) {
    return Object.fromEntries(Array.from(value, ([key, item]) => [toText(key), toJson(item)]))
  }
  if (isList(value)) return Array.from(value, toJson)
  if ('value' in value) return toJson(value.value)
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toJson(item)]))
}

/** The value as it stands in an interpolated string. */
export function toText(value: unknown): string {
  if (typeof value === 'string') return value
  if (value instanceof Uint8Array) return Buffer.from(value).toString()
  const json = typeof value === 'bigint' ? value.toString() : toJson(value)
  return typeof json === 'string' ? json : JSON.stringify(json)
}

export function isList(value: unknown): value is ListValue {
  return (
    typeof value === 'object' &&
    value !== null &&
    Symbol.iterator in value &&
    !('keys' in value && 'has' in value) &&
    !(value instanceof Uint8Array)
  )
}

export function isMap(value: unknown): value is MapValue {
  return typeof value === 'object' && value !== null && 'keys' in value && 'has' in value
}

function isMessage(value: object): value is MessageValue {
  return 'desc' in value && 'message' in value
}

function formatMessage({ desc, message: { seconds, nanos } }: MessageValue): string {
  if (desc.typeName === 'google.protobuf.Timestamp') {
    return formatTime(Number(seconds) * 1_000 + Math.floor(nanos / 1e6))
  }
  const negative = seconds < 0n || nanos < 0
  const whole = seconds < 0n ? -seconds : seconds
  const fraction = Math.abs(nanos).toString().padStart(9, '0').replace(/0+$/, '')
  return `${negative ? '-' : ''}${whole}${fraction === '' ? '' : `.${fraction}`}s`
}

/** The number of items of a list; undefined for other values. */
export function listSize(value: unknown): number | undefined {
  return isCelList(value) ? value.size : undefined
}
