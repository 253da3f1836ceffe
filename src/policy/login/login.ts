import { createHash, createHmac, randomBytes } from 'node:crypto'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { WarningPace } from '../../base/warning-pace.ts'
import { cookiesOf, loginCookieName, setLoginCookie } from '../exchange/login-cookie.ts'
import { requestOf } from '../exchange/message-head.ts'
import {
  CONTINUE,
  type MaybePromise,
  NO_ERROR,
  type Outcome,
  type ResultError,
  respond,
} from '../exchange/outcome.ts'
import type { ActionResult, PolicyExchange, PolicyRequest } from '../exchange/policy-exchange.ts'
import type { Price } from '../expression/account.ts'
import { formatTime, valueOfJson } from '../expression/value.ts'
import type { PolicyReach } from '../outbound/outbound-allow.ts'
import type { ClientCredentials } from './identity-provider.ts'
import type { LoginDesk } from './login-desk.ts'
import {
  LOGIN_FAULTS,
  LoginError,
  type LoginKind,
  refuseLogin,
  resultErrorOf,
} from './login-error.ts'
import {
  beginFlow,
  browserNonce,
  FLOW_MS,
  isOfBrowser,
  type LoginFlow,
  localPath,
  openFlow,
  ownPath,
  PATHS,
  proofOf,
  Sealer,
  sealFlow,
  siteOf,
} from './login-flow.ts'
import {
  type CookieOwner,
  claimsOf,
  forgetSession,
  identityOf,
  type LoginSession,
  type SessionLimits,
  type SessionState,
  sessionCookies,
  sessionEnd,
  sessionIn,
  sessionLength,
  sessionState,
} from './session.ts'

/** A signed-in visitor, with the session's end. */
interface SignedInVisitor {
  readonly session: LoginSession
  readonly issuer: string
  /** Milliseconds since the epoch. */
  readonly end: number
}

interface LoginEvents {
  readonly error?: ResultError
  /** State of the visitor's session. */
  readonly state?: SessionState | undefined
  readonly isRenewed?: boolean
}

/** Results and their types, as expressions read them. */
export function loginResults(kind: LoginKind): Record<string, string> {
  return {
    'error.code': 'string',
    'error.message': 'string',
    'identity.id': 'string',
    'identity.email': 'string',
    'identity.name': 'string',
    'identity.provider_user_id': 'string',
    [`identity.${sessionField(kind)}`]: 'string',
    'identity.claims': 'map(dyn)',
    ...(kind === 'oidc' && { identity_token: 'string' }),
    access_token: 'string',
    refresh_token: 'string',
    expires_at: 'string',
    session_timed_out: 'bool',
    session_max_duration_reached: 'bool',
    userinfo_refreshed: 'bool',
    // The documentation spells it so for openid-connect.
    ...(kind === 'oidc' && { user_info_refreshed: 'bool' }),
  }
}

/** Values for later rules. Without a visitor, texts are empty. */
function loginResult(
  kind: LoginKind,
  visitor: SignedInVisitor | undefined,
  { error = NO_ERROR, state, isRenewed = false }: LoginEvents,
): ActionResult {
  const session = visitor?.session
  const claims = session ? claimsOf(session) : {}
  return {
    error,
    identity: {
      ...identityOf(claims, visitor?.issuer ?? ''),
      ...(session === undefined && { id: '' }),
      [sessionField(kind)]: session?.id ?? '',
      claims: valueOfJson(claims),
    },
    ...(kind === 'oidc' && { identity_token: session?.idToken ?? '' }),
    access_token: session?.accessToken ?? '',
    refresh_token: session?.refreshToken ?? '',
    expires_at: visitor ? formatTime(visitor.end) : '',
    session_timed_out: state === 'timed-out',
    session_max_duration_reached: state === 'max-duration-reached',
    userinfo_refreshed: isRenewed,
    ...(kind === 'oidc' && { user_info_refreshed: isRenewed }),
  }
}

const sessionField = (kind: LoginKind) =>
  kind === 'oidc' ? 'current_session_id' : 'current_provider_session_id'

/** Price of opening a session and reading its content. */
const SESSION_PRICE: Price = { call: 400, kib: 150 }
/** Hosts and clients of one action, as visitors name them. */
const MAX_SEALERS = 256
/** Share of the idle time after which the browser gets a new time of use. */
const SEEN_SHARE = 0.1
const MAX_CAUSES = 5

