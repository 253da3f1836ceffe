/** Where a server listens. An IPv6 host stands without brackets. */
export interface ListenAddress {
  readonly host: string
  /** 0 asks the system for a free port. */
  readonly port: number
  /** A socket of this process that listens there already. */
  readonly fd?: number | undefined
}

const FORM = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s/]+)):(\d{1,5})$/

/** Reads `host:port` or `[::1]:port`; undefined when the text is neither. */
export function parseListenAddress(text: string): ListenAddress | undefined {
  const match = FORM.exec(text)
  const port = Number(match?.[3])
  const host = match?.[1] ?? match?.[2]
  return host === undefined || !(port <= 65_535) ? undefined : { host, port }
}

export function formatListenAddress({ host, port }: ListenAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

/** True for `[::1]:port` and its kind. */
export function isIPv6Address(text: string): boolean {
  return parseListenAddress(text)?.host.includes(':') === true
}

/** Why an agent takes no such address: the SDK refuses it, but dials the IPv6 addresses of a name. */
export const IPV6_SERVER =
  'cannot be an IPv6 address, because the SDK only dials names and IPv4 addresses. Write a host name of the gateway that resolves to it, such as gateway.lan:4443'

/** Ports of one host; `first` is at most `last`. */
export interface PortRange {
  /** An IPv6 host stands without brackets. */
  readonly host: string
  readonly first: number
  readonly last: number
}

/** A range that nobody has mistyped is no larger. */
const MAX_PORTS = 10_000
const RANGE = /^(.+:\d{1,5})(?:-(\d{1,5}))?$/

/** Reads `host:first-last`, `[::1]:first-last` or `host:port`; undefined when the text is none. */
export function parsePortRange(text: string): PortRange | undefined {
  const [, start = '', end] = RANGE.exec(text) ?? []
  const address = parseListenAddress(start)
  if (!address || address.port === 0) return undefined
  const { host, port: first } = address
  const last = end === undefined ? first : Number(end)
  return first <= last && last <= 65_535 && last - first < MAX_PORTS
    ? { host, first, last }
    : undefined
}

export function hasPort({ first, last }: PortRange, port: number): boolean {
  return first <= port && port <= last
}

/** True for addresses that only this machine can reach. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\./.test(host)
}

const LISTEN_PROBLEMS: ReadonlyMap<unknown, string> = new Map([
  ['EADDRINUSE', 'the address is already in use'],
  ['EADDRNOTAVAIL', 'this machine does not have the address'],
  ['EACCES', 'permission denied'],
])

/** Why a server could not listen, as the end of a sentence; and which setting says where it does. */
export function listenProblem(error: unknown, setting?: string): string {
  const { code, message } = error as NodeJS.ErrnoException
  const remedy = setting === undefined ? '' : `; set ${setting} to another address`
  return `${LISTEN_PROBLEMS.get(code) ?? message}${remedy}`
}
