import { type CelInput, celList, celMap } from '@bufbuild/cel'
import type { ListValue, MapValue, Value, ValueInput } from './value.ts'

/**
 * Values as the evaluator keeps them. Arrays and plain maps will do, too, but what stands in them is
 * wrapped anew each time that an expression looks at it.
 */
export const listOf = (items: readonly ValueInput[]): ListValue =>
  celList(items as readonly CelInput[]) as ListValue

export const mapOf = (entries: ReadonlyMap<string, ValueInput>): MapValue =>
  celMap(entries as ReadonlyMap<string, CelInput>) as unknown as MapValue

/** Parsed JSON as a value; objects become maps, whatever their keys are. */
export function valueOfJson(json: unknown): Value {
  if (typeof json !== 'object' || json === null) return json as Value
  if (Array.isArray(json)) return listOf(json.map(valueOfJson))
  const entries = new Map<string, Value>()
  for (const key of Object.keys(json)) {
    entries.set(key, valueOfJson((json as Record<string, unknown>)[key]))
  }
  return mapOf(entries)
}
