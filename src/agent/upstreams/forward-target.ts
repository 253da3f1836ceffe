import { isIPv4, isIPv6 } from 'node:net'
import { posix } from 'node:path'

/** Protocol of a tunnel's visitors. */
export type TunnelProtocol = 'http' | 'tcp' | 'tls'

/** Data sent to the service: HTTP requests, or unchanged bytes. */
export type Carrier = 'http' | 'tcp'

export function carrierOf(protocol: TunnelProtocol): Carrier {
  return protocol === 'http' ? 'http' : 'tcp'
}

/** Target of a tunnel on the device or in its network. */
export type ForwardTarget = HostTarget | SocketTarget

/** IPv6 addresses have no brackets. */
export interface HostTarget {
  readonly host: string
  readonly port: number
  /** Whether the target uses TLS. */
  readonly isSecure?: true
}

/** A unix socket with its absolute path. */
export interface SocketTarget {
  readonly path: string
}

/** Size of a unix socket address without the terminating zero. */
const MAX_PATH_BYTES = 107
const UNIX = /^unix:(?:\/\/)?(\/\P{Cc}+)$/u
const HTTPS = /^https:\/\/(.+?)\/?$/i
const HTTPS_PORT = 443

const FORM = /^(?:(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]*)):)?(\d{1,5})$/
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/
/** Last labels that resolvers parse as a number, so that the name is an address. */
const NUMERIC = /^(\d+|0x[0-9a-f]*)$/

/**
 * Parses `host:port`, `:port`, `port`, `[::1]:port`, `https://host:port` and `unix:/absolute/path`. An empty
 * host is localhost. Returns undefined for other text.
 */
export function parseForwardTarget(text: string): ForwardTarget | undefined {
  const path = UNIX.exec(text)?.[1]
  if (path !== undefined) return isSocketPath(path) ? { path } : undefined
  const authority = HTTPS.exec(text)?.[1]
  if (authority === undefined) return parseHost(text)
  if (/^\d*$/.test(authority) || authority.startsWith(':')) return undefined
  const target = parseHost(authority) ?? parseHost(`${authority}:${HTTPS_PORT}`)
  return target && { ...target, isSecure: true }
}

function isSocketPath(path: string): boolean {
  if (Buffer.byteLength(path) > MAX_PATH_BYTES || path.endsWith('/')) return false
  return posix.normalize(path) === path
}

function parseHost(text: string): HostTarget | undefined {
  const match = FORM.exec(text.toLowerCase())
  if (!match) return undefined
  const [, ipv6, name = '', digits] = match
  const port = Number(digits)
  if (port < 1 || port > 65_535) return undefined
  if (ipv6 !== undefined) return isIPv6(ipv6) ? { host: ipv6, port } : undefined
  if (name === '') return { host: 'localhost', port }
  return isHostName(name) || isIPv4(name) ? { host: name, port } : undefined
}

/** Returns the normal form: `localhost:8001`, `[::1]:8001`, `https://nas.lan:443`, `unix:/run/app.sock`. */
export function formatForwardTarget(target: ForwardTarget): string {
  if ('path' in target) return `unix:${target.path}`
  return target.isSecure ? `https://${formatHost(target)}` : formatHost(target)
}

function formatHost({ host, port }: HostTarget): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

export function isSecure(target: ForwardTarget): target is HostTarget {
  return 'host' in target && target.isSecure === true
}

/** Returns the host for requests to a target. */
export function authorityOf(target: ForwardTarget): string | undefined {
  return 'path' in target ? undefined : formatHost(target)
}

function isHostName(name: string): boolean {
  const labels = name.split('.')
  const last = labels.at(-1) ?? ''
  return name.length <= 253 && labels.every((label) => LABEL.test(label)) && !NUMERIC.test(last)
}
