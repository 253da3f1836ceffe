import type { Claims } from './session.ts'

/** Reads JSON with the visitor's access token; undefined where they have not allowed that. */
export type ReadAsVisitor = (
  url: string,
  headers?: Readonly<Record<string, string>>,
) => Promise<unknown>

/** A provider of OAuth 2.0 that has its own way to say who somebody is. */
export interface OAuthProvider {
  /** As it names itself, or else its origin. */
  readonly issuer: string
  readonly authorizationUrl: string
  readonly tokenUrl: string
  /** What it takes to know who somebody is. */
  readonly scopes: readonly string[]
  /** What makes it ask for the password again, or at least for the account. */
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

/** Those that answer as OpenID Connect has it. */
const userInfoAt = (url: string) => async (read: ReadAsVisitor) => fieldsOf(await read(url))

/** By the names of the service's documentation. Email addresses are those that the provider has verified. */
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
      // What stands in `mail` an administrator of any tenant may have made up; a name of a user
      // ends in a domain that the tenant has proved to be its own.
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
