import * as z from 'zod'
import { Login } from '../login/login.ts'
import { LoginDesk } from '../login/login-desk.ts'
import { loginResults } from '../login/login-result.ts'
import { OAuthClient } from '../login/oauth-client.ts'
import { OAUTH_PROVIDERS } from '../login/oauth-providers.ts'
import { defineAction } from './action.ts'
import { clientTemplates, loginFields, refuseCookieDomain, sessionLimits } from './fields/login.ts'

/** Lets in who has signed in with one of the known providers, at a client of the author's own. */
export const oauth = defineAction({
  type: 'oauth',
  phases: ['on_http_request'],
  config: z.strictObject({
    provider: z.string().min(1),
    client_id: z.string().max(1_024).default(''),
    client_secret: z.string().max(1_024).default(''),
    ...loginFields,
  }),
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
      const names = Object.keys(OAUTH_PROVIDERS).join(', ')
      const message = `The provider ${name} is not available. Use one of ${names}, or openid-connect.`
      context.problem('notAvailable', ['provider'], message, { isForeign: true })
    }
    if (config.client_id === '' || config.client_secret === '') {
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
