import * as z from 'zod'
import { ALLOW_AMBIGUOUS_PATHS } from '../document/document.ts'
import { PHASES, type Phase } from '../phase.ts'
import type { ActionDefinition } from './action.ts'
import { ACTIONS } from './all-actions.ts'

type Schema = Readonly<Record<string, unknown>>

/** A JSON Schema (2020-12) of policy documents, for editors. Expressions it takes as texts. */
export function policyJsonSchema(): Schema {
  const actions = Array.from(ACTIONS.values())
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Traffic policy',
    ...strictObject(
      {
        [ALLOW_AMBIGUOUS_PATHS]: { type: 'boolean', default: false },
        ...Object.fromEntries(PHASES.map((phase) => [phase, rulesOf(phase, actions)])),
      },
      [],
    ),
    $defs: Object.fromEntries(actions.map((action) => [action.type, actionSchema(action)])),
  }
}

function rulesOf(phase: Phase, actions: readonly ActionDefinition[]): Schema {
  const possible = actions.filter(({ phases }) => phases.includes(phase))
  const rule = strictObject(
    {
      name: { type: 'string' },
      expressions: { type: 'array', items: { type: 'string' } },
      actions: {
        type: 'array',
        minItems: 1,
        items: { oneOf: possible.map(({ type }) => ({ $ref: `#/$defs/${type}` })) },
      },
    },
    ['actions'],
  )
  return { type: 'array', items: rule }
}

function actionSchema({ type, config, example }: ActionDefinition): Schema {
  const { $schema: _schema, ...schema } = z.toJSONSchema(config, { io: 'input' })
  const isConfigNeeded = !config.safeParse({}).success
  return strictObject(
    { type: { const: type }, config: { ...schema, examples: [example] } },
    isConfigNeeded ? ['type', 'config'] : ['type'],
  )
}

function strictObject(properties: Schema, required: readonly string[]): Schema {
  return { type: 'object', properties, required, additionalProperties: false }
}
