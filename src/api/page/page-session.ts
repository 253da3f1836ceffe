import type { Request, RequestHandler } from 'express'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { SlidingLog } from '../../base/limiter.ts'
import { peerNetwork } from '../../base/net/network.ts'
import { peerAddress } from '../../http/access-log.ts'
import { type Caller, keepCaller } from '../../http/caller.ts'
import { type BrowserSessions, SessionCookie } from '../../http/pages/browser-sessions.ts'

import type { ApiTokens } from '../api-tokens.ts'

/** A page that shows what changes asks all the time. */
const REQUESTS_PER_MINUTE = 600
const MINUTE_MS = 60_000
/** What the page sends along when it asks by itself, with nobody at the keyboard. */
const BACKGROUND_HEADER = 'x-background'
/** Holder of the sessions that were opened with a one-time code; others have the hash of a token. */
export const CODE_HOLDER = 'one-time code'
/** Whoever has made a code may use the local socket, and that may do everything. */
const CODE_CALLER: Caller = {
  actor: { kind: 'page', id: null, name: CODE_HOLDER },
  scope: 'write',
}
const IS_OVER = 'The session has ended. Sign in again.'

export const pageCookie = new SessionCookie({ name: 'device_page', path: '/page' })

export interface PageSessionDeps {
  readonly sessions: BrowserSessions
  readonly tokens: ApiTokens
  readonly clock: Clock
}

/** Who is signed in, while that is good. With the token that opened it a session ends. */
export function callerOfSession(
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
export function callerOfHolder(holder: string, tokens: ApiTokens): Caller | undefined {
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
    const waitMs = requests.take(peerNetwork(peerAddress(request)))
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
