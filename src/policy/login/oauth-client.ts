import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  ClientSecretPost,
  Configuration,
  type CustomFetch,
  calculatePKCECodeChallenge,
  customFetch,
  fetchProtectedResource,
  refreshTokenGrant,
} from 'openid-client'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { PolicyReach } from '../outbound/outbound-allow.ts'
import {
  type ClientCredentials,
  type IdentityProvider,
  isEndOfSession,
  PROVIDER_TIMEOUT_S,
  providerFailure,
  providerFetch,
  type SignedIn,
  type SignInRequest,
  SpentToken,
} from './identity-provider.ts'
import { LoginError } from './login-error.ts'
import type { Claims, LoginSession } from './session.ts'

/** Reads JSON with the visitor's access token; undefined where they have not allowed that. */
type ReadAsVisitor = (url: string, headers?: Readonly<Record<string, string>>) => Promise<unknown>

/** A provider of OAuth 2.0 with its own way to identify users. */
export interface OAuthProvider {
  /** As it names itself, or else its origin. */
  readonly issuer: string
  readonly authorizationUrl: string
  readonly tokenUrl: string
  /** Scopes needed to identify a user. */
  readonly scopes: readonly string[]
  /** Parameters that force the provider to ask for the password, or at least for the account. */
  readonly forced: Readonly<Record<string, string>>
  readonly hasPkce: boolean
  /** In the terms of OpenID Connect (Core 1.0, 5.1). */
  readonly claims: (read: ReadAsVisitor, clientId: string) => Promise<Claims>
}

type Fields = Readonly<Record<string, unknown>>

const fieldsOf = (json: unknown): Fields =>
  typeof json === 'object' && json !== null ? (json as Fields) : {}
const itemsOf = (json: unknown): readonly Fields[] =>
  Array.isArray(json) ? json.map(fieldsOf) : []
const idOf = (id: unknown) => (typeof id === 'number' || typeof id === 'string' ? String(id) : '')

/** Providers that respond as in OpenID Connect. */
const userInfoAt = (url: string) => async (read: ReadAsVisitor) => fieldsOf(await read(url))

