import { readFileSync } from 'node:fs'
import { isIP, type LookupFunction } from 'node:net'

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
