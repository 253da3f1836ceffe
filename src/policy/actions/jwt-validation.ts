import * as z from 'zod'
import { isHeaderName, listOf } from '../document/read-config.ts'
import { onlyValue, requestOf } from '../exchange/message-head.ts'
import { CONTINUE, NO_ERROR, type Outcome, refuse } from '../exchange/outcome.ts'
import { mediaType } from '../exchange/parsed-fields.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { type Account, jsonSteps, type Price } from '../expression/account.ts'
import type { Template } from '../expression/compiled-expression.ts'
import type { ValueInput } from '../expression/value.ts'
import { KeySource } from '../outbound/key-source.ts'
import { filePath } from '../outbound/outbound-allow.ts'
import {
  MAX_TOKEN,
  type TokenFailure,
  TokenVerifier,
  tokenSteps,
  tokenView,
} from '../outbound/token-verifier.ts'
import { type ActionContext, type ConfigPath, defineAction } from './action.ts'

/** Algorithms with public keys: a key set cannot contain secrets of the other algorithms. */
const ALGORITHMS = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
] as const
const TYPES = ['id_token', 'access_token', 'at+jwt', 'it+jwt', 'plain', 'jwt'] as const
const MAX_ITEMS = 10
const MAX_BODY = 262_144
/** Size in bytes from which a body takes long to read. */
const LARGE_BODY = 16_384
/** Prices of finding a token in a body, and of reading a token. */
const BODY_PRICE: Price = { call: 10, kib: 100 }
const TOKEN_PRICE: Price = { call: 1_000, kib: 200 }
/** Steps of a form field, and of an escape such as `%41`. */
const FIELD_STEPS = 6
const ESCAPE_STEPS = 1
/** Most steps to read a body in one piece. A body with more fields is not read. */
const MAX_BODY_STEPS = 16_384

const text = z.string().min(1).max(4_096)
const allowList = listOf(z.strictObject({ value: text }), MAX_ITEMS)

const config = z.strictObject({
  issuer: z.strictObject({ allow_list: allowList }),
  audience: z.strictObject({ allow_list: allowList }).optional(),
  http: z.strictObject({
    tokens: listOf(
      z.strictObject({
        type: z.enum(TYPES),
        method: z.enum(['header', 'body']),
        name: text,
        prefix: z.string().max(128).default(''),
      }),
      MAX_ITEMS,
    ),
  }),
  jws: z.strictObject({
    allowed_algorithms: listOf(z.enum(ALGORITHMS), ALGORITHMS.length),
    keys: z.strictObject({
      sources: z.strictObject({ additional_jkus: listOf(text, MAX_ITEMS) }),
      identification: z.strictObject({ token_claims: z.array(z.literal('kid')) }).optional(),
    }),
  }),
})

type Config = z.output<typeof config>

interface TokenPlace {
  readonly method: 'header' | 'body'
  readonly name: Template<PolicyExchange>
  readonly prefix: Template<PolicyExchange>
}

