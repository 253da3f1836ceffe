/** The parts of a JSON Schema that tables of fields need. */
export interface FieldSchema {
  readonly type?: string
  readonly description?: string
  readonly default?: unknown
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
  readonly maxItems?: number
  readonly items?: FieldSchema
  readonly properties?: Readonly<Record<string, FieldSchema>>
  readonly required?: readonly string[]
}

export interface SchemaField {
  /** `replacements.from` */
  readonly path: string
  readonly schema: FieldSchema
  readonly isRequired: boolean
}

/** All fields of an object, each before the fields in it. */
export function fieldsOf(
  { properties = {}, required = [] }: FieldSchema,
  before = '',
): SchemaField[] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const path = `${before}${name}`
    return [
      { path, schema, isRequired: required.includes(name) },
      ...fieldsOf(schema.items ?? schema, `${path}.`),
    ]
  })
}

/** A row of a table: field, values, default, meaning. */
export function fieldRow({ path, schema, isRequired }: SchemaField): string[] {
  const isEmpty = ['', '[]', '{}', undefined].includes(textOf(schema.default))
  const preset = isEmpty ? '' : code(schema.default)
  const meaning = (schema.description ?? '').replaceAll('|', '\\|').replace(/\.$/, '')
  return [code(path), valuesOf(schema), isRequired ? 'required' : preset, meaning]
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value))
const code = (value: unknown) => `\`${Array.isArray(value) ? value.join('`, `') : value}\``
const count = (most: number) => most.toLocaleString('en')

function valuesOf(schema: FieldSchema): string {
  if (schema.const !== undefined) return code(schema.const)
  if (schema.enum) return code(schema.enum)
  const { type, minimum, maximum = 0, maxLength, maxItems, items } = schema
  const range = minimum === undefined ? '' : ` from ${count(minimum)} to ${count(maximum)}`
  switch (type) {
    case 'string':
      return maxLength === undefined ? 'text' : `text, up to ${count(maxLength)} characters`
    case 'integer':
      return `whole number${range}`
    case 'boolean':
      return '`true`, `false`'
    case 'array': {
      const of = items?.enum ?? (items?.const === undefined ? undefined : [items.const])
      const list = maxItems === undefined ? 'list' : `list, up to ${count(maxItems)}`
      return of ? `list: ${code(of)}` : list
    }
    default:
      return `${type}${range}`
  }
}
