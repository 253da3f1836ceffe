import * as z from 'zod'
import { durationMs, problem } from '../../document/config-schema.ts'
import type { PolicyExchange } from '../../exchange/policy-exchange.ts'
import { EvaluationError } from '../../expression/evaluation-error.ts'
import type { ClientCredentials } from '../../login/identity-provider.ts'
import type { SessionLimits } from '../../login/session.ts'
import type { ActionContext } from '../action.ts'

const MAX_SCOPES = 20
const MAX_PARAMETERS = 10
const LONGEST = '8760h'
/** RFC 6749 3.3. */
const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/
/** Those that the gateway writes: with another value the visitor could not come back safely. */
const RESERVED = new Set([
  ...['client_id', 'client_secret', 'response_type', 'response_mode', 'redirect_uri', 'scope'],
  ...['state', 'nonce', 'code_challenge', 'code_challenge_method', 'request', 'request_uri'],
])

const timeout = durationMs('1s', LONGEST).optional()

/** What both actions take that let visitors sign in. */
export const loginFields = {
  auth_id: z
    .string()
    .max(64)
    .refine(
      (text) => /^[\w.-]*$/.test(text),
      problem(
        'badValue',
        'auth_id must contain only letters, digits, dots, dashes and underscores.',
      ),
    )
    .default(''),
  scopes: z
    .array(
      z
        .string()
        .refine(
          (text) => SCOPE.test(text),
          problem('badValue', 'A scope must be a single ASCII word.'),
        ),
    )
    .max(MAX_SCOPES)
    .default([]),
  authz_url_params: z
    .record(z.string().min(1).max(64), z.string().max(1_024))
    .refine(
      (map) => Object.keys(map).length <= MAX_PARAMETERS,
      problem('tooManyEntries', `At most ${MAX_PARAMETERS} parameters are allowed.`),
    )
    .refine(
      (map) => !Object.keys(map).some((name) => RESERVED.has(name)),
      problem(
        'badValue',
        `The gateway sets ${Array.from(RESERVED).join(', ')} itself. Remove them.`,
      ),
    )
    .default({}),
  max_session_duration: durationMs('1s', LONGEST).prefault('168h'),
  idle_session_timeout: timeout,
  idle_session_duration: timeout,
  userinfo_refresh_interval: timeout,
  allow_cors_preflight: z.boolean().default(false),
  auth_cookie_domain: z.string().optional(),
}

type LoginConfig = z.output<z.ZodObject<typeof loginFields>>

/** The documentation of the service has two names for the idle time; each is taken. */
export function sessionLimits(config: LoginConfig): SessionLimits {
  return {
    maxMs: config.max_session_duration,
    idleMs: config.idle_session_timeout ?? config.idle_session_duration,
    refreshMs: config.userinfo_refresh_interval,
  }
}

/** With a domain every host below it gets the cookies, those of other accounts, too. */
export function refuseCookieDomain(
  { auth_cookie_domain: domain }: LoginConfig,
  context: ActionContext,
): void {
  if (domain === undefined) return
  const message =
    'auth_cookie_domain is not available, because a session belongs to one host. Leave it out.'
  context.problem('notAvailable', ['auth_cookie_domain'], message, { isForeign: true })
}

/** The client of the provider, computed for an exchange. */
export function clientTemplates(
  config: { readonly client_id: string; readonly client_secret: string },
  context: ActionContext,
): (exchange: PolicyExchange) => ClientCredentials {
  const id = context.template(config.client_id, ['client_id'])
  const secret = context.template(config.client_secret, ['client_secret'])
  return (exchange) => {
    const client = { id: id.render(exchange), secret: secret.render(exchange) }
    if (client.id === '') throw new EvaluationError('the client_id is empty')
    return client
  }
}
