import type { Claims, LoginSession, Tokens } from './session.ts'

/** The application that the provider knows. */
export interface ClientCredentials {
  readonly id: string
  /** Empty for a public client. */
  readonly secret: string
}

/** What a provider has to know to send a visitor back. */
export interface SignInRequest {
  readonly redirectUri: string
  readonly state: string
  readonly nonce: string
  /** RFC 7636. */
  readonly verifier: string
  /** The visitor is to be asked again, even if the provider knows them. */
  readonly isForced: boolean
}

export interface SignedIn extends Tokens {
  readonly profile: Claims
}

/** Who knows the visitors. All of it throws LoginError, within seconds. */
export interface IdentityProvider {
  /** Makes the identifiers of its visitors its own. */
  readonly issuer: string
  /** Where the visitor signs in. */
  signInUrl(client: ClientCredentials, request: SignInRequest): Promise<URL>
  /** Who came back to `url` with a code. */
  redeem(
    client: ClientCredentials,
    url: URL,
    request: Omit<SignInRequest, 'isForced'>,
  ): Promise<SignedIn>
  /** The same visitor as they are now; undefined when the provider knows nothing of them any more. */
  renew(client: ClientCredentials, session: LoginSession): Promise<SignedIn | undefined>
}
