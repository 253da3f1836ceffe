import * as z from 'zod'
import {
  type ExpressionFunction,
  fnWithin,
} from '../../../policy/expression/expression-function.ts'
import { call, type Node, text } from '../../../policy/expression/expression-tree.ts'
import type { ValueInput } from '../../../policy/expression/value.ts'

/** Kind of a field; `list`: a list whose members cannot be queried. */
type FieldKind = 'bool' | 'number' | 'text' | 'time' | 'texts' | 'list' | 'object'

/** The fields that items have, by dotted name: `id`, `credential.id`, … */
export type Fields = ReadonlyMap<string, FieldKind>

/** Kind of a filter's part. */
export type Kind = FieldKind | 'null'

/** How people are told. */
export const SHOWN: Readonly<Record<Kind, string>> = {
  bool: 'true or false',
  number: 'a number',
  text: 'a string',
  time: 'a time',
  texts: 'a list of strings',
  list: 'a list',
  object: 'an object',
  null: 'null',
}

export const EQUATED: readonly Kind[] = ['bool', 'number', 'text', 'time']
export const ORDERED: readonly Kind[] = ['number', 'text', 'time']

/** By the parser's name of a constant; bytes are not part of filters. */
export const CONSTANT_KINDS: Readonly<Record<string, Kind>> = {
  boolValue: 'bool',
  doubleValue: 'number',
  int64Value: 'number',
  nullValue: 'null',
  stringValue: 'text',
  uint64Value: 'number',
}

/** Advice for a comparison of two kinds, added to the refusal. */
export function adviceOn(left: Kind, right: Kind): string {
  const kinds = [left, right]
  if (kinds.includes('time') && kinds.includes('text')) {
    return ': write the time as timestamp("2030-01-31T09:00:00Z")'
  }
  if (kinds.includes('texts')) return ': use in or size() for a list'
  if (kinds.includes('object')) return ': use a field of the object'
  if (kinds.includes('null')) return ': only a field can be null'
  return ''
}

/** The used part of JSON Schema. Both ways to allow null are supported. */
interface ViewSchema {
  readonly type?: string | readonly string[]
  readonly format?: string
  readonly properties?: Readonly<Record<string, ViewSchema>>
  readonly items?: ViewSchema
  readonly anyOf?: readonly ViewSchema[]
}

/** Fields for filters of items with this view, including fields of nested objects. */
export function fieldKinds(view: z.ZodObject): Fields {
  const kinds = new Map<string, FieldKind>()
  addFields(kinds, '', z.toJSONSchema(view, { io: 'output' }) as ViewSchema)
  return kinds
}

function addFields(kinds: Map<string, FieldKind>, start: string, schema: ViewSchema): void {
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const present = withoutNull(property)
    const path = `${start}${name}`
    kinds.set(path, kindOf(present))
    addFields(kinds, `${path}.`, present)
  }
}

/** The schema without null. */
function withoutNull(schema: ViewSchema): ViewSchema {
  return schema.anyOf?.find(({ type }) => type !== 'null') ?? schema
}

function kindOf({ type, format, items }: ViewSchema): FieldKind {
  switch ([type].flat().find((name) => name !== 'null')) {
    case 'boolean':
      return 'bool'
    case 'number':
    case 'integer':
      return 'number'
    case 'string':
      return format === 'date-time' ? 'time' : 'text'
    case 'array':
      return items?.type === 'string' ? 'texts' : 'list'
    default:
      return 'object'
  }
}

const TEXT = '@text'
const LIST = '@list'
const TIME = '@time'
const VALUE = '@value'
const IS_THERE = '@is_there'

/** Function that reads a field of each kind. */
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
 * Reads fields of a JSON item by dotted name. A missing text or list is empty. A time is in milliseconds
 * since the epoch. Other missing values are null.
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

/** Only paths of known fields come here, so inherited properties cannot be read. */
function valueAt(item: object, path: string): ValueInput | undefined {
  let value: unknown = item
  for (const name of path.split('.')) {
    value = (value as Readonly<Record<string, unknown>> | null | undefined)?.[name]
  }
  return value as ValueInput | undefined
}
