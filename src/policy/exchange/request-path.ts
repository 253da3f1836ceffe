import { type Outcome, refuse } from './outcome.ts'

/**
 * A host as decisions see it: lower case, without port and without the dot of a rooted name.
 * `Admin.Example.:8443` and `admin.example` are the same host. IPv6 addresses keep their brackets.
 */
export function plainHost(host: string): string {
  const colon = host.indexOf(':', host.lastIndexOf(']') + 1)
  const end = colon === -1 ? host.length : colon
  const isRooted = end > 1 && host.charCodeAt(end - 1) === DOT
  return host.slice(0, isRooted ? end - 1 : end).toLowerCase()
}

const DOT = 0x2e
/** Default port of each scheme. */
const DEFAULT_PORT = { http: ':80', https: ':443' } as const

/** The same with its port, unless that is the port of the scheme. */
export function plainAuthority(authority: string, scheme: 'http' | 'https'): string {
  const colon = authority.indexOf(':', authority.lastIndexOf(']') + 1)
  const port = colon === -1 ? '' : authority.slice(colon)
  const host = plainHost(authority)
  return port === DEFAULT_PORT[scheme] || port === ':' ? host : `${host}${port}`
}

/** Values of a request header as decisions see them: hosts have one spelling. */
export function plainValues(name: string, values: string[]): string[] {
  return isHostHeader(name) ? values.map(plainHost) : values
}

const HOST_HEADERS: ReadonlySet<string> = new Set(['host', 'x-forwarded-host'])
const HOST_LENGTHS: ReadonlySet<number> = new Set(Array.from(HOST_HEADERS, ({ length }) => length))

/** The header that names the host, and the copy of it that devices get. */
const isHostHeader = (name: string) =>
  HOST_LENGTHS.has(name.length) && HOST_HEADERS.has(name.toLowerCase())

const SLASH = '/'
const PERCENT = 0x25
const UPPER_DIGITS = '0123456789ABCDEF'
/** Characters with a meaning of their own in a URL: an encoded one stays encoded. */
const KEPT = '%/?#\\'
/** The value of each hexadecimal digit by its character code; -1 for others. */
const HEX_DIGITS = Int8Array.from({ length: 128 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16)
  return Number.isNaN(digit) ? -1 : digit
})

/** Decoding of each encoded byte of a path for decisions: the character if it is visible ASCII. */
const IN_PATH = decodingTable((char) => /[!-~]/.test(char) && !KEPT.includes(char))
/** The same for a query, in which only unreserved characters have no special meaning (RFC 3986 2.3). */
const IN_QUERY = decodingTable((char) => /[\w.~-]/.test(char))

/** An encoded blank, or an encoded character beyond ASCII in valid UTF-8 (RFC 3629 4). */
const TEXT = new RegExp(
  `(?:%20|${[
    'U1T',
    '%E0%[AB]HT',
    '%(?:E[1-9ABCEF])TT',
    '%ED%[89]HT',
    '%F0%[9AB]HTT',
    '%F[123]TTT',
    '%F4%8HTT',
  ]
    .join('|')
    .replaceAll('U1', '%(?:C[2-9A-F]|DH)')
    .replaceAll('T', '%[89AB]H')
    .replaceAll('H', '[0-9A-F]')})+`,
  'g',
)

/** Slashes in a row, plain and encoded. */
const SLASHES = /(?:\/|%2F){2,}/g

/**
 * Segments that a service may resolve (RFC 3986 5.2.4): `.` or `..` after a slash, a backslash or their
 * encodings. Encodings may be double or overlong UTF-8. A parameter may follow (`..;x`), or stand alone. Also
 * characters that end or separate names for some services: a backslash and NUL.
 */
