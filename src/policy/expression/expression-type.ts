/** The type of an expression, as far as it can be known before it runs. `dyn` may be anything. */
export interface Type {
  readonly name: string
  /** Type of list items or map values; default `dyn`. */
  readonly of?: Type
  /** Type of map keys; default `dyn`. */
  readonly key?: Type
  /** The name of a map that has certain fields. */
  readonly record?: string
}

/** Maps with certain fields, and the types of these. */
const RECORDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  cookie: { name: 'string', value: 'string' },
  set_cookie: {
    name: 'string',
    value: 'string',
    domain: 'string',
    path: 'string',
    expires: 'timestamp',
    max_age: 'duration',
    http_only: 'bool',
    secure: 'bool',
    same_site: 'string',
    unparsed_attributes: 'list(string)',
  },
  extension: { id: 'string', critical: 'bool', value: 'bytes' },
  token: {
    header: 'map(dyn)',
    location: 'string',
    location_property: 'string',
    payload: 'map(dyn)',
    signature: 'string',
    verified: 'bool',
  },
  attempt: {
    resolved_ip: 'string',
    response_header: 'map(list(string))',
    response_status_code: 'int',
    response_time_ms: 'int',
  },
  last_attempt: { req: 'asked_request', res: 'asked_response', error: 'result_error' },
  asked_request: { method: 'string', url: 'string', header: 'map(list(string))', body: 'string' },
  asked_response: {
    status_code: 'int',
    header: 'map(list(string))',
    body: 'string',
    time_ms: 'int',
    resolved_ip: 'string',
  },
  result_error: { code: 'string', message: 'string' },
  replacement: { replacement_index: 'int', matched_content: 'string' },
}

export const DYN: Type = { name: 'dyn' }
export const BOOL: Type = { name: 'bool' }
const STRING: Type = { name: 'string' }
const NULLABLE: ReadonlySet<string> = new Set(['null_type', 'timestamp', 'duration'])

/** Reads `string`, `list(string)`, `map(list(cookie))`, … */
export function parseType(text: string): Type {
  const mark = text.indexOf('(')
  if (Object.hasOwn(RECORDS, text)) return { name: 'map', record: text }
  if (mark === -1) return { name: text }
  const type = { name: text.slice(0, mark), of: parseType(text.slice(mark + 1, -1)) }
  return type.name === 'map' ? { ...type, key: STRING } : type
}

/** How people read it: `list(string)`. */
export function formatType({ name, of, record }: Type): string {
  if (record !== undefined) return record
  return of ? `${name}(${formatType(of)})` : name
}

/** With its article: `an int`. */
export function aType(type: Type): string {
  const text = formatType(type)
  return /^[aeiou]/.test(text) ? `an ${text}` : `a ${text}`
}

/** True when a value of type `given` may be meant where `wanted` is needed. */
export function canBe(given: Type, wanted: string): boolean {
  return wanted === 'dyn' || given.name === 'dyn' || given.name === wanted
}

/**
 * Whether `==` compares the two types: they have to be the same type, as far as they are known. Numbers of
 * different types, which `<` compares, are never equal.
 */
export function canEqual(a: Type, b: Type): boolean {
  if (a.name === 'dyn' || b.name === 'dyn') return true
  if (a.name === 'null_type') return canBeNull(b)
  if (b.name === 'null_type') return canBeNull(a)
  if (a.name !== b.name || !canEqual(a.key ?? DYN, b.key ?? DYN)) return false
  if (a.record !== undefined && b.record !== undefined) return a.record === b.record
  return canEqual(a.of ?? DYN, b.of ?? DYN)
}

const canBeNull = ({ name, record }: Type) => NULLABLE.has(name) || record !== undefined

/** Type of the value that `in` searches in this type. */
export function memberType({ name, of, key }: Type): Type {
  return (name === 'map' ? key : of) ?? DYN
}

/** Type of a map field, or of list items; undefined if there is no such field. */
export function partType({ of, record }: Type, field: string | undefined): Type | undefined {
  if (record === undefined || field === undefined) return of ?? DYN
  const fields = RECORDS[record] ?? {}
  return Object.hasOwn(fields, field) ? parseType(fields[field] ?? 'dyn') : undefined
}

/** The names of the fields that a map certainly can have. */
export function fieldNames({ record }: Type): string[] {
  return Object.keys(RECORDS[record ?? ''] ?? {})
}

/** The type of a value that is one or the other. */
export function either(a: Type, b: Type): Type {
  if (formatType(a) !== formatType(b)) return DYN
  return a.key?.name === b.key?.name ? a : { ...a, key: DYN }
}
