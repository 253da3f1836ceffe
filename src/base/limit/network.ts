import ipaddr from 'ipaddr.js'

const IPV6_NETWORK_PARTS = 4

/**
 * The network that counts as one client: an IPv4 address by itself, of an IPv6 address its /64,
 * because a single host has all of those (RFC 6177). Text that is no address stands for itself.
 */
export function networkOf(address: string): string {
  if (!address.includes(':') || !ipaddr.IPv6.isValid(address)) return address
  const parts = ipaddr.IPv6.parse(address).parts.slice(0, IPV6_NETWORK_PARTS)
  return `${parts.map((part) => part.toString(16)).join(':')}::/64`
}
