import type { Request, RequestHandler } from 'express'
import { AppError } from '../../../base/app-error.ts'
import type { Clock } from '../../../base/clock.ts'
import { SlidingLog } from '../../../base/limit/sliding-log.ts'
import { SessionCookie } from '../../../http/pages/session-cookie.ts'
import type { Authority } from '../../access/authority.ts'
import type { ApiKey } from '../../records/api-key-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import { setCaller } from '../caller.ts'
import type { ConsoleSessions } from './site-sessions.ts'

/** A page that shows live figures asks all the time, so a session may do more than a program. */
const REQUESTS_PER_MINUTE = 600
const MINUTE_MS = 60_000
/** What the page sends along when it asks by itself, with nobody at the keyboard. */
const BACKGROUND_HEADER = 'x-background'

export const sessionCookie = new SessionCookie({ name: 'console_session', path: '/console' })

export interface SessionAuthDeps {
  readonly consoleSessions: ConsoleSessions
  readonly authority: Authority
  readonly clock: Clock
}

/**
 * The API key of the session that a request belongs to, while it is good. The session acts as that
 * key: with the key, or with the key's owner, it ends.
 */
export function keyOfSession(
  { consoleSessions, authority }: SessionAuthDeps,
  request: Request,
): ApiKey | undefined {
  const id = sessionCookie.read(request)
  const isUse = request.get(BACKGROUND_HEADER) === undefined
  const session = consoleSessions.find(id, { isUse })
  if (!session) return undefined
  try {
    const apiKey = authority.currentApiKey(session.holder)
    if (isUse) authority.noteUse(apiKey)
    return apiKey
  } catch (error) {
    if (!(error instanceof ServiceError || error instanceof AppError)) throw error
    // The key is good nowhere, so nobody has to be told.
    void Promise.resolve(consoleSessions.close(id)).catch(() => {})
    return undefined
  }
}

/** Lets requests of a session pass. Throws AppError `unauthenticated` or `too-many-requests`. */
export function sessionAuth(deps: SessionAuthDeps): RequestHandler {
  const requests = new SlidingLog({
    capacity: REQUESTS_PER_MINUTE,
    windowMs: MINUTE_MS,
    clock: deps.clock,
  })
  return (request, response, next) => {
    const apiKey = keyOfSession(deps, request)
    if (!apiKey) throw new AppError('unauthenticated', 'The session has ended. Sign in again.')
    const waitMs = requests.take(apiKey.id)
    if (waitMs > 0) {
      throw new AppError(
        'too-many-requests',
        'Too many requests from the console. It continues shortly.',
        {
          retryAfterS: waitMs / 1_000,
        },
      )
    }
    setCaller(response, apiKey, { kind: 'console', authority: deps.authority })
    next()
  }
}