interface LoginOptions {
  readonly kind: LoginKind
  readonly authId: string
  /** Log-ins where this is the same, and `authId`, share their sessions. */
  readonly provider: string
  /** A change of this definition ends all sessions. */
  readonly definition: unknown
  readonly limits: SessionLimits
  readonly allowsPreflight: boolean
  readonly client: (exchange: PolicyExchange) => ClientCredentials
  readonly desk: LoginDesk
  readonly reach: PolicyReach
  readonly clock: Clock
  readonly log: Logger
}

/** A visitor's request, with everything needed to identify the visitor. */
interface Visit {
  readonly exchange: PolicyExchange
  readonly request: PolicyRequest
  /** Origin of the endpoint as the visitor knows it: `https://cam.example:8443`. */
  readonly origin: string
  readonly client: ClientCredentials
  readonly owner: CookieOwner
  readonly cookie: (name: string) => string | undefined
}

/**
 * Admits visitors that signed in with a provider. Sessions and running sign-ins are stored at the visitors,
 * sealed with a key of the account, the host and the client. Those of other accounts, hosts or clients cannot
 * be opened here.
 */
export class Login {
  readonly #options: LoginOptions
  readonly #tag: string
  readonly #sealers = new BoundedCache((purpose) => this.#createSealer(purpose), MAX_SEALERS)
  readonly #ownKey = randomBytes(32)
  readonly #warnings: WarningPace

  constructor(options: LoginOptions) {
    this.#options = options
    this.#warnings = new WarningPace(options.clock)
    const { kind, authId, provider } = options
    const identity = JSON.stringify([kind, authId, provider])
    this.#tag = createHash('sha256').update(identity).digest('hex').slice(0, 12)
  }

  /** Whether this sign-in told a browser or page to send the request. */
  isFor(exchange: PolicyExchange): boolean {
    return ownPath(exchange, this.#options.authId, this.#tag) !== undefined
  }

  run(exchange: PolicyExchange): MaybePromise<Outcome> {
    const visit = this.#visit(exchange)
    switch (ownPath(exchange, this.#options.authId, this.#tag)) {
      case 'login':
        return this.#guard(visit, () => this.#begin(visit, returnPath(visit), true))
      case 'logout':
        return this.#logOut(visit)
      case 'callback':
        return this.#guard(visit, () => this.#finish(visit))
      case undefined:
        return this.#admit(visit)
    }
  }

  #visit(exchange: PolicyExchange): Visit {
    const request = requestOf(exchange)
    const { origin, site, isSecure } = siteOf(request)
    const client = this.#options.client(exchange)
    const { kind, definition } = this.#options
    const purpose = JSON.stringify([kind, site, this.#tag, client.id, client.secret, definition])
    const owner = { tag: this.#tag, isSecure, sealer: this.#sealers.get(purpose) }
    return { exchange, request, origin, client, owner, cookie: cookiesOf(exchange) }
  }

  #createSealer(purpose: string): Sealer {
    const secretFor = this.#options.reach.secretFor ?? ((text) => keyOf(this.#ownKey, text))
    return new Sealer(secretFor(purpose))
  }

  /** Admits signed-in visitors, and redirects others to the sign-in. */
  #admit(visit: Visit): MaybePromise<Outcome> {
    const { exchange, request } = visit
    const { kind, allowsPreflight } = this.#options
    if (allowsPreflight && isPreflight(request)) {
      exchange.results.set(kind, loginResult(kind, undefined, {}))
      return CONTINUE
    }
    const session = this.#sessionOf(visit)
    const state = session && sessionState(session, this.#options.limits, this.#options.clock.now())
    if (!session || state !== 'valid') {
      exchange.results.set(kind, loginResult(kind, undefined, { state }))
      return this.#guard(visit, () => this.#challenge(visit))
    }
    if (!this.#isStale(session)) return this.#letIn(visit, session, false)
    return this.#guard(visit, () => this.#renew(visit, session))
  }

  #sessionOf({ exchange, cookie, owner }: Visit): LoginSession | undefined {
    const length = sessionLength(cookie, owner)
    exchange.account.spend(SESSION_PRICE.call + ((SESSION_PRICE.kib ?? 0) * length) / 1_024)
    return sessionIn(cookie, owner)
  }

  #isStale({ refreshedAt }: LoginSession): boolean {
    const { limits, clock } = this.#options
    return limits.refreshMs !== undefined && clock.now() >= refreshedAt + limits.refreshMs
  }

  #letIn(visit: Visit, session: LoginSession, isRenewed: boolean): Outcome {
    const { kind, limits, desk, clock } = this.#options
    const { exchange } = visit
    const now = clock.now()
    const isSeen = limits.idleMs !== undefined && now - session.seenAt >= limits.idleMs * SEEN_SHARE
    const current = isRenewed || isSeen ? { ...session, seenAt: now } : session
    if (current !== session) exchange.addFields(this.#keep(visit, current))
    const { issuer } = desk.provider
    const end = sessionEnd(current, limits)
    const result = loginResult(kind, { session: current, issuer, end }, { isRenewed })
    exchange.results.set(kind, result)
    return CONTINUE
  }

  async #renew(visit: Visit, session: LoginSession): Promise<Outcome> {
    const { desk, clock } = this.#options
    const signedIn = await desk.renew(visit.client, session)
    if (!signedIn) return this.#challenge(visit)
    const { idToken, accessToken, refreshToken, profile } = signedIn
    const tokens = { idToken, accessToken, refreshToken, profile }
    return this.#letIn(visit, { ...session, ...tokens, refreshedAt: clock.now() }, true)
  }

  /** Only a page load can be redirected and return. */
  #challenge(visit: Visit): Promise<Outcome> {
    const { method, headers, clientTarget } = visit.request
    const isPage = (method === 'GET' || method === 'HEAD') && !headers.has('upgrade')
    if (!isPage) throw new LoginError('sign-in-needed')
    const path = localPath(clientTarget, visit.origin)
    if (clientTarget.startsWith(PATHS.callback)) throw new LoginError('bad-state')
    return this.#begin(visit, path, false)
  }

