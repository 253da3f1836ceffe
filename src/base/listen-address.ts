import { once } from 'node:events'
import { closeSync, readFileSync, readlinkSync } from 'node:fs'
import { isIP, isIPv4, type ListenOptions, type LookupFunction, type Server } from 'node:net'

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

/**
 * Connections that wait to be accepted; net.core.somaxconn of the kernel may allow fewer. The kernel forgets who comes
 * when the queue is full, and a client that is forgotten tries again after 1, 2, 4, 8, 16 and 32 s.
 */
const BACKLOG = 4_096

/**
 * Resolves when the server listens. Also for sockets that listen already: Node calls listen(2) on
 * them again, which sets its own 511 in place of what a service manager has set.
 * Throws the error of the system; see `listenProblem`.
 */
export async function listenOn(server: Server, where: ListenOptions): Promise<void> {
  // Node reads the option for addresses alone, and the argument for descriptors.
  server.listen({ ...where, backlog: BACKLOG }, BACKLOG)
  await once(server, 'listening')
}

const NAME = 'localhost'
/** In the order in which they are tried: most services listen on the first. */
export const LOCALHOST_ADDRESSES: readonly string[] = ['127.0.0.1', '::1']
const HOSTS_FILE = '/etc/hosts'

/** For `connect`: `localhost` is this machine (RFC 6761 section 6.3), also where no resolver says so. */
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
 * True where every program of this machine finds `localhost` without asking anybody, on loopback alone.
 * Small and bare systems have no such file, and a name server in the network may not answer for it.
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
 * Sockets that listen already and were passed to this process, as a service manager does it:
 * sd_listen_fds(3). They are known by where they listen, not by name or order: a unit has one name
 * for all of its sockets, and its owner may change it.
 */
export class InheritedSockets {
  readonly #byAddress: Map<string, number>

  constructor(byAddress: ReadonlyMap<string, number> = new Map()) {
    this.#byAddress = new Map(byAddress)
  }

  /** Takes them from the environment, so that no child takes them for its own. */
  static take(environment: Record<string, string | undefined>, pid: number): InheritedSockets {
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

  /** The address with the socket that listens there, if one was passed; each is given once. */
  claim(address: ListenAddress): ListenAddress {
    const key = keyOf(address)
    const fd = this.#byAddress.get(key)
    if (fd === undefined) return address
    this.#byAddress.delete(key)
    return { ...address, fd }
  }

  /** Closes those that nobody has claimed, and says where they listen. */
  closeRest(): string[] {
    const rest = [...this.#byAddress]
    this.#byAddress.clear()
    for (const [, fd] of rest) closeSync(fd)
    return rest.map(([address]) => address)
  }
}

/** One key for names of the same address: `localhost`, and both forms of "everywhere". */
function keyOf({ host, port }: ListenAddress): string {
  const same = host === 'localhost' ? '127.0.0.1' : host === '::' ? '0.0.0.0' : host
  return formatListenAddress({ host: same, port })
}

/** Where the machine listens, by the inode of the socket. */
function listeningAddresses(): Map<string, string> {
  const found = new Map<string, string>()
  for (const table of TABLES) {
    for (const [, host = '', port = '', state, inode = ''] of readTable(table).matchAll(ROW)) {
      if (state !== LISTENING) continue
      found.set(inode, keyOf({ host: readHost(host), port: Number.parseInt(port, 16) }))
    }
  }
  return found
}

/** Without IPv6, and where there is no /proc, there is no such table. */
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

/** The kernel prints each 32 bits of an address as a number of this machine, in hex. */
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
