import {
  type ExpressionFunction,
  fnWithin,
} from '../../../policy/expression/expression-function.ts'
import { call, type Node, text } from '../../../policy/expression/expression-tree.ts'
import type { ValueInput } from '../../../policy/expression/value.ts'
import type { FieldKind } from './filter-kind.ts'

const TEXT = '@text'
const LIST = '@list'
const TIME = '@time'
const VALUE = '@value'
const IS_THERE = '@is_there'

/** What reads a field of each kind. */
const READERS: Readonly<Record<FieldKind, string>> = {
  bool: VALUE,
  number: VALUE,
  object: VALUE,
  text: TEXT,
  time: TIME,
  texts: LIST,
  list: LIST,
}

/**
 * Fields of an item of JSON, by dotted name. A text or a list that is missing is an empty one, a
 * time is in milliseconds since the epoch, and everything else that is missing is null.
 */
export const FIELD_FUNCTIONS: readonly ExpressionFunction<object>[] = [
  field(TEXT, 'string', (value) => value ?? ''),
  field(LIST, 'list', (value) => value ?? []),
  field(TIME, 'double', (value) => (typeof value === 'string' ? Date.parse(value) : null)),
  field(VALUE, 'dyn', (value) => value ?? null),
  field(IS_THERE, 'bool', (value) => value !== undefined && value !== null),
]

/** The expression that reads a field. */
export function readField(id: bigint, path: string, kind: FieldKind): Node {
  return call(id, READERS[kind], [text(id, path)])
}

/** The expression that asks whether a field is there and not null. */
export function isThere(id: bigint, path: string): Node {
  return call(id, IS_THERE, [text(id, path)])
}

function field(
  name: string,
  result: string,
  read: (value: ValueInput | undefined) => ValueInput,
): ExpressionFunction<object> {
  return fnWithin(name, ['string'], result, ({ subject }, path) => read(valueAt(subject, path)))
}

/** Paths are those of known fields, so nothing that objects inherit can be named. */
function valueAt(item: object, path: string): ValueInput | undefined {
  let value: unknown = item
  for (const name of path.split('.')) {
    value = (value as Readonly<Record<string, unknown>> | null | undefined)?.[name]
  }
  return value as ValueInput | undefined
}
