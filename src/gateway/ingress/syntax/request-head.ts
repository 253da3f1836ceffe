import type { HttpVersion } from '../../../policy/exchange/policy-exchange.ts'
import type { ScannedHead } from './head-scanner.ts'
import {
  type BodyFraming,
  CHUNKED,
  type ConnectionOptions,
  consistsOf,
  HttpSyntaxError,
  hostnameOf,
  TARGET,
} from './http-syntax.ts'
import { readMessageFields } from './message-fields.ts'

/** A checked request head, with what a gateway has to know about it. */
export interface RequestHead {
  readonly method: string
  /** Origin form or `*`; an absolute form is reduced to its path and query. */
  readonly target: string
  readonly version: HttpVersion
  /** What the visitor speaks, where the request has come by another node. */
  readonly visitorVersion: HttpVersion | undefined
  /** Name and value in turn, in the order and case of their arrival. */
  readonly fields: readonly string[]
  /** The value of Host as it came. */
  readonly host: string
  /** Lower case, without port, without the dot of a rooted name. */
  readonly hostname: string
  readonly framing: BodyFraming
  readonly connection: ConnectionOptions
  /** The protocol to switch to; undefined when the client asks for none that can be spliced. */
  readonly upgrade: string | undefined
  readonly expectsContinue: boolean
  readonly acceptsTrailers: boolean
  /** False when the client wants the connection closed after this exchange. */
  readonly keepAlive: boolean
}

/**
 * Any method but CONNECT, which asks for a tunnel to a third party (RFC 9110 9.3.6): services have
 * methods of their own, as those of WebDAV versioning or RPC over HTTP. Capitals alone: a method in
 * another case is another method, for which some servers and rules take the usual one.
 */
const METHOD = /^(?!CONNECT$)[A-Z][A-Z0-9_-]{0,31}$/

const ABSOLUTE_FORM = /^https?:\/\/([^/?]*)(.*)$/i

/** Understands a scanned head as a request (RFC 9112 3 and 6). Throws HttpSyntaxError. */
export function parseRequestHead({ line, fields }: ScannedHead): RequestHead {
  const methodEnd = line.indexOf(' ')
  const targetEnd = line.lastIndexOf(' ')
  const method = line.slice(0, methodEnd)
  checkMethod(method)
  const version = parseVersion(line, targetEnd + 1)
  const found = readMessageFields(fields, 'request')
  const { host, connection, contentLength = 0 } = found
  if (host === undefined) throw new HttpSyntaxError('no Host field')
  if (found.isChunked && version === '1.0') {
    throw new HttpSyntaxError('a Transfer-Encoding in HTTP/1.0')
  }
  const framing = found.isChunked ? CHUNKED : contentLength
  return {
    method,
    target: parseTarget(line.slice(methodEnd + 1, targetEnd), method, host),
    version,
    // Here already: a copy with one property more takes 1.5 us, and one with another value no time.
    visitorVersion: undefined,
    fields,
    host,
    hostname: hostnameOf(host),
    framing,
    connection,
    // Also with a body, as `docker exec` sends it: the switch comes behind it (RFC 9110 7.8).
    upgrade: connection.upgrade && version === '1.1' ? spliceable(found.upgrade) : undefined,
    // HTTP/1.0 knows no 100 (RFC 9110 10.1.1).
    expectsContinue: expectsContinue(found.expect) && version === '1.1',
    acceptsTrailers: acceptsTrailers(found.te),
    keepAlive: version === '1.1' ? !connection.close : connection.keepAlive && !connection.close,
  }
}

/** Throws HttpSyntaxError for a method that is not served. */
export function checkMethod(method: string): void {
  // It would show scripts what they may not read; for no resource at all is 501 (RFC 9110 9.1, 9.3.8).
  if (method === 'TRACE') throw new HttpSyntaxError('the method TRACE', 'not-implemented')
  if (!METHOD.test(method)) throw new HttpSyntaxError('a method that is not allowed')
}

function parseVersion(line: string, at: number): HttpVersion {
  const version = line.slice(at)
  if (version === 'HTTP/1.1') return '1.1'
  if (version === 'HTTP/1.0') return '1.0'
  throw new HttpSyntaxError('a version other than HTTP/1.1 and HTTP/1.0')
}

/** All forms of RFC 9112 3.2 but the one of CONNECT; an absolute form has to name the same host. */
function parseTarget(target: string, method: string, host: string): string {
  if (!consistsOf(target, 0, target.length, TARGET)) {
    throw new HttpSyntaxError('an invalid request target')
  }
  if (target.startsWith('/')) return target
  if (target === '*' && method === 'OPTIONS') return target
  const [, authority, path = ''] = ABSOLUTE_FORM.exec(target) ?? []
  if (authority === undefined) throw new HttpSyntaxError('an invalid request target')
  if (authority.toLowerCase() !== host.toLowerCase()) {
    throw new HttpSyntaxError('a request target whose host differs from Host')
  }
  if (path === '' && method === 'OPTIONS') return '*'
  return path.startsWith('/') ? path : `/${path}`
}

/** What the `Expect` fields say (RFC 9110 10.1.1). Throws HttpSyntaxError for what cannot be met. */
export function expectsContinue(value: string | undefined): boolean {
  if (value === undefined) return false
  if (value.toLowerCase() === '100-continue') return true
  throw new HttpSyntaxError('an expectation other than 100-continue', 'unmet-expectation')
}

/** What the `TE` fields say of trailers (RFC 9110 10.1.4). */
export function acceptsTrailers(value: string | undefined): boolean {
  return value !== undefined && /(^|[, \t])trailers($|[,; \t])/i.test(value)
}

/** Protocols in which further requests would pass unseen: HTTP/2, and HTTP by itself or under TLS (RFC 2817). */
const CARRIES_HTTP = /(^|[, \t])(?:h2c?|(?:http|tls)(?:\/[\d.]*)?)($|[, \t])/i

/** Such a protocol is not spliced: no policy would see its requests. */
export function spliceable(upgrade: string | undefined): string | undefined {
  return upgrade !== undefined && CARRIES_HTTP.test(upgrade) ? undefined : upgrade
}
