import { isIPv4 } from 'node:net'

/** What a table may hold of an address. */
export type MmdbValue =
  | string
  | number
  | boolean
  | readonly MmdbValue[]
  | { readonly [key: string]: MmdbValue }

export interface MmdbOptions {
  readonly type?: string
  readonly ipVersion?: 4 | 6
  readonly recordSize?: 24 | 28 | 32
}

type Slot = Node | { readonly offset: number } | undefined
type Node = [left: Slot, right: Slot]

const MARKER = Buffer.from('\xab\xcd\xefMaxMind.com', 'latin1')
const IPV4_BITS = 32
const IPV6_BITS = 128

/**
 * A table in the format of MaxMind's DB file format specification 2.0: a search tree by the bits of an
 * address, the data that its leaves point to, and what the file says of itself.
 */
export function mmdbFile(
  networks: Readonly<Record<string, MmdbValue>>,
  { type = 'GeoLite2-City', ipVersion = 6, recordSize = 24 }: MmdbOptions = {},
): Buffer {
  const root: Node = [undefined, undefined]
  const data: Buffer[] = []
  let offset = 0
  for (const [network, value] of Object.entries(networks)) {
    const encoded = encode(value)
    insert(root, bitsOf(network, ipVersion), { offset })
    data.push(encoded)
    offset += encoded.length
  }
  const nodes = numbered(root)
  const index = new Map(nodes.map((node, at) => [node, at]))
  const recordOf = (slot: Slot) => {
    if (!slot) return nodes.length
    return Array.isArray(slot) ? (index.get(slot) as number) : nodes.length + 16 + slot.offset
  }
  const tree = nodes.map(([left, right]) => record(recordOf(left), recordOf(right), recordSize))
  const metadata = encode({
    binary_format_major_version: 2,
    binary_format_minor_version: 0,
    build_epoch: 1_900_000_000,
    database_type: type,
    description: { en: 'made by a test' },
    ip_version: ipVersion,
    languages: ['en'],
    node_count: nodes.length,
    record_size: recordSize,
  })
  return Buffer.concat([...tree, Buffer.alloc(16), ...data, MARKER, metadata])
}

function insert(root: Node, bits: readonly number[], leaf: { offset: number }): void {
  let node = root
  for (const [at, bit] of bits.entries()) {
    if (at === bits.length - 1) {
      node[bit as 0 | 1] = leaf
      return
    }
    const next = node[bit as 0 | 1]
    const child: Node = Array.isArray(next) ? next : [next, next]
    node[bit as 0 | 1] = child
    node = child
  }
}

/** Breadth first; the root is 0. */
function numbered(root: Node): Node[] {
  const nodes = [root]
  for (const node of nodes) for (const slot of node) if (Array.isArray(slot)) nodes.push(slot)
  return nodes
}

function record(left: number, right: number, size: 24 | 28 | 32): Buffer {
  const bytes = Buffer.alloc(size / 4)
  if (size === 28) {
    bytes.writeUIntBE(left & 0xffffff, 0, 3)
    bytes[3] = ((left >>> 24) << 4) | (right >>> 24)
    bytes.writeUIntBE(right & 0xffffff, 4, 3)
    return bytes
  }
  bytes.writeUIntBE(left, 0, size / 8)
  bytes.writeUIntBE(right, size / 8, size / 8)
  return bytes
}

/** Of a network such as `203.0.113.0/24`; an IPv4 one stands below `::/96` in a table of IPv6. */
function bitsOf(network: string, ipVersion: 4 | 6): number[] {
  const [address = '', prefix] = network.split('/')
  const isV4 = isIPv4(address)
  const bytes = isV4 ? address.split('.').map(Number) : ipv6Bytes(address)
  const bits = bytes.flatMap((byte) => Array.from({ length: 8 }, (_, at) => (byte >> (7 - at)) & 1))
  const own = bits.slice(0, Number(prefix ?? bits.length))
  return isV4 && ipVersion === 6 ? [...Array(IPV6_BITS - IPV4_BITS).fill(0), ...own] : own
}

function ipv6Bytes(address: string): number[] {
  const [head = '', tail] = address.split('::')
  const groups = (text: string) =>
    text === '' ? [] : text.split(':').map((it) => parseInt(it, 16))
  const [first, last] = [groups(head), tail === undefined ? [] : groups(tail)]
  const all = [...first, ...Array(8 - first.length - last.length).fill(0), ...last]
  return all.flatMap((group) => [group >> 8, group & 0xff])
}

const TYPES = { text: 2, double: 3, uint32: 6, map: 7, array: 11, boolean: 14 } as const

function encode(value: MmdbValue): Buffer {
  if (typeof value === 'string') {
    const bytes = Buffer.from(value)
    return Buffer.concat([control(TYPES.text, bytes.length), bytes])
  }
  if (typeof value === 'boolean') return control(TYPES.boolean, value ? 1 : 0)
  if (typeof value === 'number') return encodeNumber(value)
  if (Array.isArray(value)) {
    return Buffer.concat([control(TYPES.array, value.length), ...value.map(encode)])
  }
  const entries = Object.entries(value)
  return Buffer.concat([
    control(TYPES.map, entries.length),
    ...entries.flatMap(([key, item]) => [encode(key), encode(item)]),
  ])
}

function encodeNumber(value: number): Buffer {
  const isWhole = Number.isInteger(value) && value >= 0
  const bytes = Buffer.alloc(isWhole ? 4 : 8)
  if (isWhole) bytes.writeUInt32BE(value)
  else bytes.writeDoubleBE(value)
  return Buffer.concat([control(isWhole ? TYPES.uint32 : TYPES.double, bytes.length), bytes])
}

/** Types above 7 stand in a byte of their own, and so do sizes from 29. */
function control(type: number, size: number): Buffer {
  const isExtended = type > 7
  const short = Math.min(size, 29)
  const head = [((isExtended ? 0 : type) << 5) | short]
  if (isExtended) head.push(type - 7)
  if (size >= 29) head.push(size - 29)
  return Buffer.from(head)
}
