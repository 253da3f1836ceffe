import { createHash, timingSafeEqual } from 'node:crypto'
import * as z from 'zod'
import { listOf, problem } from '../document/read-config.ts'
import { onlyValue, requestOf } from '../exchange/message-head.ts'
import { CONTINUE, respond } from '../exchange/outcome.ts'
import type { Price } from '../expression/account.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { defineAction } from './action.ts'

const MAX_CREDENTIALS = 10
const MIN_PASSWORD = 8
const MAX_PASSWORD = 128
const MAX_REALM = 128
/** Steps of one digest and one comparison. */
const DIGEST_STEPS = 50
/** Price of reading a header field. */
const FIELD_PRICE: Price = { call: 0, kib: 100 }

/** Asks for a name and a password (RFC 7617). */
export const basicAuth = defineAction({
  type: 'basic-auth',
  phases: ['on_http_request'],
  config: z.strictObject({
    credentials: listOf(z.string().min(1).max(4_096), MAX_CREDENTIALS),
    realm: z
      .string()
      .max(MAX_REALM)
      .refine((text) => /^[ -~]*$/.test(text), problem('badValue', 'The realm must be ASCII.'))
      .default('ngrok'),
    enforce: z.boolean().default(true),
  }),
  fields: {
    credentials: `Pairs name:password, of which one must match. A password has ${MIN_PASSWORD} to ${MAX_PASSWORD} characters. May contain expressions.`,
    realm:
      'Name that browsers may show when they ask for the password, in ASCII. The default is that of the hosted service.',
    enforce: 'false: only sets the result credentials.authorized, and refuses nothing.',
  },
  example: { credentials: ['name:a long password'], realm: 'device', enforce: true },
  results: {
    'credentials.presented': 'bool',
    'credentials.username': 'string',
    'credentials.authorized': 'bool',
  },
  build({ credentials, realm, enforce }, context) {
    const expected = credentials.map((text, index) => {
      const template = context.template(text, ['credentials', index])
      const { constant } = template
      if (constant === undefined) return { template, digest: undefined }
      const { user, password } = splitPair(constant)
      if (user === '') {
        context.problem('emptyUser', ['credentials', index], 'Write credentials as name:password.')
      } else if (password.length < MIN_PASSWORD || password.length > MAX_PASSWORD) {
        const message = `A password must have ${MIN_PASSWORD} to ${MAX_PASSWORD} characters.`
        context.problem('passwordLength', ['credentials', index], message)
      }
      return { template, digest: digestOf(constant) }
    })
    const quoted = realm.replace(/["\\]/g, '\\$&')
    const challenge = respond({
      status: 401,
      headers: ['www-authenticate', `Basic realm="${quoted}", charset="UTF-8"`],
      body: '',
    })
    return (exchange) => {
      const field = onlyValue(requestOf(exchange).headers, 'authorization')
      exchange.account.pay(FIELD_PRICE, [field])
      const presented = readBasic(field)
      let authorized = false
      if (presented !== undefined) {
        exchange.account.spend(DIGEST_STEPS * (1 + expected.length))
        const digest = digestOf(presented)
        // Every pair is compared, so that time does not tell which one came close.
        for (const { template, digest: known } of expected) {
          const wanted = known ?? digestOf(pairOf(template.render(exchange)))
          if (timingSafeEqual(wanted, digest)) authorized = true
        }
      }
      exchange.results.set('basic_auth', {
        credentials: {
          presented: presented !== undefined,
          username: splitPair(presented ?? '').user,
          authorized,
        },
      })
      return authorized || !enforce ? CONTINUE : challenge
    }
  },
})

/** The pair that a client sends; undefined when the field is absent or of another scheme. */
function readBasic(field: string | undefined): string | undefined {
  const encoded = /^Basic +([A-Za-z0-9+/=_-]+) *$/i.exec(field ?? '')?.[1]
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64').toString()
}

/** An expression may add no second colon: its value could move the border between name and password. */
function pairOf(text: string): string {
  if (text.split(':').length !== 2)
    throw new EvaluationError('credentials do not have the form name:password')
  return text
}

function splitPair(pair: string): { readonly user: string; readonly password: string } {
  const colon = pair.indexOf(':')
  if (colon === -1) return { user: '', password: '' }
  return { user: pair.slice(0, colon), password: pair.slice(colon + 1) }
}

function digestOf(pair: string): Buffer {
  return createHash('sha256').update(pair).digest()
}