const AMBIGUOUS = new RegExp(
  [
    /\\|%5c|%00/.source,
    /(?:%c0|%e0%80|%f0%80%80)%(?:80|a[ef])|(?:%c1|%e0%81|%f0%80%81)%9c/.source,
    /(?:\/|%(?:25)*(?:2f|5c))(?:(?:\.|%(?:25)*2e){1,2}(?=[/;]|%(?:25)*(?:2f|5c|3b)|$)|;|%(?:25)*3b)/
      .source,
  ].join('|'),
  'i',
)
/** Most paths have nothing that has to be looked at closer. */
const MAY_BE_AMBIGUOUS = /[\\%]|\/[.;]/
const MAY_NOT_BE_PLAIN = /%|\/\//

/** The error code of `AMBIGUOUS_PATH`. */
const AMBIGUOUS_PATH_CODE = 'ERR_GATEWAY_AMBIGUOUS_PATH'

/** The answer to a request with a path that policy and service may read differently. */
export const AMBIGUOUS_PATH: Outcome = refuse(
  400,
  AMBIGUOUS_PATH_CODE,
  'The path has a dot segment (/./ or /../), a backslash or a NUL. The traffic policy of this ' +
    'endpoint decides by the path and does not accept these. Send the path without them.',
)

/** The path of a target as it came. */
export function rawPathOf(target: string): string {
  const mark = target.indexOf('?')
  return mark === -1 ? target : target.slice(0, mark)
}

/** Whether a service may understand the path of a target differently than a policy. */
export function isAmbiguousPath(target: string): boolean {
  if (!MAY_BE_AMBIGUOUS.test(target)) return false
  // Decoded once: signs and digits of an escape may be escaped, as in `%25%32%65` for `%252e`.
  return AMBIGUOUS.test(decode(rawPathOf(target), IN_PATH))
}

/** A target in its parts as decisions see them. */
export interface PlainTarget {
  /** Path and query as a URL: blanks and other scripts stay encoded. */
  readonly text: string
  /** The path as people write it. */
  readonly path: string
  /** Without the question mark. */
  readonly query: string
}

/**
 * Normalizes a target for comparison in rules. Characters that need no encoding are decoded, double slashes
 * become one, and escapes are upper case. An encoded slash stays, unless a plain slash is next to it. Dot
 * segments stay, too.
 */
export function plainTarget(target: string): PlainTarget {
  const rawPath = rawPathOf(target)
  const rawQuery = target.slice(rawPath.length + 1)
  const query = rawQuery.includes('%') ? decode(rawQuery, IN_QUERY) : rawQuery
  const urlPath = MAY_NOT_BE_PLAIN.test(rawPath)
    ? decode(rawPath, IN_PATH).replace(SLASHES, oneSlash)
    : rawPath
  const path = urlPath.includes('%') ? urlPath.replace(TEXT, decodeURIComponent) : urlPath
  const text = rawPath.length === target.length ? urlPath : `${urlPath}?${query}`
  return { text, path, query }
}

/** Some services decode a slash and merge it with a plain slash next to it. */
const oneSlash = (slashes: string) => (slashes.includes(SLASH) ? SLASH : slashes)

/** Decodes ASCII text, such as a target. */
function decode(text: string, table: Uint8Array): string {
  const bytes = Buffer.allocUnsafe(text.length)
  let length = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    bytes[length] = code
    length += 1
    if (code !== PERCENT) continue
    const high = HEX_DIGITS[text.charCodeAt(at + 1)] ?? -1
    const low = HEX_DIGITS[text.charCodeAt(at + 2)] ?? -1
    if (high < 0 || low < 0) continue
    at += 2
    const char = table[high * 16 + low] as number
    if (char === 0) {
      bytes[length] = UPPER_DIGITS.charCodeAt(high)
      bytes[length + 1] = UPPER_DIGITS.charCodeAt(low)
      length += 2
    } else bytes[length - 1] = char
  }
  return bytes.toString('latin1', 0, length)
}

/** The characters that are decoded; 0 for others. */
function decodingTable(isDecoded: (char: string) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) =>
    isDecoded(String.fromCharCode(byte)) ? byte : 0,
  )
}
