import ipaddr from 'ipaddr.js'

/** More characters than an address or a range has: to look into a longer text would only take long. */
const MAX_LENGTH = 64

/** Every address, and not much more: the library looks at other texts for long. */
const LIKE_AN_ADDRESS = /^(?:\d{1,3}(?:\.\d{1,3}){3}|[\da-f.:]*:[\da-f.:]*(?:%.*)?)$/i

export type Address = ipaddr.IPv4 | ipaddr.IPv6

/** A range of addresses; a plain address is a range of one. */
export interface Cidr {
  readonly text: string
  contains(address: Address): boolean
}

/** Whom a list of rules lets pass: who is in a range of `allow` and in none of `deny`. */
export interface AddressRanges {
  readonly allow: readonly Cidr[]
  readonly deny: readonly Cidr[]
}

/**
 * Where neither a tunnel nor a policy leads, whatever is allowed: nobody, link-local addresses, groups,
 * and where clouds keep the metadata of a machine.
 */
export const NEVER_DIALLED: readonly string[] = [
  '0.0.0.0/8',
  '100.100.100.200/32',
  '169.254.0.0/16',
  '192.0.0.192/32',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '::/128',
  'fd00:ec2::254/128',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
]

/** Reads an address without brackets; IPv4-mapped IPv6 becomes IPv4. Undefined when it is none. */
export function parseAddress(text: string): Address | undefined {
  return isAddress(text) ? ipaddr.process(text) : undefined
}

/** Reads `192.0.2.0/24`, `2001:db8::/32` or a plain address; undefined when it is none. */
export function parseCidr(text: string): Cidr | undefined {
  if (text.length > MAX_LENGTH) return undefined
  const [base = '', length, ...rest] = text.split('/')
  if (!isAddress(base) || rest.length > 0) return undefined
  const network = ipaddr.parse(base)
  const longest = network.kind() === 'ipv4' ? 32 : 128
  if (length !== undefined && (!/^\d{1,3}$/.test(length) || Number(length) > longest)) {
    return undefined
  }
  const bits = length === undefined ? longest : Number(length)
  return {
    text,
    contains: (address) => address.kind() === network.kind() && address.match([network, bits]),
  }
}

/** Four decimal parts or IPv6: the short and octal forms of IPv4 mean other things elsewhere. */
function isAddress(text: string): boolean {
  if (text.length > MAX_LENGTH || !LIKE_AN_ADDRESS.test(text)) return false
  return (
    ipaddr.IPv4.isValidFourPartDecimal(text) || (text.includes(':') && ipaddr.IPv6.isValid(text))
  )
}
