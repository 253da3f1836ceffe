/** The type of an expression, as far as it can be known before it runs. `dyn` may be anything. */
export interface Type {
  readonly name: string
  /** Of the items of a list or the values of a map; `dyn` when absent. */
  readonly of?: Type
}

export const DYN: Type = { name: 'dyn' }
export const BOOL: Type = { name: 'bool' }

/** Reads `string`, `list(string)`, `map(list(map(dyn)))`, … */
export function parseType(text: string): Type {
  const mark = text.indexOf('(')
  return mark === -1
    ? { name: text }
    : { name: text.slice(0, mark), of: parseType(text.slice(mark + 1, -1)) }
}

/** How people read it: `list(string)`. */
export function formatType({ name, of }: Type): string {
  return of ? `${name}(${formatType(of)})` : name
}

/** True when a value of type `given` may be meant where `wanted` is needed. */
export function canBe(given: Type, wanted: string): boolean {
  return wanted === 'dyn' || given.name === 'dyn' || given.name === wanted
}

/** The type of a value that is one or the other. */
export function either(a: Type, b: Type): Type {
  return formatType(a) === formatType(b) ? a : DYN
}
