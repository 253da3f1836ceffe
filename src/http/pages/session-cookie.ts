import type { CookieOptions, Request, Response } from 'express'
import type { Secret } from '../../base/secret.ts'

export interface SessionCookieOptions {
  readonly name: string
  /** It is sent to this path and what lies below it. */
  readonly path: string
}

/** The cookie of a page's sessions, RFC 6265: no script reads it, and no other site sends it. */
export class SessionCookie {
  readonly #name: string
  readonly #path: string
  readonly #value: RegExp

  constructor({ name, path }: SessionCookieOptions) {
    this.#name = name
    this.#path = path
    this.#value = new RegExp(`(?:^|; *)${name}=([\\w-]{43})(?:;|$)`)
  }

  /** The session id that the browser presents, or an empty text. */
  read(request: Request): string {
    return this.#value.exec(request.get('cookie') ?? '')?.[1] ?? ''
  }

  /** The browser keeps it until it is closed; the server decides when the session is over. */
  set(request: Request, response: Response, id: Secret): void {
    response.cookie(this.#name, id.reveal(), this.#optionsFor(request))
  }

  clear(request: Request, response: Response): void {
    response.clearCookie(this.#name, this.#optionsFor(request))
  }

  #optionsFor(request: Request): CookieOptions {
    // Behind a proxy that ends TLS. A client that says so without reason hurts only itself.
    const secure = request.secure || request.get('x-forwarded-proto') === 'https'
    return { httpOnly: true, sameSite: 'strict', secure, path: this.#path }
  }
}