/** By their names in the service's documentation. Email addresses are those that the provider verified. */
export const OAUTH_PROVIDERS: Readonly<Record<string, OAuthProvider>> = {
  amazon: {
    issuer: 'https://www.amazon.com',
    authorizationUrl: 'https://www.amazon.com/ap/oa',
    tokenUrl: 'https://api.amazon.com/auth/o2/token',
    scopes: ['profile'],
    forced: {},
    hasPkce: true,
    async claims(read) {
      const { user_id, name, email } = fieldsOf(await read('https://api.amazon.com/user/profile'))
      return { sub: idOf(user_id), name, email }
    },
  },
  facebook: {
    issuer: 'https://www.facebook.com',
    authorizationUrl: 'https://www.facebook.com/v23.0/dialog/oauth',
    tokenUrl: 'https://graph.facebook.com/v23.0/oauth/access_token',
    scopes: ['email'],
    forced: { auth_type: 'reauthenticate' },
    hasPkce: true,
    async claims(read) {
      const url = 'https://graph.facebook.com/v23.0/me?fields=id,name,email'
      const { id, name, email } = fieldsOf(await read(url))
      return { sub: idOf(id), name, email }
    },
  },
  github: {
    issuer: 'https://github.com',
    authorizationUrl: 'https://github.com/login/oauth/authorize',
    tokenUrl: 'https://github.com/login/oauth/access_token',
    scopes: ['read:user', 'user:email'],
    forced: { prompt: 'select_account' },
    hasPkce: true,
    async claims(read) {
      const accept = { accept: 'application/vnd.github+json' }
      const { id, login, name } = fieldsOf(await read('https://api.github.com/user', accept))
      const emails = itemsOf(await read('https://api.github.com/user/emails', accept))
      const primary = emails.find((email) => email.primary === true && email.verified === true)
      const claims = { sub: idOf(id), name: name || login, preferred_username: login }
      return { ...claims, ...(primary && { email: primary.email, email_verified: true }) }
    },
  },
  gitlab: {
    issuer: 'https://gitlab.com',
    authorizationUrl: 'https://gitlab.com/oauth/authorize',
    tokenUrl: 'https://gitlab.com/oauth/token',
    scopes: ['openid', 'profile', 'email'],
    forced: {},
    hasPkce: true,
    claims: userInfoAt('https://gitlab.com/oauth/userinfo'),
  },
  google: {
    issuer: 'https://accounts.google.com',
    authorizationUrl: 'https://accounts.google.com/o/oauth2/v2/auth',
    tokenUrl: 'https://oauth2.googleapis.com/token',
    scopes: [
      'https://www.googleapis.com/auth/userinfo.email',
      'https://www.googleapis.com/auth/userinfo.profile',
    ],
    forced: { prompt: 'select_account' },
    hasPkce: true,
    claims: userInfoAt('https://www.googleapis.com/oauth2/v3/userinfo'),
  },
  linkedin: {
    issuer: 'https://www.linkedin.com/oauth',
    authorizationUrl: 'https://www.linkedin.com/oauth/v2/authorization',
    tokenUrl: 'https://www.linkedin.com/oauth/v2/accessToken',
    scopes: ['openid', 'profile', 'email'],
    forced: {},
    // It has another address for clients that prove themselves so.
    hasPkce: false,
    claims: userInfoAt('https://api.linkedin.com/v2/userinfo'),
  },
  microsoft: {
    issuer: 'https://login.microsoftonline.com',
    authorizationUrl: 'https://login.microsoftonline.com/common/oauth2/v2.0/authorize',
    tokenUrl: 'https://login.microsoftonline.com/common/oauth2/v2.0/token',
    scopes: ['User.Read'],
    forced: { prompt: 'login' },
    hasPkce: true,
    async claims(read) {
      const user = fieldsOf(await read('https://graph.microsoft.com/v1.0/me'))
      // An administrator of any tenant can set `mail` freely. A user name ends in a domain that the tenant
      // has proved to own.
      return { sub: idOf(user.id), name: user.displayName, email: user.userPrincipalName }
    },
  },
  twitch: {
    issuer: 'https://id.twitch.tv/oauth2',
    authorizationUrl: 'https://id.twitch.tv/oauth2/authorize',
    tokenUrl: 'https://id.twitch.tv/oauth2/token',
    scopes: ['user:read:email'],
    forced: { force_verify: 'true' },
    hasPkce: true,
    async claims(read, clientId) {
      const { data } = fieldsOf(
        await read('https://api.twitch.tv/helix/users', { 'client-id': clientId }),
      )
      const [user = {}] = itemsOf(data)
      return { sub: idOf(user.id), name: user.display_name, email: user.email }
    },
  },
}

/** Clients of one provider that a policy computes out of requests. */
const MAX_CLIENTS = 16

interface OAuthClientOptions {
  readonly provider: OAuthProvider
  readonly scopes: readonly string[]
  /** Parameters of the sign-in URL, in addition to those of the protocol. */
  readonly parameters: Readonly<Record<string, string>>
  readonly reach: PolicyReach
}

/** A provider of OAuth 2.0 (RFC 6749). It identifies a user when it is asked with the user's token. */
export class OAuthClient implements IdentityProvider {
  readonly issuer: string
  readonly #options: OAuthClientOptions
  readonly #clients = new BoundedCache((key) => this.#createClient(key), MAX_CLIENTS)

  constructor(options: OAuthClientOptions) {
    this.#options = options
    this.issuer = options.provider.issuer
  }