  async #begin(visit: Visit, returnTo: string, isForced: boolean): Promise<Outcome> {
    const { desk, clock } = this.#options
    const { owner, client, origin, cookie } = visit
    const nonce = browserNonce(cookie(nonceName(owner)))
    const flow = beginFlow(nonce, returnTo, clock.now())
    const url = await desk.provider.signInUrl(client, {
      redirectUri: `${origin}${PATHS.callback}`,
      state: `${owner.tag}.${sealFlow(flow, owner.sealer)}`,
      ...proofOf(flow, nonce, owner.sealer),
      isForced,
    })
    const { isSecure } = owner
    const kept = setLoginCookie(nonceName(owner), nonce, { maxAgeS: FLOW_MS / 1_000, isSecure })
    return redirectTo(url.href, [kept])
  }

  /** The visitor comes back from the provider. */
  async #finish(visit: Visit): Promise<Outcome> {
    const { desk, clock } = this.#options
    const { owner, client, origin, cookie, request } = visit
    const url = new URL(request.clientTarget, origin)
    const state = url.searchParams.get('state') ?? ''
    const flow = openFlow(state.slice(owner.tag.length + 1), owner.sealer)
    if (!flow) throw new LoginError('bad-state')
    const nonce = cookie(nonceName(owner))
    const fault = faultOf(flow, url, clock.now(), nonce)
    if (fault !== undefined || nonce === undefined) {
      // In another tab it has gone well already.
      if (this.#isSignedIn(visit)) return redirectTo(`${origin}${flow.returnTo}`, [])
      throw new LoginError(fault ?? 'no-nonce')
    }
    const redirectUri = `${origin}${PATHS.callback}`
    const proof = proofOf(flow, nonce, owner.sealer)
    const signedIn = await desk.redeem(visit.exchange.connection.clientIp, () =>
      desk.provider.redeem(client, url, { redirectUri, state, ...proof }),
    )
    const now = clock.now()
    const id = `ids_${randomBytes(16).toString('hex')}`
    const session = { ...signedIn, id, createdAt: now, seenAt: now, refreshedAt: now }
    const cookies = this.#sessionCookies(visit, session)
    return redirectTo(`${origin}${flow.returnTo}`, [...cookies, this.#forgetNonce(visit)])
  }

  #isSignedIn(visit: Visit): boolean {
    const session = this.#sessionOf(visit)
    const { limits, clock } = this.#options
    return session !== undefined && sessionState(session, limits, clock.now()) === 'valid'
  }

  #logOut(visit: Visit): Outcome {
    const { cookie, owner, request, origin, exchange } = visit
    const cookies = [...forgetSession(cookie, owner), this.#forgetNonce(visit)]
    const [path] =
      exchange.parsed.query(request.clientTarget, exchange.account).get('redirect_path') ?? []
    if (path !== undefined) return redirectTo(`${origin}${localPath(path, origin)}`, cookies)
    const headers = ['content-type', 'text/plain; charset=utf-8', 'cache-control', 'no-store']
    const body = `You are signed out of ${origin}.\n`
    return respond({ status: 200, headers: [...headers, ...cookies.flatMap(asField)], body })
  }

  #forgetNonce({ owner }: Visit): string {
    return setLoginCookie(nonceName(owner), '', { maxAgeS: 0, isSecure: owner.isSecure })
  }

  #keep(visit: Visit, session: LoginSession): string[] {
    return this.#sessionCookies(visit, session).flatMap(asField)
  }

  #sessionCookies({ cookie, owner }: Visit, session: LoginSession): string[] {
    const { limits, clock } = this.#options
    const maxAgeS = Math.ceil((sessionEnd(session, limits) - clock.now()) / 1_000)
    return sessionCookies(session, maxAgeS, cookie, owner)
  }

  async #guard(visit: Visit, work: () => Promise<Outcome>): Promise<Outcome> {
    const { kind, log } = this.#options
    const { exchange, origin } = visit
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof LoginError)) throw error
      const result = resultErrorOf(error, kind)
      exchange.results.set(kind, loginResult(kind, undefined, { error: result }))
      if (error.cause !== undefined) {
        const problem = exchange.readSecrets.mask(messagesOf(error.cause))
        const { id: endpoint, host } = exchange.endpoint
        const seen = { endpoint, host, code: result.code, problem }
        log[this.#levelOf(error)](seen, 'sign-in failed')
      }
      return refuseLogin(error, { kind, loginUrl: this.#loginUrl(origin) }, [])
    }
  }

  /** The owner must see why no visitor can sign in. Visitors decide how often that happens. */
  #levelOf({ fault }: LoginError): 'warn' | 'info' {
    return LOGIN_FAULTS[fault].status === 502 ? this.#warnings.next() : 'info'
  }

  #loginUrl(origin: string): string {
    const { authId } = this.#options
    return `${origin}${PATHS.login}${authId === '' ? '' : `?auth_id=${authId}`}`
  }
}

