import { once } from 'node:events'
import { closeSync, readFileSync, readlinkSync } from 'node:fs'
import { isIP, isIPv4, type ListenOptions, type LookupFunction, type Server } from 'node:net'

/** Listen address of a server. An IPv6 host has no brackets. */
export interface ListenAddress {
  readonly host: string
  /** 0: the system chooses a free port. */
  readonly port: number
  /** File descriptor of a socket of this process that already listens at this address. */
  readonly fd?: number | undefined
}

const FORM = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s/]+)):(\d{1,5})$/

/** Parses `host:port` or `[::1]:port`. Returns undefined for other text. */
export function parseListenAddress(text: string): ListenAddress | undefined {
  const match = FORM.exec(text)
  const port = Number(match?.[3])
  const host = match?.[1] ?? match?.[2]
  return host === undefined || !(port <= 65_535) ? undefined : { host, port }
}

export function formatListenAddress({ host, port }: ListenAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

/** True for IPv6 addresses with a port, such as `[::1]:port`. */
export function isIPv6Address(text: string): boolean {
  return parseListenAddress(text)?.host.includes(':') === true
}

/**
 * Reason why an agent rejects such an address. The SDK rejects it, but dials the IPv6 addresses of a name.
 */
export const IPV6_SERVER =
  'cannot be an IPv6 address, because the SDK only dials names and IPv4 addresses. Write a host name of the gateway that resolves to it, such as gateway.lan:4443'

/** Ports of one host. `first` is at most `last`. */
export interface PortRange {
  /** An IPv6 host has no brackets. */
  readonly host: string
  readonly first: number
  readonly last: number
}

/** A larger range is probably a typing error. */
const MAX_PORTS = 10_000
const RANGE = /^(.+:\d{1,5})(?:-(\d{1,5}))?$/

/** Parses `host:first-last`, `[::1]:first-last` or `host:port`. Returns undefined for other text. */
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

/** The inverse of `parsePortRange`. */
export function formatPortRange({ host, first, last }: PortRange): string {
  return `${formatListenAddress({ host, port: first })}-${last}`
}

export function hasPort({ first, last }: PortRange, port: number): boolean {
  return first <= port && port <= last
}

/** True for addresses that are reachable only from this machine. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\./.test(host)
}

const LISTEN_PROBLEMS: ReadonlyMap<unknown, string> = new Map([
  ['EADDRINUSE', 'the address is already in use'],
  ['EADDRNOTAVAIL', 'this machine does not have the address'],
  ['EACCES', 'permission denied'],
])

/** Settings of the gateway whose sockets belong to device-gateway.socket. */
export const SOCKET_SETTINGS = [
  'GATEWAY_AGENT_LISTEN',
  'GATEWAY_HTTP_LISTEN',
  'GATEWAY_HTTPS_LISTEN',
  'GATEWAY_API_LISTEN',
] as const

/**
 * Describes why a server could not listen, as the end of a sentence. Names the setting for the address, if
 * given.
 */
export function listenProblem(error: unknown, setting?: string): string {
  const { code, message } = error as NodeJS.ErrnoException
  const problem = LISTEN_PROBLEMS.get(code) ?? message
  if (setting === undefined) return problem
  const other = `set ${setting} to another address`
  if (code !== 'EACCES' || !SOCKET_SETTINGS.some((it) => it === setting))
    return `${problem}; ${other}`
  return `${problem}; for the installed service, run sudo device-agent service install --gateway, so that systemd opens the address; elsewhere, ${other}`
}

/**
 * Maximum number of connections waiting for accept. The kernel may allow fewer (net.core.somaxconn). If the
 * queue is full, the kernel drops new connections. Such a client tries again after 1, 2, 4, 8, 16 and 32 s.
 */
const BACKLOG = 4_096

/**
 * Resolves when the server listens. Throws the error of the system: see `listenProblem`.
 *
 * Also for sockets that listen already. Node calls listen(2) on them again, and would replace the backlog of
 * the service manager with its own 511.
 */
export async function listenOn(server: Server, where: ListenOptions): Promise<void> {
  // Node reads the option for addresses and the argument for descriptors.
  server.listen({ ...where, backlog: BACKLOG }, BACKLOG)
  await once(server, 'listening')
}

const NAME = 'localhost'
/** In the order of attempts: most services listen on the first. */
export const LOCALHOST_ADDRESSES: readonly string[] = ['127.0.0.1', '::1']
const HOSTS_FILE = '/etc/hosts'

/**
 * Lookup function for `connect`: `localhost` is this machine (RFC 6761 section 6.3), even if no resolver says
 * so.
 */
export const localhostLookup: LookupFunction = (_name, { all }, answer) => {
  const [first = '', ...rest] = LOCALHOST_ADDRESSES
  if (!all) answer(null, first, isIP(first))
  else
    answer(
      null,
      [first, ...rest].map((address) => ({ address, family: isIP(address) })),
    )
}

/**
 * True if the hosts file maps `localhost` to loopback addresses only, so that no program of this machine has
 * to query DNS. Minimal systems have no such file, and a name server in the network may not answer for it.
 */
export function hostsFileHasLocalhost(path: string = HOSTS_FILE): boolean {
  try {
    const addresses = readFileSync(path, 'utf8')
      .split('\n')
      .map((line) => line.replace(/#.*/, '').trim().split(/\s+/))
      .filter(([, ...names]) => names.includes(NAME))
      .map(([address = '']) => address)
    const isLoopback = (address: string) => LOCALHOST_ADDRESSES.includes(address)
    return addresses.length > 0 && addresses.every(isLoopback)
  } catch {
    return false
  }
}

/** SD_LISTEN_FDS_START of sd_listen_fds(3). */
const FIRST_FD = 3
const TABLES = ['/proc/self/net/tcp', '/proc/self/net/tcp6']
/** TCP_LISTEN of the kernel. */
const LISTENING = '0A'
const ROW = /^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ ([0-9A-F]{2}) (?:\S+ +){5}(\d+) /gm

/**
 * Listening sockets passed to this process by a service manager: sd_listen_fds(3). They are found by address,
 * not by name or order. A unit has one name for all its sockets, and the owner of the unit may change it.
 */
export class InheritedSockets {
  readonly #byAddress: Map<string, number>

  constructor(byAddress: ReadonlyMap<string, number> = new Map()) {
    this.#byAddress = new Map(byAddress)
  }

  /** Takes the sockets from the environment, and removes the variables so that no child process uses them. */
  static fromEnvironment(
    environment: Record<string, string | undefined>,
    pid: number,
  ): InheritedSockets {
    const { LISTEN_PID, LISTEN_FDS } = environment
    for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) delete environment[name]
    const count = Number(LISTEN_FDS ?? 0)
    if (!(count > 0) || Number(LISTEN_PID) !== pid) return new InheritedSockets()
    const addresses = listeningAddresses()
    const found = new Map<string, number>()
    for (let fd = FIRST_FD; fd < FIRST_FD + count; fd += 1) {
      const address = addresses.get(inodeOf(fd))
      if (address !== undefined) found.set(address, fd)
    }
    return new InheritedSockets(found)
  }

  /** Adds the inherited socket for this address, if there is one. Each socket is used once. */
  claim(address: ListenAddress): ListenAddress {
    const key = keyOf(address)
    const fd = this.#byAddress.get(key)
    if (fd === undefined) return address
    this.#byAddress.delete(key)
    return { ...address, fd }
  }

  /** Closes the unclaimed sockets and returns their addresses. */
  closeRest(): string[] {
    const rest = [...this.#byAddress]
    this.#byAddress.clear()
    for (const [, fd] of rest) closeSync(fd)
    return rest.map(([address]) => address)
  }
}

/** Returns the same key for equal addresses: `localhost` and 127.0.0.1, `::` and 0.0.0.0. */
function keyOf({ host, port }: ListenAddress): string {
  const same = host === 'localhost' ? '127.0.0.1' : host === '::' ? '0.0.0.0' : host
  return formatListenAddress({ host: same, port })
}

/** Returns the listening addresses of this machine by socket inode. */
export function listeningAddresses(): Map<string, string> {
  const found = new Map<string, string>()
  for (const table of TABLES) {
    for (const [, host = '', port = '', state, inode = ''] of readTable(table).matchAll(ROW)) {
      if (state !== LISTENING) continue
      found.set(inode, keyOf({ host: readHost(host), port: Number.parseInt(port, 16) }))
    }
  }
  return found
}

/** Reads a table of sockets. It is missing without IPv6 or without /proc. */
function readTable(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function inodeOf(fd: number): string {
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1] ?? ''
  } catch {
    return ''
  }
}

/** Converts an address from hex. The kernel prints each 32 bits in the byte order of this machine. */
function readHost(hex: string): string {
  const bytes = Buffer.from(hex, 'hex')
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) bytes.swap32()
  if (bytes.length === 4) return bytes.join('.')
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(2 * at).toString(16))
  const { hostname } = new URL(`http://[${groups.join(':')}]`)
  const host = hostname.slice(1, -1)
  const mapped = /^::ffff:/.test(host) ? bytes.subarray(12).join('.') : ''
  return isIPv4(mapped) ? mapped : host
}
