import * as z from 'zod'
import type { FieldKind, Fields } from './filter-kind.ts'

/** As much of a JSON Schema as views have. What may be null says so in either way. */
interface ViewSchema {
  readonly type?: string | readonly string[]
  readonly format?: string
  readonly properties?: Readonly<Record<string, ViewSchema>>
  readonly items?: ViewSchema
  readonly anyOf?: readonly ViewSchema[]
}

/** What filters can say about items with this view: its fields, those of objects in it as well. */
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

/** What the value is when it is there. */
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
