/** What the field of an item holds; `list` is one whose members cannot be asked for. */
export type FieldKind = 'bool' | 'number' | 'text' | 'time' | 'texts' | 'list' | 'object'

/** The fields that items have, by dotted name: `id`, `credential.id`, … */
export type Fields = ReadonlyMap<string, FieldKind>

/** What a part of a filter comes to. */
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

/** What to write instead of a comparison of the two, to be added to the refusal. */
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