  async signInUrl(client: ClientCredentials, request: SignInRequest): Promise<URL> {
    const { provider, scopes, parameters } = this.#options
    const { redirectUri, state, verifier, isForced } = request
    return buildAuthorizationUrl(this.#configure(client), {
      ...(isForced && provider.forced),
      ...parameters,
      scope: [...new Set([...provider.scopes, ...scopes])].join(' '),
      redirect_uri: redirectUri,
      state,
      ...(provider.hasPkce && {
        code_challenge: await calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      }),
    })
  }

  async redeem(
    client: ClientCredentials,
    url: URL,
    { state, verifier }: Omit<SignInRequest, 'isForced'>,
  ): Promise<SignedIn> {
    const configuration = this.#configure(client)
    try {
      const tokens = await authorizationCodeGrant(configuration, url, {
        expectedState: state,
        ...(this.#options.provider.hasPkce && { pkceCodeVerifier: verifier }),
      })
      return {
        idToken: '',
        accessToken: tokens.access_token,
        refreshToken: tokens.refresh_token ?? '',
        profile: await this.#profile(configuration, client, tokens.access_token),
      }
    } catch (error) {
      throw providerFailure(error)
    }
  }

  async renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined> {
    const configuration = this.#configure(client)
    try {
      const renewed =
        (await this.#withToken(configuration, client, session)) ??
        (await this.#withNewToken(configuration, client, session))
      return renewed?.profile.sub === session.profile.sub ? renewed : undefined
    } catch (error) {
      if (isEndOfSession(error)) return undefined
      throw providerFailure(error)
    }
  }

  /** Undefined if the provider no longer accepts the token. */
  async #withToken(
    configuration: Configuration,
    client: ClientCredentials,
    session: LoginSession,
  ): Promise<SignedIn | undefined> {
    try {
      const profile = await this.#profile(configuration, client, session.accessToken)
      return { ...session, profile }
    } catch (error) {
      if (isEndOfSession(error)) return undefined
      throw error
    }
  }

  async #withNewToken(
    configuration: Configuration,
    client: ClientCredentials,
    { refreshToken }: LoginSession,
  ): Promise<SignedIn | undefined> {
    if (refreshToken === '') return undefined
    const tokens = await refreshTokenGrant(configuration, refreshToken)
    return {
      idToken: '',
      accessToken: tokens.access_token,
      refreshToken: tokens.refresh_token ?? refreshToken,
      profile: await this.#profile(configuration, client, tokens.access_token),
    }
  }

  async #profile(
    configuration: Configuration,
    { id }: ClientCredentials,
    token: string,
  ): Promise<Claims> {
    const read = (url: string, headers = {}) => readAsVisitor(configuration, token, url, headers)
    const claims = await this.#options.provider.claims(read, id)
    if (typeof claims.sub === 'string' && claims.sub !== '') return claims
    throw new LoginError('bad-token')
  }

  #configure({ id, secret }: ClientCredentials): Configuration {
    return this.#clients.get(JSON.stringify([id, secret]))
  }

  #createClient(key: string): Configuration {
    const [id, secret] = JSON.parse(key) as [string, string]
    const { provider, reach } = this.#options
    const { issuer, authorizationUrl, tokenUrl } = provider
    const server = { issuer, authorization_endpoint: authorizationUrl, token_endpoint: tokenUrl }
    const configuration = new Configuration(server, id, undefined, ClientSecretPost(secret))
    configuration.timeout = PROVIDER_TIMEOUT_S
    configuration[customFetch] = lenient(providerFetch(reach), tokenUrl)
    if (tokenUrl.startsWith('http:')) allowInsecureRequests(configuration)
    return configuration
  }
}

async function readAsVisitor(
  configuration: Configuration,
  token: string,
  url: string,
  headers: Readonly<Record<string, string>>,
): Promise<unknown> {
  const fields = new Headers({ accept: 'application/json', ...headers })
  const answer = await fetchProtectedResource(
    configuration,
    token,
    new URL(url),
    'GET',
    null,
    fields,
  )
  if (answer.status === 200) return answer.json()
  if (answer.status === 401) throw new SpentToken()
  if (answer.status === 403 || answer.status === 404) return undefined
  throw new LoginError('unreachable', {
    cause: new Error(`the user request was answered with status ${answer.status}`),
  })
}

/**
 * Accepts responses of providers that are older than RFC 6749, or deviate from it: errors with status 200,
 * lists of scopes, no token type. Identity tokens are removed, because the user is requested separately.
 */
function lenient(fetch: CustomFetch, tokenUrl: string): CustomFetch {
  return async (url, options) => {
    const answer = await fetch(url, options)
    const isJson = answer.headers.get('content-type')?.includes('json') === true
    if (url !== tokenUrl || answer.status !== 200 || !isJson) return answer
    const { id_token: _idToken, scope, ...body } = (await answer.json()) as Record<string, unknown>
    const hasFailed = typeof body.error === 'string' && body.access_token === undefined
    const scopes = Array.isArray(scope) ? scope.join(' ') : scope
    const json = { token_type: 'bearer', ...body, ...(scopes !== undefined && { scope: scopes }) }
    return Response.json(json, { status: hasFailed ? 400 : 200 })
  }
}
