import type { CookieOptions, Request, Response } from 'express'
import type { Secret } from '../../../base/secret.ts'

const NAME = 'console_session'
const VALUE = new RegExp(`(?:^|; *)${NAME}=([\\w-]{43})(?:;|$)`)

/** RFC 6265: no script reads it, no other site sends it, and it stays within the console. */
const optionsFor = (request: Request): CookieOptions => ({
  httpOnly: true,
  sameSite: 'strict',
  secure: request.secure,
  path: '/console',
})

/** The session id that the browser presents, or an empty text. */
export function readSessionCookie(request: Request): string {
  return VALUE.exec(request.get('cookie') ?? '')?.[1] ?? ''
}

/** The browser keeps it until it is closed; the gateway decides when it is over. */
export function setSessionCookie(request: Request, response: Response, id: Secret): void {
  response.cookie(NAME, id.reveal(), optionsFor(request))
}

export function clearSessionCookie(request: Request, response: Response): void {
  response.clearCookie(NAME, optionsFor(request))
}