/** The reason why a returning visitor does not match the visitor that left. */
function faultOf(flow: LoginFlow, url: URL, now: number, nonce: string | undefined) {
  if (now >= flow.startedAt + FLOW_MS) return 'late'
  if (!isOfBrowser(flow, nonce)) return 'no-nonce'
  const { searchParams: answer } = url
  return answer.has('code') || answer.has('error') ? undefined : 'bad-state'
}

/** The path that a page requested for after the sign-in. */
function returnPath({ exchange, request, origin }: Visit): string {
  const query = exchange.parsed.query(request.clientTarget, exchange.account)
  return localPath(query.get('redirect_path')?.[0] ?? '/', origin)
}

/** Whether this is a browser's preflight request to another origin (Fetch, 4.8). */
function isPreflight({ method, headers }: PolicyRequest): boolean {
  return (
    method === 'OPTIONS' && headers.has('origin') && headers.has('access-control-request-method')
  )
}

function redirectTo(url: string, cookies: readonly string[]): Outcome {
  const headers = ['location', url, 'cache-control', 'no-store', ...cookies.flatMap(asField)]
  return respond({ status: 302, headers, body: '' })
}

const asField = (cookie: string) => ['set-cookie', cookie]
const nonceName = ({ tag, isSecure }: CookieOwner) => loginCookieName('nonce', tag, isSecure)
const keyOf = (key: Buffer, purpose: string) => createHmac('sha256', key).update(purpose).digest()

/** Only the messages of an error and its causes: other fields may contain tokens. */
function messagesOf(cause: unknown): string {
  const messages: string[] = []
  for (let at = cause; at instanceof Error && messages.length < MAX_CAUSES; at = at.cause) {
    // The library wraps errors in this text, which says nothing.
    if (at.message !== 'something went wrong' || at.cause === undefined) messages.push(at.message)
  }
  return messages.join(': ')
}
