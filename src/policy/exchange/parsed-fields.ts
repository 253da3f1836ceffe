import type { Account } from '../expression/account.ts'
import { duration, timestamp, type ValueInput } from '../expression/value.ts'
import { type PlainTarget, plainTarget } from './request-path.ts'
import { MAX_USER_AGENT, readUserAgent, type UserAgent } from './user-agent.ts'

/** The media type in a Content-Type field, as RFC 9110 8.3.1 has it. */
export function mediaType(raw: string): string {
  const end = raw.indexOf(';')
  return (end === -1 ? raw : raw.slice(0, end)).trim().toLowerCase()
}

/** The parameters of the same. */
function mediaParameters(raw: string): ReadonlyMap<string, string> {
  const parameters = new Map<string, string>()
  for (const part of raw.split(';').slice(1)) {
    const mark = part.indexOf('=')
    if (mark === -1) continue
    const value = part.slice(mark + 1).trim()
    parameters.set(part.slice(0, mark).trim().toLowerCase(), value.replace(/^"(.*)"$/, '$1'))
  }
  return parameters
}

/** Steps for 1,024 characters: to split them, to search for escapes, and to decode them. */
const KIB_STEPS = 400
const LOOKUP_STEPS = 100
const DECODE_STEPS = 500
/** Steps to parse a User-Agent. The price does not depend on the process-wide cache. */
const USER_AGENT_STEPS = 300
const USER_AGENT_KIB_STEPS = 3_300
/** Steps to join one more field, and to compare 1,024 characters with earlier ones. */
const FIELD_STEPS = 1
const SAME_STEPS = 6

/**
 * Queries, cookies and the like. A field is taken apart once for as long as it stays the same: clients
 * choose how long it is, and policies how often they look.
 */
export class ParsedFields {
  readonly #query = new Parsed((target) => parseQuery(queryIn(target)))
  readonly #cookies = new Parsed(parseCookies)
  readonly #setCookies = new Parsed(parseSetCookies)
  readonly #target = new Parsed(plainTarget, (target) =>
    target.includes('%') ? DECODE_STEPS : LOOKUP_STEPS,
  )
  readonly #mediaParameters = new Parsed(mediaParameters)
  readonly #codings = new Parsed(parseList)
  readonly #userAgent = new Parsed(readUserAgent, () => USER_AGENT_KIB_STEPS, USER_AGENT_STEPS)

  /** Parameters of a target. Throws EvaluationError, as the others do, when the account is exhausted. */
  query(target: string, account: Account): Map<string, string[]> {
    return this.#query.get(target, account)
  }

  cookies(fields: readonly string[], account: Account): Map<string, Cookie[]> {
    return this.#cookies.get(joined(fields, ';', account), account)
  }

  setCookies(fields: readonly string[], account: Account): Map<string, ValueInput[]> {
    return this.#setCookies.get(joined(fields, '\n', account), account)
  }

  /** A target in the spelling that rules are compared with. */
  target(target: string, account: Account): PlainTarget {
    return this.#target.get(target, account)
  }

  /** Parameters of a Content-Type field. */
  mediaParameters(field: string, account: Account): ReadonlyMap<string, string> {
    return this.#mediaParameters.get(field, account)
  }

  /** A parsed User-Agent field. */
  userAgent(field: string, account: Account): UserAgent {
    return this.#userAgent.get(field.slice(0, MAX_USER_AGENT), account)
  }

  /** Codings of Content-Encoding fields, in order. */
  codings(fields: readonly string[], account: Account): string[] {
    return this.#codings.get(fields.join(','), account)
  }
}

/** To know whether they are the same takes all of them, each time. */
function joined(fields: readonly string[], between: string, account: Account): string {
  const text = fields.join(between)
  account.spend(FIELD_STEPS * fields.length + (SAME_STEPS * text.length) / 1_024)
  return text
}

class Parsed<T> {
  readonly #parse: (text: string) => T
  readonly #kibSteps: (text: string) => number
  readonly #steps: number
  #text: string | undefined
  #value: T | undefined

  constructor(
    parse: (text: string) => T,
    kibSteps: (text: string) => number = () => KIB_STEPS,
    steps = 0,
  ) {
    this.#parse = parse
    this.#steps = steps
    this.#kibSteps = kibSteps
  }

  get(text: string, account: Account): T {
    if (this.#value !== undefined && this.#text === text) return this.#value
    account.spend(this.#steps + (text.length * this.#kibSteps(text)) / 1_024)
    this.#text = text
    this.#value = this.#parse(text)
    return this.#value
  }
}

function queryIn(target: string): string {
  const mark = target.indexOf('?')
  return mark === -1 ? '' : target.slice(mark + 1)
}

function parseList(field: string): string[] {
  return field === '' ? [] : field.split(',').map((item) => item.trim())
}

/** `a=1&b=2&a=3` by name, in order. */
export function parseQuery(text: string): Map<string, string[]> {
  const query = new Map<string, string[]>()
  for (const [name, value] of new URLSearchParams(text)) push(query, name, value)
  return query
}

/** A cookie of a request. */
type Cookie = {
  readonly name: string
  readonly value: string
}

/** Cookies by name, in the order of the Cookie field (RFC 6265 5.4). */
function parseCookies(field: string): Map<string, Cookie[]> {
  const cookies = new Map<string, Cookie[]>()
  for (const pair of field.split(';')) {
    const cookie = cookiePair(pair)
    if (cookie) push(cookies, cookie.name, cookie)
  }
  return cookies
}

/** Cookies that Set-Cookie fields, a line each, set by name, with attributes (RFC 6265 5.2). */
function parseSetCookies(fields: string): Map<string, ValueInput[]> {
  const cookies = new Map<string, ValueInput[]>()
  for (const field of fields.split('\n')) {
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

function cookiePair(text: string): Cookie | undefined {
  const mark = text.indexOf('=')
  if (mark === -1) return undefined
  const name = text.slice(0, mark).trim()
  return name === '' ? undefined : { name, value: text.slice(mark + 1).trim() }
}

function push<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key)
  if (list) list.push(value)
  else map.set(key, [value])
}
