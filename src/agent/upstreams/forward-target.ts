import { isIPv4, isIPv6 } from 'node:net'
import { posix } from 'node:path'

/** What visitors of a tunnel speak. */
export type TunnelProtocol = 'http' | 'tcp' | 'tls'

/** What the service behind it is sent: requests, or bytes as they come. */
export type Carrier = 'http' | 'tcp'

export function carrierOf(protocol: TunnelProtocol): Carrier {
  return protocol === 'http' ? 'http' : 'tcp'
}

/** Where a tunnel leads on the device or its network. */
export type ForwardTarget = HostTarget | SocketTarget

/** IPv6 addresses stand without brackets. */
export interface HostTarget {
  readonly host: string
  readonly port: number
  /** What is there is spoken to by TLS. */
  readonly isSecure?: true
}

/** A Unix socket, by its absolute path. */
export interface SocketTarget {
  readonly path: string
}

/** What fits into an address of the system, with an end. */
const MAX_PATH_BYTES = 107
const UNIX = /^unix:(?:\/\/)?(\/\P{Cc}+)$/u
const HTTPS = /^https:\/\/(.+?)\/?$/i
const HTTPS_PORT = 443

const FORM = /^(?:(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]*)):)?(\d{1,5})$/
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/
/** Last labels that resolvers read as a number, which makes the name an address in disguise. */
const NUMERIC = /^(\d+|0x[0-9a-f]*)$/

/**
 * Reads `host:port`, `:port`, `port` or `[::1]:port`, where an empty host is localhost,
 * `https://host:port`, and `unix:/absolute/path`.
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

/** The normal form: `localhost:8001`, `[::1]:8001`, `https://nas.lan:443`, `unix:/run/app.sock`. */
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

/** What a request for a target names as its host. */
export function authorityOf(target: ForwardTarget): string | undefined {
  return 'path' in target ? undefined : formatHost(target)
}

function isHostName(name: string): boolean {
  const labels = name.split('.')
  const last = labels.at(-1) ?? ''
  return name.length <= 253 && labels.every((label) => LABEL.test(label)) && !NUMERIC.test(last)
}
