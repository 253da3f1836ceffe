import { duration, timestamp, type ValueInput } from '../expression/value.ts'
import type { PolicyRequest, PolicyResponse } from './policy-exchange.ts'

/** The URL of a request in its parts, as expressions see them. Nothing is normalized away. */
export interface RequestUrl {
  readonly text: string
  /** Host and port as in the Host field. */
  readonly authority: string
  /** Percent-decoded; as it came when it cannot be decoded. */
  readonly path: string
  readonly rawPath: string
  /** Without the question mark. */
  readonly query: string
}

export function requestUrl(request: PolicyRequest): RequestUrl {
  const { target, scheme } = request
  const authority = request.headers.get('host') ?? request.host
  const mark = target.indexOf('?')
  const rawPath = mark === -1 ? target : target.slice(0, mark)
  return {
    text: `${scheme}://${authority}${target}`,
    authority,
    path: decode(rawPath),
    rawPath,
    query: mark === -1 ? '' : target.slice(mark + 1),
  }
}

export function queryOf(request: PolicyRequest): Map<string, string[]> {
  const mark = request.target.indexOf('?')
  return parseQuery(mark === -1 ? '' : request.target.slice(mark + 1))
}

/** `a=1&b=2&a=3` by name, in order. */
export function parseQuery(text: string): Map<string, string[]> {
  const query = new Map<string, string[]>()
  for (const [name, value] of new URLSearchParams(text)) push(query, name, value)
  return query
}

/** A cookie of a request. */
export type Cookie = {
  readonly name: string
  readonly value: string
}

/** Cookies by name, in the order of the Cookie field (RFC 6265 5.4). */
export function cookiesOf(request: PolicyRequest): Map<string, Cookie[]> {
  const cookies = new Map<string, Cookie[]>()
  for (const field of request.headers.all('cookie')) {
    for (const pair of field.split(';')) {
      const cookie = cookiePair(pair)
      if (cookie) push(cookies, cookie.name, cookie)
    }
  }
  return cookies
}

/** Cookies that a response sets, by name, with their attributes (RFC 6265 5.2). */
export function setCookiesOf(response: PolicyResponse): Map<string, ValueInput[]> {
  const cookies = new Map<string, ValueInput[]>()
  for (const field of response.headers.all('set-cookie')) {
    const [pair, ...attributes] = field.split(';')
    const cookie = cookiePair(pair ?? '')
    if (cookie) push(cookies, cookie.name, { ...cookie, ...cookieAttributes(attributes) })
  }
  return cookies
}

function cookieAttributes(parts: readonly string[]): Record<string, ValueInput> {
  const known: Record<string, ValueInput> = {
    domain: '',
    path: '',
    http_only: false,
    secure: false,
    same_site: '',
  }
  const unparsed: string[] = []
  for (const part of parts) {
    const [name = '', ...rest] = part.trim().split('=')
    const value = rest.join('=')
    const time = Date.parse(value)
    switch (name.toLowerCase()) {
      case 'domain':
      case 'path':
        known[name.toLowerCase()] = value
        break
      case 'expires':
        if (Number.isFinite(time)) known.expires = timestamp(time)
        break
      case 'max-age':
        if (/^-?\d{1,15}$/.test(value)) known.max_age = duration(BigInt(value))
        break
      case 'httponly':
        known.http_only = true
        break
      case 'secure':
        known.secure = true
        break
      case 'samesite':
        known.same_site = value
        break
      default:
        unparsed.push(part.trim())
    }
  }
  return { ...known, unparsed_attributes: unparsed }
}

/** A media type and its parameters, both as RFC 9110 8.3.1 has them. */
export function parseContentType(raw: string): {
  readonly type: string
  readonly parameters: ReadonlyMap<string, string>
} {
  const [type = '', ...rest] = raw.split(';')
  const parameters = new Map<string, string>()
  for (const part of rest) {
    const mark = part.indexOf('=')
    if (mark === -1) continue
    const value = part.slice(mark + 1).trim()
    parameters.set(part.slice(0, mark).trim().toLowerCase(), value.replace(/^"(.*)"$/, '$1'))
  }
  return { type: type.trim().toLowerCase(), parameters }
}

function cookiePair(text: string): Cookie | undefined {
  const mark = text.indexOf('=')
  if (mark === -1) return undefined
  const name = text.slice(0, mark).trim()
  return name === '' ? undefined : { name, value: text.slice(mark + 1).trim() }
}

function decode(text: string): string {
  if (!text.includes('%')) return text
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function push<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key)
  if (list) list.push(value)
  else map.set(key, [value])
}