/** Admits requests with all listed tokens, each signed by a key of the sources. */
export const jwtValidation = defineAction({
  type: 'jwt-validation',
  phases: ['on_http_request'],
  config,
  fields: {
    issuer: 'Accepted issuers.',
    'issuer.allow_list': 'The claim iss must be one of these.',
    'issuer.allow_list.value': 'Issuer, as in the claim. May contain expressions.',
    audience: 'Accepted audiences. Without it, the claim aud is not checked.',
    'audience.allow_list': 'The claim aud must have one of these.',
    'audience.allow_list.value': 'Audience, as in the claim.',
    http: 'Places of the tokens.',
    'http.tokens': 'Tokens of a request. All must be valid.',
    'http.tokens.type': 'Kind of the token. It has no effect here.',
    'http.tokens.method':
      'header: a header; body: a field of a JSON or form body of POST, PUT or PATCH.',
    'http.tokens.name': 'Name of the header or field. May contain expressions.',
    'http.tokens.prefix':
      'Text before the token, such as Bearer with a blank, in any case. May contain expressions.',
    jws: 'Accepted signatures.',
    'jws.allowed_algorithms': 'Accepted algorithms, all with public keys.',
    'jws.keys': 'Keys of the issuers.',
    'jws.keys.sources': 'Sources of the keys.',
    'jws.keys.sources.additional_jkus':
      'https:, http: or file: URLs of JWKS. GATEWAY_OUTBOUND_ALLOW must allow them.',
    'jws.keys.identification': 'Part of a token that names its key. It has no effect here.',
    'jws.keys.identification.token_claims': 'Name of that part.',
  },
  example: {
    issuer: { allow_list: [{ value: 'https://issuer.example/' }] },
    audience: { allow_list: [{ value: 'devices' }] },
    http: {
      tokens: [{ type: 'jwt', method: 'header', name: 'authorization', prefix: 'Bearer ' }],
    },
    jws: {
      allowed_algorithms: ['ES256'],
      keys: {
        sources: { additional_jkus: ['https://issuer.example/jwks.json'] },
        identification: { token_claims: ['kid'] },
      },
    },
  },
  results: {
    tokens: 'list(token)',
    'error.code': 'string',
    'error.message': 'string',
  },
  build(parts, context) {
    const places = parts.http.tokens.map(({ method, name, prefix }, index): TokenPlace => {
      const path = ['http', 'tokens', index]
      if (method === 'header' && !name.includes('${') && !isHeaderName(name)) {
        context.problem('badHeader', [...path, 'name'], `${name} is not a valid header name.`)
      }
      return {
        method,
        name: context.template(name, [...path, 'name']),
        prefix: context.template(prefix, [...path, 'prefix']),
      }
    })
    const issuers = parts.issuer.allow_list.map(({ value }, index) =>
      context.template(value, ['issuer', 'allow_list', index, 'value']),
    )
    const audiences = parts.audience?.allow_list.map(({ value }) => value) ?? []
    const verifier = createVerifier(parts, context)
    return async (exchange) => {
      const rules = {
        issuers: issuers.map((issuer) => issuer.render(exchange)),
        audiences,
        algorithms: parts.jws.allowed_algorithms,
      }
      const tokens: ValueInput[] = []
      let fields: Promise<BodyFields> | undefined
      const readFields = () => {
        fields ??= bodyFields(exchange, context)
        return fields
      }
      let failure: TokenFailure | undefined
      for (const place of places) {
        const { token, name, missing } = await findToken(exchange, place, readFields)
        exchange.account.pay(TOKEN_PRICE, [token])
        exchange.account.spend(tokenSteps(token))
        const found = missing ?? (await verifier.findFailure(token, rules))
        tokens.push(tokenView(token, { method: place.method, name }, found === undefined))
        failure ??= found
      }
      const error = failure ? { code: failure.code, message: failure.message } : NO_ERROR
      exchange.results.set('jwt_validation', { tokens, error })
      return failure ? refuseToken(failure) : CONTINUE
    }
  },
})

/** Key sources are kept when the policy changes and this action does not. */
function createVerifier({ jws }: Config, context: ActionContext): TokenVerifier {
  const urls = jws.keys.sources.additional_jkus.flatMap((address, index) => {
    const path = ['jws', 'keys', 'sources', 'additional_jkus', index]
    const url = URL.canParse(address) ? new URL(address) : undefined
    if (url?.protocol === 'file:') {
      refuseFile(url, path, context)
      return url
    }
    if (url && ['https:', 'http:'].includes(url.protocol)) return url
    context.problem('badValue', path, `${address} is not an https:, http: or file: URL.`)
    return []
  })
  const { clock, reach } = context
  return context.carry(
    () =>
      new TokenVerifier(
        urls.map((url) => new KeySource({ url, clock, reach })),
        clock,
      ),
  )
}

/** A device that checks a policy cannot know which files the gateway allows. */
function refuseFile({ href }: URL, path: ConfigPath, { reach, problem }: ActionContext): void {
  const file = filePath(href)
  if (file === undefined)
    problem('badValue', path, `${href} is not a file URL. Write file:///path.`)
  else if (!reach.isElsewhere && reach.mayRead && !reach.mayRead(file)) {
    const sentence = `GATEWAY_OUTBOUND_ALLOW does not allow policies to read ${href}.`
    problem('badValue', path, sentence)
  }
}

