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
import type { PolicyReach } from '../outbound/policy-reach.ts'
import type {
  ClientCredentials,
  IdentityProvider,
  SignedIn,
  SignInRequest,
} from './identity-provider.ts'
import { LoginError } from './login-error.ts'
import type { OAuthProvider } from './oauth-providers.ts'
import { isEndOfSession, providerFailure, SpentToken } from './provider-failure.ts'
import { PROVIDER_TIMEOUT_S, providerFetch } from './provider-fetch.ts'
import type { Claims, LoginSession } from './session.ts'

/** Clients of one provider that a policy computes out of requests. */
const MAX_CLIENTS = 16

export interface OAuthClientOptions {
  readonly provider: OAuthProvider
  readonly scopes: readonly string[]
  /** Of the address where visitors sign in, beside those of the protocol. */
  readonly parameters: Readonly<Record<string, string>>
  readonly reach: PolicyReach
}

/** A provider of OAuth 2.0 (RFC 6749): who somebody is it says when it is asked with their token. */
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

  /** Undefined when the provider does not take the token any more. */
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
 * What providers answer that are older than RFC 6749, or freer: errors with a status of 200, lists of
 * scopes, no type of a token. Identity tokens are left out: who somebody is, is asked.
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
