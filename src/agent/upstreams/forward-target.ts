import { isIPv4, isIPv6 } from 'node:net'

/** Where a tunnel leads on the device or its network. IPv6 addresses stand without brackets. */
export interface ForwardTarget {
  readonly host: string
  readonly port: number
}

const FORM = /^(?:(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]*)):)?(\d{1,5})$/
const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/
/** Last labels that resolvers read as a number, which makes the name an address in disguise. */
const NUMERIC = /^(\d+|0x[0-9a-f]*)$/

/** Reads `host:port`, `:port`, `port` or `[::1]:port`; an empty host is localhost. */
export function parseForwardTarget(text: string): ForwardTarget | undefined {
  const match = FORM.exec(text.toLowerCase())
  if (!match) return undefined
  const [, ipv6, name = '', digits] = match
  const port = Number(digits)
  if (port < 1 || port > 65_535) return undefined
  if (ipv6 !== undefined) return isIPv6(ipv6) ? { host: ipv6, port } : undefined
  if (name === '') return { host: 'localhost', port }
  return isHostName(name) || isIPv4(name) ? { host: name, port } : undefined
}

/** The normal form: `localhost:8001`, `[::1]:8001`. */
export function formatForwardTarget({ host, port }: ForwardTarget): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

function isHostName(name: string): boolean {
  const labels = name.split('.')
  const last = labels.at(-1) ?? ''
  return name.length <= 253 && labels.every((label) => LABEL.test(label)) && !NUMERIC.test(last)
}