interface FoundToken {
  readonly token: string
  readonly name: string
  readonly missing?: TokenFailure
}

async function findToken(
  exchange: PolicyExchange,
  place: TokenPlace,
  readFields: () => Promise<BodyFields>,
): Promise<FoundToken> {
  const name = place.name.render(exchange)
  const prefix = place.prefix.render(exchange)
  const value =
    place.method === 'header'
      ? onlyValue(requestOf(exchange).headers, name)
      : (await readFields()).get(name.toLowerCase())
  if (typeof value !== 'string') {
    const code = place.method === 'header' ? 'ERR_NGROK_3408' : 'ERR_NGROK_3406'
    return { token: '', name, missing: unauthorized(code, 'A token is missing.') }
  }
  if (!value.toLowerCase().startsWith(prefix.toLowerCase())) {
    return {
      token: '',
      name,
      missing: unauthorized('ERR_NGROK_3413', 'The token lacks the required prefix.'),
    }
  }
  const token = value.slice(prefix.length).trim()
  if (token.length <= MAX_TOKEN) return { token, name }
  const sentence = `The token is longer than ${MAX_TOKEN} characters.`
  return { token: '', name, missing: unauthorized('ERR_NGROK_3416', sentence) }
}

/** The fields of a body by name in lower case; of several the first. */
type BodyFields = ReadonlyMap<string, unknown>

const NO_FIELDS: BodyFields = new Map()

/** Reads JSON and form bodies; a body that cannot be read, or has too many fields, has no token. */
async function bodyFields(
  exchange: PolicyExchange,
  { inTurn }: ActionContext,
): Promise<BodyFields> {
  const request = requestOf(exchange)
  if (!['POST', 'PUT', 'PATCH'].includes(request.method)) return NO_FIELDS
  const body = await request.readBody(MAX_BODY)
  if (!body) return NO_FIELDS
  const { account } = exchange
  account.pay(BODY_PRICE, [body])
  const type = mediaType(request.headers.get('content-type') ?? '')
  const read = () => readFields(body, type, account)
  return body.length > LARGE_BODY ? inTurn(read) : read()
}

function readFields(body: Buffer, type: string | undefined, account: Account): BodyFields {
  const text = body.toString()
  const mayRead = (steps: number) => {
    if (steps > MAX_BODY_STEPS) return false
    account.spend(steps)
    return true
  }
  switch (type) {
    case 'application/x-www-form-urlencoded':
      return mayRead(formSteps(text)) ? byLowerName(new URLSearchParams(text)) : NO_FIELDS
    case 'application/json':
      return mayRead(jsonSteps(text)) ? jsonFields(text) : NO_FIELDS
    default:
      return NO_FIELDS
  }
}

function formSteps(text: string): number {
  return FIELD_STEPS * (1 + countOf('&', text)) + ESCAPE_STEPS * countOf('%', text)
}

function countOf(sign: string, text: string): number {
  let count = 0
  for (let at = text.indexOf(sign); at !== -1; at = text.indexOf(sign, at + 1)) count += 1
  return count
}

function jsonFields(text: string): BodyFields {
  try {
    const fields: unknown = JSON.parse(text)
    return typeof fields === 'object' && fields !== null
      ? byLowerName(Object.entries(fields))
      : NO_FIELDS
  } catch {
    return NO_FIELDS
  }
}

function byLowerName(entries: Iterable<[name: string, value: unknown]>): BodyFields {
  const fields = new Map<string, unknown>()
  for (const [name, value] of entries) {
    const lower = name.toLowerCase()
    if (!fields.has(lower)) fields.set(lower, value)
  }
  return fields
}

const unauthorized = (code: string, message: string): TokenFailure => ({
  status: 401,
  code,
  message,
})

/** RFC 6750 3: a 401 says how to do better. */
function refuseToken({ status, code, message }: TokenFailure): Outcome {
  return refuse(status, code, message, status === 401 ? ['www-authenticate', 'Bearer'] : [])
}
