import { describe, expect, it } from 'vitest'
import { ACTIONS, policyJsonSchema } from '../../../src/policy/actions/all-actions.ts'
import { fieldsOf } from '../../helpers/schema-fields.ts'

type Schema = Record<string, unknown>

/** The parts of JSON Schema that this one is made of. */
function accepts(schema: Schema, value: unknown, root = policyJsonSchema() as Schema): boolean {
  const definitions = root.$defs as Record<string, Schema>
  if (typeof schema.$ref === 'string') {
    return accepts(definitions[schema.$ref.split('/').at(-1) ?? ''] ?? {}, value, root)
  }
  if (Array.isArray(schema.oneOf)) {
    return schema.oneOf.filter((option) => accepts(option, value, root)).length === 1
  }
  if ('const' in schema) return value === schema.const
  if (schema.type === 'array') {
    return (
      Array.isArray(value) &&
      value.every((item) => accepts((schema.items as Schema) ?? {}, item, root))
    )
  }
  if (schema.type !== 'object') return true
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const properties = (schema.properties ?? {}) as Record<string, Schema>
  const required = (schema.required ?? []) as string[]
  return (
    required.every((key) => key in value) &&
    Object.entries(value).every(([key, item]) => {
      const property = properties[key]
      return property ? accepts(property, item, root) : schema.additionalProperties !== false
    })
  )
}

const isAccepted = (value: unknown) => accepts(policyJsonSchema() as Schema, value)

describe('policyJsonSchema()', () => {
  it('is JSON and knows every action', () => {
    const schema = JSON.parse(JSON.stringify(policyJsonSchema()))
    expect(Object.keys(schema.$defs)).toEqual(Array.from(ACTIONS.keys()))
    expect(schema.$schema).toBe('https://json-schema.org/draft/2020-12/schema')
  })

  it.each([
    [{}],
    [{ on_http_request: [{ name: 'x', expressions: [], actions: [{ type: 'deny' }] }] }],
    [
      {
        on_http_response: [{ actions: [{ type: 'add-headers', config: { headers: { a: 'b' } } }] }],
      },
    ],
    [
      {
        on_http_request: [
          { actions: [{ type: 'circuit-breaker', config: { window_duration: '10s' } }] },
        ],
      },
    ],
  ])('accepts %j', (document) => {
    expect(isAccepted(document)).toBe(true)
  })

  it.each([
    [{ on_request: [] }],
    [{ on_http_request: [{}] }],
    [{ on_http_request: [{ actions: [{ type: 'teleport' }] }] }],
    [{ on_http_request: [{ actions: [{ type: 'compress-response' }] }] }],
    [{ on_http_request: [{ actions: [{ type: 'rate-limit' }] }] }],
    [{ on_http_request: [{ actions: [{ type: 'deny', config: { status: 1 } }] }] }],
  ])('does not accept %j', (document) => {
    expect(isAccepted(document)).toBe(false)
  })

  it.each(Array.from(ACTIONS.values()))('offers an example of $type, and accepts it', (action) => {
    const { type, example, phases } = action
    const { $defs } = JSON.parse(JSON.stringify(policyJsonSchema()))
    expect($defs[type].properties.config.examples).toEqual([example])
    for (const phase of phases) {
      expect(isAccepted({ [phase]: [{ actions: [{ type, config: example }] }] })).toBe(true)
    }
  })

  it.each(Array.from(ACTIONS.values()))(
    'tells editors what each field of $type means',
    (action) => {
      const { $defs } = JSON.parse(JSON.stringify(policyJsonSchema()))
      const meanings = fieldsOf($defs[action.type].properties.config).map(
        ({ path, schema: { description } }) => [path, description],
      )
      expect(Object.fromEntries(meanings)).toEqual(action.fields)
      expect(meanings.filter(([, text = '']) => !/^\S.*\.$/.test(text))).toEqual([])
    },
  )

  it('tells editors the bounds of fields', () => {
    const { $defs } = JSON.parse(JSON.stringify(policyJsonSchema()))
    expect($defs['rate-limit'].properties.config.properties.capacity).toMatchObject({
      type: 'integer',
      minimum: 1,
      maximum: 2_000_000_000,
    })
  })
})
