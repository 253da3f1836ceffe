import * as z from 'zod'

export type JsonSchema = Readonly<Record<string, unknown>>

/**
 * One method on one path of an API. Schemas are referred to by name. Their zod form is in the ApiDescription.
 */
export interface Operation {
  readonly id: string
  readonly summary: string
  /** Longer text. Default: the summary and the answers. */
  readonly description?: string
  readonly method: 'get' | 'post' | 'put' | 'patch' | 'delete'
  /** Parameters are in braces: `/tunnels/{url_part}`. */
  readonly path: string
  readonly query?: z.ZodObject
  readonly body?: string
  readonly hasOptionalBody?: boolean
  /** Whether the answer has an `ETag`. */
  readonly hasEtag?: boolean
  /** Whether `If-Match` and `If-None-Match` are supported. */
  readonly obeysConditions?: boolean
  /** By status. An answer without a schema has no body. All errors use the API's error schema. */
  readonly answers: Readonly<
    Record<
      number,
      { readonly means: string; readonly schema?: string; readonly mediaType?: string }
    >
  >
  /** Whether it is served without a token. */
  readonly isOpen?: boolean
}

/** Description of an API, from which `openApiDocument()` creates the document. */
export interface ApiDescription {
  readonly title: string
  readonly version: string
  readonly description: string
  readonly servers: readonly JsonSchema[]
  /**
   * Descriptions of resources, by the first part of their paths. Each resource has a tag, with or without
   * description.
   */
  readonly resources: Readonly<Record<string, string>>
  /** Descriptions of path parameters. */
  readonly parameters: Readonly<Record<string, string>>
  /** Example bodies and views, by name. */
  readonly examples: Readonly<Record<string, unknown>>
  /** Headers required for every operation with a token. */
  readonly headers?: Readonly<Record<string, JsonSchema>>
  /** Request bodies, by name. */
  readonly bodies: Readonly<Record<string, z.ZodType>>
  /** Response bodies, by name. */
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

/**
 * Returns the OpenAPI 3.1 document of an API. Its schemas are generated from the zod schemas that the API
 * uses.
 */
export function openApiDocument(api: ApiDescription): OpenApiDocument {
  const { title, version, description, bodies, views, operations, servers } = api
  const schemas = { ...componentsOf(bodies, 'input'), ...componentsOf(views, 'output') }
  const paths: Record<string, Record<string, JsonSchema>> = {}
  for (const operation of operations) {
    const path = paths[operation.path] ?? {}
    paths[operation.path] = { ...path, [operation.method]: operationObject(operation, api) }
  }
  return {
    openapi: '3.1.1',
    info: {
      title,
      version,
      description,
      contact: { name: 'device-agent documentation, in its source repository' },
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers,
    security: [{ bearer: [] }],
    tags: tagsOf(api),
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
    // Checks that zod makes in code are described by `meta`.
    unrepresentable: 'any',
  })
  return Object.fromEntries(
    Object.entries(schemas).map(([id, { $schema: _schema, $id: _id, ...schema }]) => [id, schema]),
  )
}

/** Returns the tags in alphabetical order. */
function tagsOf({ operations, resources }: ApiDescription) {
  const names = [...new Set(operations.map(tagOf))].sort()
  return names.map((name) => ({
    name,
    ...(resources[name] !== undefined && { description: resources[name] }),
  }))
}

/** Returns the tag of an operation: `tunnels` for the path `/tunnels/{url_part}`. */
function tagOf({ path }: Operation): string {
  return path.split('/')[1]?.replace(/\..*/, '') ?? ''
}

function describe({ summary, description, answers }: Operation): string {
  if (description !== undefined) return description
  const said = Object.entries(answers).map(([status, { means }]) => `${status}: ${means}`)
  return `${summary}. ${said.join(' ')}`
}

const CONDITIONS = {
  'If-Match': 'ETag of the state last read, or * for any state; otherwise 412',
  'If-None-Match': '*: the resource must not exist; otherwise 412',
}

function operationObject(operation: Operation, api: ApiDescription) {
  const { headers = {}, error } = api
  const { id, summary, path, query, body, answers, isOpen = false } = operation
  const { hasEtag = false, obeysConditions = false } = operation
  const required = !operation.hasOptionalBody
  const parameters = [
    ...Array.from(path.matchAll(/\{(\w+)\}/g), ([, name]) => ({
      name,
      in: 'path',
      required: true,
      description: api.parameters[name ?? ''] ?? 'identifier',
      schema: { type: 'string' },
    })),
    ...(query ? queryParameters(query) : []),
    ...(obeysConditions ? Object.entries(CONDITIONS).map(conditionParameter) : []),
    ...(isOpen ? [] : Object.entries(headers).map(headerParameter)),
  ]
  return {
    operationId: id,
    summary,
    description: describe(operation),
    tags: [tagOf(operation)],
    ...(parameters.length > 0 && { parameters }),
    ...(body && { requestBody: { required, ...jsonContent(body, api) } }),
    responses: {
      ...Object.fromEntries(
        Object.entries(answers).map(([status, { means, schema, mediaType }]) => [
          status,
          {
            description: means,
            ...(hasEtag && { headers: ETAG }),
            ...(schema && jsonContent(schema, api, mediaType)),
          },
        ]),
      ),
      default: {
        description: 'Error.',
        ...jsonContent(error.schema, api, error.mediaType),
      },
    },
    ...(isOpen && { security: [] }),
  }
}

const ETAG = {
  ETag: { description: 'version of the desired state, for If-Match', schema: { type: 'string' } },
}

function queryParameters(query: z.ZodObject): JsonSchema[] {
  const { properties = {}, required = [] } = z.toJSONSchema(query, { io: 'input' })
  return Object.entries(properties).map(([name, property]) => {
    const { description, ...schema } = property as JsonSchema
    return {
      name,
      in: 'query',
      required: required.includes(name),
      ...(description !== undefined && { description }),
      schema,
    }
  })
}

function headerParameter([name, schema]: [string, JsonSchema]): JsonSchema {
  return { name, in: 'header', required: true, schema }
}

function conditionParameter([name, description]: [string, string]): JsonSchema {
  return { name, in: 'header', required: false, description, schema: { type: 'string' } }
}

function jsonContent(
  schema: string,
  { examples }: Pick<ApiDescription, 'examples'>,
  mediaType = 'application/json',
) {
  const example = examples[schema]
  const content = { schema: reference(schema), ...(example !== undefined && { example }) }
  return { content: { [mediaType]: content } }
}

function reference(name: string) {
  return { $ref: `#/components/schemas/${name}` }
}
