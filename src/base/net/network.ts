import ipaddr from 'ipaddr.js'

/** Prefix length that one client has at least (RFC 6177). It chooses the remaining bits itself. */
export const IPV6_PREFIX = 64
const IPV6_PARTS = 8
const PART_BITS = 16
/**
 * Prefixes with an embedded IPv4 address: `::ffff:0:0/96` (RFC 4291 2.5.5.2) and `64:ff9b::/96` (RFC 6052
 * 2.1).
 */
const IPV4_WITHIN = ['0,0,0,0,0,65535', '100,65435,0,0,0,0']

/**
 * Returns the network that counts as one client: an IPv4 address, or the /64 of an IPv6 address, because one
 * host has all its addresses (RFC 6177). IPv6 addresses of IPv4 hosts (IPv4-mapped, NAT64) count as IPv4.
 * Other text is returned unchanged.
 */
export function networkOf(address: string): string {
  const parts = partsOf(address)
  if (!parts) return address
  const network = parts.slice(0, IPV6_PREFIX / PART_BITS).map((part) => part.toString(16))
  return ipv4Within(parts) ?? `${network.join(':')}::/${IPV6_PREFIX}`
}

/** Like `networkOf`, as an address: the first one of a network with `prefix` bits. */
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

/** Mask for the first `bits` of the 16 bits of a part. */
const maskOf = (bits: number) =>
  (0xffff << (PART_BITS - Math.min(PART_BITS, Math.max(0, bits)))) & 0xffff

/** Prefix of an IPv4 address on a dual-stack socket. */
const MAPPED = '::ffff:'

/** Returns the network of a socket's peer. Peers without address, as on a unix socket, share one. */
export function peerNetwork(address = ''): string {
  return networkOf(address.startsWith(MAPPED) ? address.slice(MAPPED.length) : address)
}

/** Longer than any address or range. Parsing longer texts would only take time. */
const MAX_LENGTH = 64

/** Matches every address and little else, because the library is slow for other texts. */
const LIKE_AN_ADDRESS = /^(?:\d{1,3}(?:\.\d{1,3}){3}|[\da-f.:]*:[\da-f.:]*(?:%.*)?)$/i

/** Prefix length of `::ffff:0:0/96`. */
const MAPPED_BITS = 96

export type Address = ipaddr.IPv4 | ipaddr.IPv6

/** A range of addresses. A plain address is a range of one. */
export interface Cidr {
  readonly text: string
  contains(address: Address): boolean
}

/** Address filter: allows addresses in a range of `allow` and not in a range of `deny`. */
export interface AddressRanges {
  readonly allow: readonly Cidr[]
  readonly deny: readonly Cidr[]
}

/**
 * Addresses never allowed as targets of tunnels and policies: unspecified, link-local, multicast, reserved,
 * and the metadata services of clouds.
 */
const NEVER_DIALLED = [
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
].map((text) => ({ text, range: ipaddr.parseCIDR(text) }))

/** IPv6 forms with an embedded IPv4 address that starts at `firstByte`. */
const CARRIERS = [
  // RFC 4291 section 2.5.5.1, RFC 6052 section 2.1, RFC 2765 section 2.1, RFC 3056 section 2.
  { range: ipaddr.IPv6.parseCIDR('::/96'), firstByte: 12 },
  { range: ipaddr.IPv6.parseCIDR('64:ff9b::/96'), firstByte: 12 },
  { range: ipaddr.IPv6.parseCIDR('::ffff:0:0:0/96'), firstByte: 12 },
  { range: ipaddr.IPv6.parseCIDR('2002::/16'), firstByte: 2 },
]

/** Local-use NAT64 prefixes (RFC 8215). The site chooses the position of the IPv4 address. */
const LOCAL_NAT64 = ipaddr.IPv6.parseCIDR('64:ff9b:1::/48')
/** Byte positions of RFC 6052 section 2.2 for prefixes of 48, 56, 64 and 96 bits. */
const NAT64_PLACES = [
  [6, 7, 9, 10],
  [7, 9, 10, 11],
  [9, 10, 11, 12],
  [12, 13, 14, 15],
]
const TEREDO = ipaddr.IPv6.parseCIDR('2001::/32')

/** Parses an address without brackets. IPv4-mapped IPv6 becomes IPv4. Returns undefined for other text. */
export function parseAddress(text: string): Address | undefined {
  return isAddress(text) ? ipaddr.process(text) : undefined
}

