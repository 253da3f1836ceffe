import * as z from 'zod'
import { Login } from '../login/login.ts'
import { LoginDesk } from '../login/login-desk.ts'
import { loginResults } from '../login/login-result.ts'
import { OidcClient } from '../login/oidc-client.ts'
import { defineAction } from './action.ts'
import { clientTemplates, loginFields, refuseCookieDomain, sessionLimits } from './fields/login.ts'

/** Lets in who has signed in with an OpenID provider of the author's choice. */
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
