import type { PolicyExchange } from './policy-exchange.ts'

export type LoginCookieKind = 'session' | 'nonce'

const NAME = /^(?:__Host-)?(?:session|nonce)\.[0-9a-f]{12}(?:\.\d)?$/

/**
 * Name of a sign-in cookie. On HTTPS, only this host can set it (RFC 6265bis 4.1.3.2). On plain HTTP,
 * browsers reject this prefix and `Secure`.
 */
export function loginCookieName(kind: LoginCookieKind, tag: string, isSecure: boolean): string {
  return `${isSecure ? '__Host-' : ''}${kind}.${tag}`
}

/** A Set-Cookie value; with a `maxAgeS` of 0 the browser forgets the cookie. */
export function setLoginCookie(
  name: string,
  value: string,
  { maxAgeS, isSecure }: { readonly maxAgeS: number; readonly isSecure: boolean },
): string {
  const secure = isSecure ? '; Secure' : ''
  return `${name}=${value}; Path=/; Max-Age=${maxAgeS}; HttpOnly${secure}; SameSite=Lax`
}

/** The first cookie of each name that a client sends. */
export function cookiesOf(exchange: PolicyExchange): (name: string) => string | undefined {
  const fields = exchange.request?.headers.all('cookie') ?? []
  const cookies = exchange.parsed.cookies(fields, exchange.account)
  return (name) => cookies.get(name)?.[0]?.value
}

/** The fields of a request, name and value in turn, without the cookies of a log-in. */
export function withoutLoginCookies(fields: readonly string[]): string[] {
  const kept: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    const value = fields[at + 1] as string
    const rest = name.toLowerCase() === 'cookie' ? othersIn(value) : value
    if (rest !== '') kept.push(name, rest)
    else if (value === '') kept.push(name, value)
  }
  return kept
}

function othersIn(field: string): string {
  const pairs = field.split(';').map((pair) => pair.trim())
  const isOwn = (pair: string) => NAME.test(pair.split('=', 1)[0]?.trim() ?? '')
  return pairs.some(isOwn) ? pairs.filter((pair) => !isOwn(pair)).join('; ') : field
}
