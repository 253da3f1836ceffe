import { closeSync, readFileSync, readlinkSync } from 'node:fs'
import { isIPv4 } from 'node:net'
import { formatListenAddress, type ListenAddress } from '../listen-address.ts'

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
