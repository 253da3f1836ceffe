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
/** Ports that say nothing beside their scheme. */
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
