import * as z from 'zod'
import { nearest } from '../../base/nearest.ts'
import { durationMs, problem } from '../document/read-config.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import type { ClientCredentials } from '../login/identity-provider.ts'
import { Login, loginResults } from '../login/login.ts'
import { LoginDesk } from '../login/login-desk.ts'
import { OAUTH_PROVIDERS, OAuthClient } from '../login/oauth-client.ts'
import { OidcClient } from '../login/oidc-client.ts'
import type { SessionLimits } from '../login/session.ts'
import { type ActionContext, defineAction } from './action.ts'

const MAX_SCOPES = 20
const MAX_PARAMETERS = 10
const LONGEST = '8760h'
/** RFC 6749 3.3. */
const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/
/** Parameters that the gateway sets: with another value, the visitor could not return safely. */
const RESERVED = new Set([
  ...['client_id', 'client_secret', 'response_type', 'response_mode', 'redirect_uri', 'scope'],
  ...['state', 'nonce', 'code_challenge', 'code_challenge_method', 'request', 'request_uri'],
])

const timeout = durationMs('1s', LONGEST).optional()

/** Fields of both sign-in actions. */
const loginFields = {
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

const LOGIN_TEXTS = {
  auth_id:
    'Name of the login, if a policy has several: letters, digits, dots, dashes and underscores.',
  scopes: 'Scopes besides those that identify the visitor: openid, profile and email.',
  authz_url_params: `At most ${MAX_PARAMETERS} parameters for the page of the provider, such as hd or login_hint.`,
  max_session_duration: 'Maximum age of a session, 1s to 8760h.',
  idle_session_timeout: 'Maximum time without a request, 1s to 8760h; default: no limit.',
  idle_session_duration: 'Other name of idle_session_timeout, which wins.',
  userinfo_refresh_interval:
    'Interval of checks with the provider; default: none. Unknown visitors sign in again. All are refused while the provider is down.',
  allow_cors_preflight: 'true: admits OPTIONS requests of browsers about other origins.',
  auth_cookie_domain: 'Refused: a session belongs to one host.',
}

type LoginConfig = z.output<z.ZodObject<typeof loginFields>>

/** The documentation of the service has two names for the idle time; each is taken. */
function sessionLimits(config: LoginConfig): SessionLimits {
  return {
    maxMs: config.max_session_duration,
    idleMs: config.idle_session_timeout ?? config.idle_session_duration,
    refreshMs: config.userinfo_refresh_interval,
  }
}

/** With a domain, every host below it receives the cookies, including hosts of other accounts. */
function refuseCookieDomain(
  { auth_cookie_domain: domain }: LoginConfig,
  context: ActionContext,
): void {
  if (domain === undefined) return
  const message =
    'auth_cookie_domain is not available, because a session belongs to one host. Leave it out.'
  context.problem('notAvailable', ['auth_cookie_domain'], message, { isForeign: true })
}

/** The client of the provider, computed for an exchange. */
function clientTemplates(
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

function providerAdvice(name: string): string {
  const names = Object.keys(OAUTH_PROVIDERS)
  const meant = nearest(name.toLowerCase(), names)
  return meant === undefined
    ? `Use one of ${names.join(', ')}, or openid-connect.`
    : `Did you mean ${meant}?`
}

/** Requires visitors to sign in with a known provider, as a client that the author registered. */
export const oauth = defineAction({
  type: 'oauth',
  phases: ['on_http_request'],
  config: z.strictObject({
    provider: z.string().min(1),
    client_id: z.string().max(1_024).default(''),
    client_secret: z.string().max(1_024).default(''),
    ...loginFields,
  }),
  fields: {
    provider: `One of ${Object.keys(OAUTH_PROVIDERS).join(', ')}.`,
    client_id: 'Your client at the provider; required at this gateway. May contain expressions.',
    client_secret: 'Secret of the client; required at this gateway. May contain expressions.',
    ...LOGIN_TEXTS,
  },
  example: {
    provider: 'github',
    client_id: 'Iv1.0123456789abcdef',
    client_secret: 'secret of the client',
    auth_id: 'staff',
    scopes: ['read:org'],
    authz_url_params: { allow_signup: 'false' },
    max_session_duration: '12h',
    idle_session_timeout: '30m',
    userinfo_refresh_interval: '5m',
    allow_cors_preflight: false,
  },
  results: loginResults('oauth'),
  build(config, context) {
    refuseCookieDomain(config, context)
    const { provider: name, auth_id: authId, scopes, authz_url_params: parameters } = config
    const known = Object.hasOwn(OAUTH_PROVIDERS, name) ? OAUTH_PROVIDERS[name] : undefined
    if (!known) {
      const message = `The provider ${name} is not available. ${providerAdvice(name)}`
      context.problem('notAvailable', ['provider'], message, { isForeign: true })
    } else if (config.client_id === '' || config.client_secret === '') {
      const message = `Only the hosted service has its own application at ${name}. Create an application there and set its client_id and client_secret.`
      context.problem('notAvailable', ['client_id'], message, { isForeign: true })
    }
    const { clock, log, reach } = context
    const provider = known ?? (OAUTH_PROVIDERS.github as NonNullable<typeof known>)
    const login = new Login({
      kind: 'oauth',
      authId,
      provider: JSON.stringify([name, config.client_id]),
      definition: [scopes, parameters],
      limits: sessionLimits(config),
      allowsPreflight: config.allow_cors_preflight,
      client: clientTemplates(config, context),
      desk: context.carry(
        () => new LoginDesk(new OAuthClient({ provider, scopes, parameters, reach }), clock),
      ),
      reach,
      clock,
      log,
    })
    return Object.assign(login.run.bind(login), { isFor: login.isFor.bind(login) })
  },
})

/** Requires visitors to sign in with an OpenID provider that the author chooses. */
export const openidConnect = defineAction({
  type: 'openid-connect',
  phases: ['on_http_request'],
  namespace: 'oidc',
  config: z.strictObject({
    issuer_url: z.string().min(1).max(2_048),
    client_id: z.string().min(1).max(1_024),
    client_secret: z.string().max(1_024).default(''),
    ...loginFields,
  }),
  fields: {
    issuer_url:
      'https: URL below which /.well-known/openid-configuration is. http: is for a provider in your own network.',
    client_id: 'Your client at the provider. May contain expressions.',
    client_secret: 'Secret of the client. A public client has none. May contain expressions.',
    ...LOGIN_TEXTS,
  },
  example: {
    issuer_url: 'https://id.example',
    client_id: 'devices',
    client_secret: 'secret of the client',
    auth_id: 'staff',
    scopes: ['groups'],
    authz_url_params: { hd: 'example.com' },
    max_session_duration: '12h',
    idle_session_duration: '30m',
    userinfo_refresh_interval: '5m',
    allow_cors_preflight: false,
  },
  results: loginResults('oidc'),
  build(config, context) {
    refuseCookieDomain(config, context)
    const { issuer_url: issuerUrl, auth_id: authId, scopes, authz_url_params: parameters } = config
    const issuer = URL.canParse(issuerUrl) ? new URL(issuerUrl) : undefined
    const isUsable = issuer?.protocol === 'https:' || issuer?.protocol === 'http:'
    if (!isUsable) {
      context.problem('badValue', ['issuer_url'], `${issuerUrl} is not an https: or http: URL.`)
    }
    const { clock, log, reach } = context
    const provider = { issuer: issuer ?? new URL('https://invalid'), scopes, parameters }
    const login = new Login({
      kind: 'oidc',
      authId,
      provider: JSON.stringify([issuerUrl, config.client_id]),
      definition: [scopes, parameters],
      limits: sessionLimits(config),
      allowsPreflight: config.allow_cors_preflight,
      client: clientTemplates(config, context),
      desk: context.carry(
        () => new LoginDesk(new OidcClient({ ...provider, reach, clock }), clock),
      ),
      reach,
      clock,
      log,
    })
    const isFor = login.isFor.bind(login)
    return Object.assign(login.run.bind(login), { isFor })
  },
})