/** Returns the address that a connection reaches: IPv4 if IPv6 only embeds it. */
export function reachedAddress(address: Address): Address {
  if (!(address instanceof ipaddr.IPv6)) return address
  if (address.isIPv4MappedAddress()) return address.toIPv4Address()
  const isOwn = address.range() === 'loopback' || address.range() === 'unspecified'
  const carrier = isOwn ? undefined : CARRIERS.find(({ range }) => address.match(range))
  if (!carrier) return address
  const { firstByte } = carrier
  return new ipaddr.IPv4(address.toByteArray().slice(firstByte, firstByte + 4))
}

/**
 * Returns the forbidden range that contains the address, undefined if it is allowed. For an IPv6 address,
 * IPv4 addresses that it may embed are checked too.
 */
export function neverDialled(address: Address): string | undefined {
  const reached = reachedAddress(address)
  const direct = rangeOver(reached)
  if (direct || !(reached instanceof ipaddr.IPv6)) return direct
  // Unused positions read as 0.0.0.0, which does not forbid the address.
  return heldAddresses(reached)
    .filter((held) => held.range() !== 'unspecified')
    .map(rangeOver)
    .find((text) => text !== undefined)
}

/** The same for the host of a URL. Undefined for a name: its addresses are checked when it is dialled. */
export function neverDialledHost({ hostname }: URL): string | undefined {
  const address = parseAddress(hostname.replace(/^\[|\]$/g, ''))
  return address && neverDialled(address)
}

function rangeOver(address: Address): string | undefined {
  return NEVER_DIALLED.find(
    ({ range: [base, bits] }) =>
      address.kind() === base.kind() && address.match(base as never, bits),
  )?.text
}

/** Returns IPv4 addresses that may be embedded, for forms that do not show whether they embed one. */
function heldAddresses(address: ipaddr.IPv6): ipaddr.IPv4[] {
  const bytes = address.toByteArray()
  const at = (places: readonly number[]) => new ipaddr.IPv4(places.map((it) => bytes[it] ?? 0))
  if (address.match(LOCAL_NAT64)) return NAT64_PLACES.map(at)
  // RFC 4380 section 4: all bits of the client's address are inverted.
  if (address.match(TEREDO)) return [new ipaddr.IPv4(bytes.slice(12).map((byte) => byte ^ 0xff))]
  // RFC 5214 section 6.1: ISATAP, with any prefix.
  const [, , , , high = 0, low] = address.parts
  return (high & 0xfdff) === 0 && low === 0x5efe ? [at([12, 13, 14, 15])] : []
}

/** Parses `192.0.2.0/24`, `2001:db8::/32` or a plain address. Returns undefined for other text. */
export function parseCidr(text: string): Cidr | undefined {
  if (text.length > MAX_LENGTH) return undefined
  const [base = '', length, ...rest] = text.split('/')
  if (!isAddress(base) || rest.length > 0) return undefined
  const address = ipaddr.parse(base)
  const longest = address.kind() === 'ipv4' ? 32 : 128
  if (length !== undefined && (!/^\d{1,3}$/.test(length) || Number(length) > longest)) {
    return undefined
  }
  const given = length === undefined ? longest : Number(length)
  // Mapped addresses are parsed as IPv4, so their ranges are too.
  const isMapped = given >= MAPPED_BITS && isIpv4Mapped(address)
  const network = isMapped ? ipaddr.process(base) : address
  const bits = isMapped ? given - MAPPED_BITS : given
  return {
    text,
    contains: (address) => address.kind() === network.kind() && address.match([network, bits]),
  }
}

/** The range from its first address, if the text of a valid range begins with another address. */
export function wholeRange(text: string): string | undefined {
  const [base = '', length] = text.split('/')
  if (length === undefined) return undefined
  const address = ipaddr.parse(base)
  const first =
    address instanceof ipaddr.IPv6
      ? ipaddr.IPv6.networkAddressFromCIDR(text)
      : ipaddr.IPv4.networkAddressFromCIDR(text)
  return first.toString() === address.toString() ? undefined : `${first}/${length}`
}

const isIpv4Mapped = (address: Address) =>
  address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress()

/**
 * Whether the text is IPv6, or IPv4 with four decimal parts. Short and octal forms have different meanings
 * elsewhere.
 */
function isAddress(text: string): boolean {
  if (text.length > MAX_LENGTH || !LIKE_AN_ADDRESS.test(text)) return false
  return (
    ipaddr.IPv4.isValidFourPartDecimal(text) || (text.includes(':') && ipaddr.IPv6.isValid(text))
  )
}
