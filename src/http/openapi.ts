import * as z from 'zod'

export type JsonSchema = Readonly<Record<string, unknown>>

/** One verb on one path of an API. Schemas are named; their zod form stands in the description. */
export interface Operation {
  readonly id: string
  readonly summary: string
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete'
  /** Parameters in braces: `/tunnels/{url_part}`. */
  readonly path: string
  readonly query?: z.ZodObject
  readonly body?: string
  readonly hasOptionalBody?: boolean
  /** By status. Without a schema the answer has no body. Every error is the API's own schema. */
  readonly answers: Readonly<
    Record<
      number,
      { readonly means: string; readonly schema?: string; readonly mediaType?: string }
    >
  >
  /** Served without a token. */
  readonly isOpen?: boolean
}

/** What an API says of itself; `openApiDocument()` writes it down. */
export interface ApiDescription {
  readonly title: string
  readonly version: string
  readonly description: string
  /** Required on every operation with a token. */
  readonly headers?: Readonly<Record<string, JsonSchema>>
  /** What clients send, by name. */
  readonly bodies: Readonly<Record<string, z.ZodType>>
  /** What clients get, by name. */
  readonly views: Readonly<Record<string, z.ZodType>>
  readonly error: { readonly schema: string; readonly mediaType: string }
  readonly operations: readonly Operation[]
}

export interface OpenApiDocument {
  readonly openapi: string
  readonly paths: Readonly<Record<string, Readonly<Record<string, JsonSchema>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, JsonSchema>>
    readonly securitySchemes: JsonSchema
  }
  readonly [member: string]: unknown
}

/** The OpenAPI 3.1 document of an API, its schemas made from the zod schemas that it works with. */
export function openApiDocument(api: ApiDescription): OpenApiDocument {
  const { title, version, description, bodies, views, operations } = api
  const schemas = { ...componentsOf(bodies, 'input'), ...componentsOf(views, 'output') }
  const paths: Record<string, Record<string, JsonSchema>> = {}
  for (const operation of operations) {
    const path = paths[operation.path] ?? {}
    paths[operation.path] = { ...path, [operation.method]: operationObject(operation, api) }
  }
  return {
    openapi: '3.1.1',
    info: { title, version, description },
    security: [{ bearer: [] }],
    paths,
    components: { schemas, securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } } },
  }
}

function componentsOf(
  named: Readonly<Record<string, z.ZodType>>,
  io: 'input' | 'output',
): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>()
  for (const [id, schema] of Object.entries(named)) registry.add(schema, { id })
  const { schemas } = z.toJSONSchema(registry, {
    io,
    uri: (id) => reference(id).$ref,
    // What zod checks with code alone is described by its `meta`.
    unrepresentable: 'any',
  })
  return Object.fromEntries(
    Object.entries(schemas).map(([id, { $schema: _schema, $id: _id, ...schema }]) => [id, schema]),
  )
}

function operationObject(operation: Operation, { headers = {}, error }: ApiDescription) {
  const { id, summary, path, query, body, answers, isOpen = false } = operation
  const required = !operation.hasOptionalBody
  const parameters = [
    ...Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => ({
      name,
      in: 'path',
      required: true,
      schema: { type: 'string' },
    })),
    ...(query ? queryParameters(query) : []),
    ...(isOpen ? [] : Object.entries(headers).map(headerParameter)),
  ]
  return {
    operationId: id,
    summary,
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required, ...jsonContent(body) } }),
    responses: {
      ...Object.fromEntries(
        Object.entries(answers).map(([status, { means, schema, mediaType }]) => [
          status,
          { description: means, ...(schema && jsonContent(schema, mediaType)) },
        ]),
      ),
      default: { description: 'Refused or failed.', ...jsonContent(error.schema, error.mediaType) },
    },
    ...(isOpen && { security: [] }),
  }
}

function queryParameters(query: z.ZodObject): JsonSchema[] {
  const { properties = {}, required = [] } = z.toJSONSchema(query, { io: 'input' })
  return Object.entries(properties).map(([name, schema]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    schema,
  }))
}

function headerParameter([name, schema]: [string, JsonSchema]): JsonSchema {
  return { name, in: 'header', required: true, schema }
}

function jsonContent(schema: string, mediaType = 'application/json') {
  return { content: { [mediaType]: { schema: reference(schema) } } }
}

function reference(name: string) {
  return { $ref: `#/components/schemas/${name}` }
}
