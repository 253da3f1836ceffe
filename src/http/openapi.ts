import * as z from 'zod'
import { maxBytesOf } from './json-body.ts'
import { type NamedSchema, type Operation, placeOf, type Route } from './routes.ts'

export type JsonSchema = Readonly<Record<string, unknown>>

/** Description of an API, from which `openApiDocument()` creates the document. */
export interface ApiDescription {
  readonly title: string
  readonly version: string
  readonly description: string
  readonly servers: readonly JsonSchema[]
  /** Descriptions of path parameters. */
  readonly parameters: Readonly<Record<string, string>>
  /** Example bodies and views, by name. */
  readonly examples: Readonly<Record<string, unknown>>
  /** Headers required for every operation with a token. */
  readonly headers?: Readonly<Record<string, JsonSchema>>
  /** Schemas that other schemas refer to by name. */
  readonly parts?: NamedSchema
  readonly error: { readonly schema: NamedSchema; readonly mediaType: string }
  readonly routes: readonly Route[]
}

/** A route of the document. */
interface Documented extends Operation, ReturnType<typeof placeOf>, Pick<Route, 'before'> {}

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
  const { title, version, description, servers } = api
  const operations = api.routes.flatMap((route): Documented[] =>
    'isInternal' in route ? [] : [{ ...route, ...placeOf(route) }],
  )
  const answers = operations.flatMap((operation) => Object.values(operation.answers))
  const bodies = operations.map(({ body }) => body)
  const views = [api.parts, api.error.schema, ...answers.map(({ schema }) => schema)]
  const schemas = sorted({ ...componentsOf(bodies, 'input'), ...componentsOf(views, 'output') })
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
    tags: tagsOf(operations),
    paths,
    components: { schemas, securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } } },
  }
}

function componentsOf(
  named: readonly (NamedSchema | undefined)[],
  io: 'input' | 'output',
): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>()
  const byName = new Map<string, z.ZodType>()
  for (const [id, schema] of named.flatMap((it) => Object.entries(it ?? {}))) {
    if (byName.has(id) && byName.get(id) !== schema) throw new Error(`two schemas are named ${id}`)
    byName.set(id, schema)
  }
  for (const [id, schema] of byName) registry.add(schema, { id })
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

function sorted(schemas: Record<string, JsonSchema>): Record<string, JsonSchema> {
  return Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** Returns the tags in alphabetical order. */
function tagsOf(operations: readonly Documented[]) {
  const names = [...new Set(operations.map(tagOf))].sort()
  return names.map((name) => {
    const told = operations.find((it) => tagOf(it) === name && it.about !== undefined)
    return { name, ...(told && { description: told.about }) }
  })
}

/** Returns the tag of an operation: `tunnels` for the path `/tunnels/{url_part}`. */
function tagOf({ path }: Documented): string {
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

function operationObject(operation: Documented, api: ApiDescription) {
  const { headers = {}, error } = api
  const { id, summary, path, query, body, answers, isOpen = false } = operation
  const { hasEtag = false, hasLocation = false, obeysConditions = false } = operation
  const answered = { ...(hasEtag && ETAG), ...(hasLocation && LOCATION) }
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
    ...(body && {
      requestBody: { required, description: bodyText(operation), ...jsonContent(body, api) },
    }),
    responses: {
      ...Object.fromEntries(
        Object.entries(answers).map(([status, { means, schema, mediaType }]) => [
          status,
          {
            description: means,
            ...(Object.keys(answered).length > 0 && { headers: answered }),
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

const LOCATION = {
  Location: { description: 'path of the created resource', schema: { type: 'string' } },
}

/** Describes the body by its limit, which the route's parser of the body has. */
function bodyText({ before = [] }: Documented): string {
  const [maxBytes] = before.flatMap((handler) => maxBytesOf(handler) ?? [])
  if (maxBytes === undefined) throw new Error('a body without a limit')
  return `JSON, at most ${sizeText(maxBytes)}.`
}

/** `64 KiB` or `4 MiB`. */
export function sizeText(bytes: number): string {
  const mebibytes = bytes / 1_048_576
  return mebibytes >= 1 ? `${mebibytes} MiB` : `${bytes / 1_024} KiB`
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
  named: NamedSchema,
  { examples }: Pick<ApiDescription, 'examples'>,
  mediaType = 'application/json',
) {
  const [name = ''] = Object.keys(named)
  const example = examples[name]
  const content = { schema: reference(name), ...(example !== undefined && { example }) }
  return { content: { [mediaType]: content } }
}

function reference(name: string) {
  return { $ref: `#/components/schemas/${name}` }
}
