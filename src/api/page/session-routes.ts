import { hostname } from 'node:os'
import type { Request, RequestHandler, Response } from 'express'
import * as z from 'zod'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { type Limiter, SlidingLog, TokenBuckets } from '../../base/limiter.ts'
import type { Logger } from '../../base/logger.ts'
import { peerNetwork } from '../../base/net/network.ts'
import { hashToken } from '../../base/secret.ts'
import { peerAddress } from '../../http/access-log.ts'
import { type Caller, keepCaller } from '../../http/caller.ts'
import type { ChangeTrail } from '../../http/change-audit.ts'
import { jsonBody } from '../../http/json-body.ts'
import { type BrowserSessions, SessionCookie } from '../../http/pages/browser-sessions.ts'
import { parse } from '../../http/parse.ts'
import type { Route } from '../../http/routes.ts'
import { OK } from '../../store/audit-trail.ts'
import type { ApiTokens } from '../api-tokens.ts'
import type { OneTimeCodes } from './one-time-codes.ts'

/** The page polls for changes. */
const REQUESTS_PER_MINUTE = 600
const MINUTE_MS = 60_000
/** Header of polling requests, which no person triggers. */
const BACKGROUND_HEADER = 'x-background'
/** Holder of the sessions that were opened with a one-time code; others have the hash of a token. */
const CODE_HOLDER = 'one-time code'
/**
 * A code can only be requested over the local socket, which allows everything. So a session opened with a
 * code may do everything, too.
 */
const CODE_CALLER: Caller = {
  actor: { kind: 'page', id: null, name: CODE_HOLDER },
  scope: 'write',
}
const IS_OVER = 'The session has ended. Sign in again.'

const pageCookie = new SessionCookie({ name: 'device_page', path: '/page' })

interface PageSessionDeps {
  readonly sessions: BrowserSessions
  readonly tokens: ApiTokens
  readonly clock: Clock
}

/** The signed-in caller, while the session is valid. A session ends with the token that opened it. */
function callerOfSession(
  { sessions, tokens }: PageSessionDeps,
  request: Request,
): Caller | undefined {
  const id = pageCookie.read(request)
  const session = sessions.find(id, { isUse: request.get(BACKGROUND_HEADER) === undefined })
  const caller = session && callerOfHolder(session.holder, tokens)
  if (session && !caller) void sessions.close(id)
  return caller
}

/** The caller that a session of this holder acts as; undefined once the token has ended. */
function callerOfHolder(holder: string, tokens: ApiTokens): Caller | undefined {
  if (holder === CODE_HOLDER) return CODE_CALLER
  const caller = tokens.authenticateHash(holder)
  if (caller === undefined || caller === 'ended') return undefined
  return { ...caller, actor: { ...caller.actor, kind: 'page' } }
}

/** Lets requests of a session pass. Throws AppError `unauthenticated` or `too-many-requests`. */
export function pageAuth(deps: PageSessionDeps): RequestHandler {
  const { clock } = deps
  const requests = new SlidingLog({
    capacity: REQUESTS_PER_MINUTE,
    windowMs: MINUTE_MS,
    clock,
  })
  return (request, response, next) => {
    const caller = callerOfSession(deps, request)
    if (!caller) throw new AppError('unauthenticated', IS_OVER)
    const waitMs = requests.tryCount(peerNetwork(peerAddress(request)))
    if (waitMs > 0) {
      throw new AppError(
        'too-many-requests',
        'Too many requests from this page. It continues shortly.',
        {
          retryAfterS: waitMs / 1_000,
        },
      )
    }
    keepCaller(response, caller, () => {
      if (!callerOfSession(deps, request)) throw new AppError('unauthenticated', IS_OVER)
    })
    next()
  }
}

const MAX_LENGTH = 1_000
const SignIn = z.union([
  z.strictObject({ code: z.string().max(MAX_LENGTH) }),
  z.strictObject({ token: z.string().max(MAX_LENGTH) }),
])
/**
 * Limit of wrong codes from one address. All users of a machine share one address, but a right code never
 * waits. 60 random bits cannot be guessed within five minutes at any rate.
 */
const TRIES = { capacity: 10, refillPerS: 0.2, maxKeys: 1_000 }

export interface SessionRoutesDeps extends PageSessionDeps {
  readonly codes: OneTimeCodes
  readonly trail: ChangeTrail
  /** Limit of wrong tokens by client, shared with the API. */
  readonly failures: Limiter
  readonly log: Logger
}

/** `/session`: shows the session, signs in with a one-time code or an API token, and signs out. */
export function sessionRoutes(deps: SessionRoutesDeps): Route[] {
  const { clock, codes, failures, log, sessions, tokens, trail } = deps
  const tries = new TokenBuckets({ ...TRIES, clock })
  return [
    {
      route: 'GET /session',
      isInternal: true,
      handle: (request, response) => {
        const caller = callerOfSession(deps, request)
        response.json({ session: caller ? sessionView(caller) : null })
      },
    },
    { route: 'POST /session', isInternal: true, before: [jsonBody], handle: signIn },
    { route: 'DELETE /session', isInternal: true, handle: signOut },
  ]

  async function signIn(request: Request, response: Response): Promise<void> {
    const given = parse(SignIn, request.body)
    const client = peerAddress(request)
    const holder = 'code' in given ? redeem(given.code, client) : verify(given.token, client)
    const caller = callerOfHolder(holder, tokens)
    if (!caller) throw new AppError('unauthenticated', 'The token has expired.')
    await sessions.close(pageCookie.read(request))
    pageCookie.set(request, response, await sessions.open(holder))
    log.info({ client, name: caller.actor.name }, 'page session opened')
    await note('session.create', caller, request)
    response.status(201).json({ session: sessionView(caller) })
  }

  async function signOut(request: Request, response: Response): Promise<void> {
    const caller = callerOfSession(deps, request)
    await sessions.close(pageCookie.read(request))
    pageCookie.clear(request, response)
    if (caller) await note('session.delete', caller, request)
    response.status(204).end()
  }

  function note(action: string, { actor }: Caller, request: Request): Promise<void> {
    return trail.note({ actor, client: peerAddress(request), action }, OK)
  }

  /** A right code never waits, even after wrong codes from the same address. */
  function redeem(code: string, client: string): string {
    if (codes.redeem(code)) return CODE_HOLDER
    const waitMs = tries.tryCount(peerNetwork(client))
    if (waitMs > 0) throw tooMany('Too many wrong codes from this address.', waitMs)
    log.warn({ client }, 'wrong code on the device page')
    const detail = 'The code is wrong or has expired. Create a new code with device-agent page.'
    throw new AppError('unauthenticated', detail)
  }

  /** A right token never waits, even after many wrong tokens. */
  function verify(token: string, client: string): string {
    const hash = hashToken(token.trim())
    const found = tokens.authenticateHash(hash)
    if (found !== undefined && found !== 'ended') return hash
    const waitMs = failures.tryCount(client)
    if (waitMs > 0) throw tooMany('Too many wrong tokens.', waitMs)
    log.warn({ client }, 'wrong token on the device page')
    throw new AppError(
      'unauthenticated',
      'The token is not valid. Check that you copied all of it.',
    )
  }
}

function tooMany(what: string, waitMs: number): AppError {
  const retryAfterS = waitMs / 1_000
  const detail = `${what} Try again in ${Math.ceil(retryAfterS)} s.`
  return new AppError('too-many-requests', detail, { retryAfterS })
}

function sessionView({ actor, scope }: Caller): object {
  return { name: actor.name, scope, hostname: hostname() }
}
