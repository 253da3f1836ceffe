import ipaddr from 'ipaddr.js'

/** Bits of an IPv6 address that one client is given at least (RFC 6177): it chooses the rest. */
export const IPV6_PREFIX = 64
const IPV6_PARTS = 8
const PART_BITS = 16
/** `::ffff:0:0/96` (RFC 4291 2.5.5.2) and `64:ff9b::/96` (RFC 6052 2.1) have an IPv4 address behind. */
const IPV4_WITHIN = ['0,0,0,0,0,65535', '100,65435,0,0,0,0']

/**
 * The network that counts as one client: an IPv4 address by itself, of an IPv6 address its /64,
 * because a single host has all of those (RFC 6177). IPv6 addresses of IPv4 hosts (IPv4-mapped,
 * NAT64) are those. Text that is no address stands for itself.
 */
export function networkOf(address: string): string {
  const parts = partsOf(address)
  if (!parts) return address
  const network = parts.slice(0, IPV6_PREFIX / PART_BITS).map((part) => part.toString(16))
  return ipv4Within(parts) ?? `${network.join(':')}::/${IPV6_PREFIX}`
}

/** The same as an address, the first one of a network with `prefix` bits. */
export function countedAddress(address: string, prefix: number): string {
  const parts = partsOf(address)
  if (!parts) return address
  const ipv4 = ipv4Within(parts)
  if (ipv4 !== undefined || prefix === IPV6_PARTS * PART_BITS) return ipv4 ?? address
  const network = parts.map((part, index) => part & maskOf(prefix - PART_BITS * index))
  return new ipaddr.IPv6(network).toString()
}

function partsOf(address: string): number[] | undefined {
  if (!address.includes(':') || !ipaddr.IPv6.isValid(address)) return undefined
  return ipaddr.IPv6.parse(address).parts
}

function ipv4Within(parts: readonly number[]): string | undefined {
  if (!IPV4_WITHIN.includes(parts.slice(0, 6).join())) return undefined
  return parts
    .slice(6)
    .flatMap((part) => [part >> 8, part & 0xff])
    .join('.')
}

/** Of the 16 bits of a part of which so many count. */
const maskOf = (bits: number) =>
  (0xffff << (PART_BITS - Math.min(PART_BITS, Math.max(0, bits)))) & 0xffff
