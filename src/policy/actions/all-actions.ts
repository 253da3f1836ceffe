import * as z from 'zod'
import { ALLOW_AMBIGUOUS_PATHS } from '../document/document.ts'
import { PHASES, type Phase } from '../phase.ts'
import type { ActionDefinition } from './action.ts'
import { closeConnection, customResponse, deny, forwardInternal } from './answers.ts'
import { basicAuth } from './basic-auth.ts'
import { circuitBreaker } from './circuit-breaker.ts'
import { compressResponse } from './compress-response.ts'
import { requestBodyFindReplace, responseBodyFindReplace } from './find-replace.ts'
import { addHeaders, removeHeaders } from './headers.ts'
import { httpRequest } from './http-request.ts'
import { jwtValidation } from './jwt-validation.ts'
import { oauth, openidConnect } from './login.ts'
import { rateLimit } from './rate-limit.ts'
import { restrictIps } from './restrict-ips.ts'
import { log, setVars } from './set-vars.ts'
import { terminateTls } from './terminate-tls.ts'
import { redirect, urlRewrite } from './urls.ts'
import { verifyWebhook } from './verify-webhook.ts'

/** Every action, by the type that documents use. */
export const ACTIONS: ReadonlyMap<string, ActionDefinition> = new Map(
  [
    addHeaders,
    basicAuth,
    circuitBreaker,
    closeConnection,
    compressResponse,
    customResponse,
    deny,
    forwardInternal,
    httpRequest,
    jwtValidation,
    log,
    oauth,
    openidConnect,
    rateLimit,
    redirect,
    removeHeaders,
    requestBodyFindReplace,
    responseBodyFindReplace,
    restrictIps,
    setVars,
    terminateTls,
    urlRewrite,
    verifyWebhook,
  ].map((action) => [action.type, action]),
)

/** Actions that the hosted service has and a gateway on its own cannot, and why. */
export const UNAVAILABLE_ACTIONS: ReadonlyMap<string, string> = new Map([
  ['ai-gateway', 'it needs providers on the public internet'],
  ['owasp-crs-request', 'the rule set is too heavy for a gateway on a small machine'],
  ['owasp-crs-response', 'the rule set is too heavy for a gateway on a small machine'],
  ['saml', 'use openid-connect, which most identity providers support'],
  ['sse-find-replace', 'events are forwarded unchanged, and no other action changes them'],
])

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

function actionSchema({ type, config, fields, example }: ActionDefinition): Schema {
  const { $schema: _schema, ...schema } = z.toJSONSchema(config, { io: 'input' })
  describeFields(schema, fields)
  const isConfigNeeded = !config.safeParse({}).success
  return strictObject(
    { type: { const: type }, config: { ...schema, examples: [example] } },
    isConfigNeeded ? ['type', 'config'] : ['type'],
  )
}

/** Adds the texts of `fields` to the properties of a schema, at any depth. */
function describeFields(schema: FieldSchema, fields: ActionDefinition['fields'], path = ''): void {
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    if (typeof property === 'boolean') continue
    const at = `${path}${name}`
    property.description = fields[at] ?? ''
    describeFields(itemsOf(property), fields, `${at}.`)
  }
}

type FieldSchema = z.core.JSONSchema.BaseSchema

const itemsOf = (schema: FieldSchema): FieldSchema =>
  typeof schema.items === 'object' && !Array.isArray(schema.items) ? schema.items : schema

function strictObject(properties: Schema, required: readonly string[]): Schema {
  return { type: 'object', properties, required, additionalProperties: false }
}
