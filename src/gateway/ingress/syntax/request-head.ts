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
import { findMessageFields } from './message-fields.ts'

/** A checked request head, with the parts that the gateway needs. */
export interface RequestHead {
  readonly method: string
  /** Origin form or `*`. An absolute form is reduced to its path and query. */
  readonly target: string
  readonly version: HttpVersion
  /** Visitor's HTTP version, if the request came from another node. */
  readonly visitorVersion: HttpVersion | undefined
  /** Alternates name and value, in the received order and case. */
  readonly fields: readonly string[]
  /** Whether heads with the same array of fields follow, probably. */
  readonly recurs?: boolean | undefined
  /** Value of Host as received. */
  readonly host: string
  /** Lower case, without port and final dot. */
  readonly hostname: string
  readonly framing: BodyFraming
  readonly connection: ConnectionOptions
  /** Protocol to switch to; undefined without a protocol that can be spliced. */
  readonly upgrade: string | undefined
  readonly expectsContinue: boolean
  readonly acceptsTrailers: boolean
  /** False if the client wants the connection closed after this exchange. */
  readonly keepAlive: boolean
}

/**
 * Allows all methods except CONNECT, which asks for a tunnel to a third party (RFC 9110 9.3.6). Services have
 * additional methods, for example WebDAV versioning or RPC over HTTP. Only capitals: a method in another case
 * is a different method, which some servers and rules confuse with the usual method.
 */
const METHOD = /^(?!CONNECT$)[A-Z][A-Z0-9_-]{0,31}$/

const ABSOLUTE_FORM = /^https?:\/\/([^/?]*)(.*)$/i

const REPEATED = new WeakMap<ScannedHead, RequestHead>()

/** Parses a scanned head as a request (RFC 9112 3 and 6), a repeated head once. Throws HttpSyntaxError. */
export function parseRequestHead(scanned: ScannedHead): RequestHead {
  if (!scanned.repeats) return parseHead(scanned)
  const known = REPEATED.get(scanned)
  if (known) return known
  const head = parseHead(scanned)
  REPEATED.set(scanned, head)
  return head
}

function parseHead(scanned: ScannedHead): RequestHead {
  const { line, fields, recurs } = scanned
  const methodEnd = line.indexOf(' ')
  const targetEnd = line.lastIndexOf(' ')
  const method = line.slice(0, methodEnd)
  checkMethod(method)
  const version = parseVersion(line, targetEnd + 1)
  const found = findMessageFields(scanned, 'request')
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
    // Set already here: a copy with an added property takes 1.5 us, a copy with a changed value takes no
    // time.
    visitorVersion: undefined,
    fields,
    recurs,
    host,
    hostname: hostnameOf(host),
    framing,
    connection,
    // Also allowed with a body, as `docker exec` sends it: the switch follows the body (RFC 9110 7.8).
    upgrade: connection.upgrade && version === '1.1' ? spliceable(found.upgrade) : undefined,
    // HTTP/1.0 has no status 100 (RFC 9110 10.1.1).
    expectsContinue: expectsContinue(found.expect) && version === '1.1',
    acceptsTrailers: acceptsTrailers(found.te),
    keepAlive: version === '1.1' ? !connection.close : connection.keepAlive && !connection.close,
  }
}

/** Throws HttpSyntaxError for a method that is not served. */
export function checkMethod(method: string): void {
  // TRACE would show scripts data that they may not read. 501: not available for any resource (RFC 9110 9.1,
  // 9.3.8).
  if (method === 'TRACE') throw new HttpSyntaxError('the method TRACE', 'not-implemented')
  if (!METHOD.test(method)) throw new HttpSyntaxError('a method that is not allowed')
}

function parseVersion(line: string, at: number): HttpVersion {
  const version = line.slice(at)
  if (version === 'HTTP/1.1') return '1.1'
  if (version === 'HTTP/1.0') return '1.0'
  throw new HttpSyntaxError('a version other than HTTP/1.1 and HTTP/1.0')
}

/** Accepts all forms of RFC 9112 3.2 except that of CONNECT. An absolute form must name the same host. */
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

/** Whether `Expect` asks for a 100 (RFC 9110 10.1.1). Throws HttpSyntaxError for other expectations. */
export function expectsContinue(value: string | undefined): boolean {
  if (value === undefined) return false
  if (value.toLowerCase() === '100-continue') return true
  throw new HttpSyntaxError('an expectation other than 100-continue', 'unmet-expectation')
}

/** Whether `TE` allows trailers (RFC 9110 10.1.4). */
export function acceptsTrailers(value: string | undefined): boolean {
  return value !== undefined && /(^|[, \t])trailers($|[,; \t])/i.test(value)
}

/** Protocols that could carry further, unseen requests: HTTP/2, and HTTP alone or under TLS (RFC 2817). */
const CARRIES_HTTP = /(^|[, \t])(?:h2c?|(?:http|tls)(?:\/[\d.]*)?)($|[, \t])/i

/** Returns the protocol, or undefined if it carries HTTP: no policy would see its requests. */
export function spliceable(upgrade: string | undefined): string | undefined {
  return upgrade !== undefined && CARRIES_HTTP.test(upgrade) ? undefined : upgrade
}
