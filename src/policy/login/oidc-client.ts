import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  type ClientAuth,
  ClientSecretBasic,
  ClientSecretPost,
  type Configuration,
  calculatePKCECodeChallenge,
  customFetch,
  discovery,
  enableNonRepudiationChecks,
  fetchUserInfo,
  None,
  refreshTokenGrant,
} from 'openid-client'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import { Renewable } from '../outbound/key-source.ts'
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
} from './identity-provider.ts'
import { LoginError } from './login-error.ts'
import { type Claims, claimsOf, type LoginSession } from './session.ts'

/** How long metadata and keys are used before they are read again. */
const FRESH_MS = 60 * 60_000
/** After a failure visitors are told so at once, for that long. */
const PAUSE_MS = 5_000
/** Clients of one provider that a policy computes out of requests. */
const MAX_CLIENTS = 16
/** Scopes that most rules about visitors need. Further scopes are configured. */
const SCOPES = ['openid', 'profile', 'email']

export interface OidcClientOptions {
  readonly issuer: URL
  readonly scopes: readonly string[]
  /** Parameters of the sign-in URL, in addition to those of the protocol. */
  readonly parameters: Readonly<Record<string, string>>
  readonly reach: PolicyReach
  readonly clock: Clock
}

/** A provider of OpenID Connect Core 1.0, with the authorization code flow and PKCE. */
export class OidcClient implements IdentityProvider {
  readonly issuer: string
  readonly #options: OidcClientOptions
  /** Metadata and keys of the provider, by the client that they are for. */
  readonly #clients = new BoundedCache((key) => this.#createClient(key), MAX_CLIENTS)

  constructor(options: OidcClientOptions) {
    this.#options = options
    this.issuer = options.issuer.href
  }

  async signInUrl(client: ClientCredentials, request: SignInRequest): Promise<URL> {
    const configuration = await this.#configure(client)
    const { redirectUri, state, nonce, verifier, isForced } = request
    return buildAuthorizationUrl(configuration, {
      ...this.#options.parameters,
      scope: this.#scopes(configuration).join(' '),
      redirect_uri: redirectUri,
      state,
      nonce,
      code_challenge: await calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
      ...(isForced && { prompt: 'login' }),
    })
  }

  async redeem(
    client: ClientCredentials,
    url: URL,
    { state, nonce, verifier }: Omit<SignInRequest, 'isForced'>,
  ): Promise<SignedIn> {
    const configuration = await this.#configure(client)
    try {
      const tokens = await authorizationCodeGrant(configuration, url, {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      })
      const { sub = '' } = tokens.claims() ?? {}
      return {
        idToken: tokens.id_token ?? '',
        accessToken: tokens.access_token,
        refreshToken: tokens.refresh_token ?? '',
        profile: await userInfo(configuration, tokens.access_token, sub),
      }
    } catch (error) {
      throw providerFailure(error)
    }
  }

  async renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined> {
    const configuration = await this.#configure(client)
    const subject = subjectOf(session)
    try {
      const { userinfo_endpoint: hasUserInfo } = configuration.serverMetadata()
      if (hasUserInfo !== undefined) {
        const known = await knownUser(configuration, session, subject)
        if (known) return { ...session, profile: known }
      }
      if (session.refreshToken === '') return undefined
      const tokens = await refreshTokenGrant(configuration, session.refreshToken)
      const { sub = subject } = tokens.claims() ?? {}
      if (sub !== subject) return undefined
      return {
        idToken: tokens.id_token ?? session.idToken,
        accessToken: tokens.access_token,
        refreshToken: tokens.refresh_token ?? session.refreshToken,
        profile: await userInfo(configuration, tokens.access_token, subject),
      }
    } catch (error) {
      if (isEndOfSession(error)) return undefined
      throw providerFailure(error)
    }
  }

  #configure({ id, secret }: ClientCredentials): Promise<Configuration> {
    return this.#clients.get(JSON.stringify([id, secret])).current()
  }

  #createClient(key: string): Renewable<Configuration> {
    const [id, secret] = JSON.parse(key) as [string, string]
    return new Renewable({
      read: () => this.#discover({ id, secret }),
      freshMs: FRESH_MS,
      pauseMs: PAUSE_MS,
      paused: () => new LoginError('no-metadata'),
      clock: this.#options.clock,
    })
  }

  async #discover({ id, secret }: ClientCredentials): Promise<Configuration> {
    const { issuer, reach } = this.#options
    const isInsecure = issuer.protocol === 'http:'
    try {
      return await discovery(issuer, id, undefined, authenticationBy(secret), {
        [customFetch]: providerFetch(reach),
        timeout: PROVIDER_TIMEOUT_S,
        // Checks the signature of the identity token, although TLS already authenticates its sender.
        execute: [enableNonRepudiationChecks, ...(isInsecure ? [allowInsecureRequests] : [])],
      })
    } catch (cause) {
      throw new LoginError('no-metadata', { cause })
    }
  }

  #scopes(configuration: Configuration): string[] {
    const { scopes_supported: known } = configuration.serverMetadata()
    const usual = SCOPES.filter((scope) => scope === 'openid' || (known?.includes(scope) ?? true))
    return [...new Set([...usual, ...this.#options.scopes])]
  }
}

/** As the provider wants it; OpenID Connect Discovery 1.0 section 3: without a list, in a header. */
function authenticationBy(secret: string): ClientAuth {
  if (secret === '') return None()
  const [basic, post] = [ClientSecretBasic(secret), ClientSecretPost(secret)]
  return (server, ...rest) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic']
    const authenticate = methods.includes('client_secret_basic') ? basic : post
    authenticate(server, ...rest)
  }
}

const subjectOf = (session: LoginSession): string => String(claimsOf(session).sub ?? '')

/** Undefined if the provider no longer accepts the access token. */
async function knownUser(
  configuration: Configuration,
  { accessToken }: LoginSession,
  subject: string,
): Promise<Claims | undefined> {
  try {
    return await fetchUserInfo(configuration, accessToken, subject)
  } catch (error) {
    if (isEndOfSession(error)) return undefined
    throw error
  }
}

/** Empty if the provider has no user info. */
async function userInfo(
  configuration: Configuration,
  accessToken: string,
  subject: string,
): Promise<Claims> {
  const { userinfo_endpoint: hasUserInfo } = configuration.serverMetadata()
  return hasUserInfo === undefined ? {} : await fetchUserInfo(configuration, accessToken, subject)
}
