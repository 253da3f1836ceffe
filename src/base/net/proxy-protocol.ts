import { isIP, isIPv6 } from 'node:net'
import ipaddr from 'ipaddr.js'

/** The versions of the header, text and binary. */
export type ProxyProtocol = 1 | 2

/** Both ends of a visitor's connection; addresses are IPv4 or IPv6 without brackets. */
export interface ConnectionEnds {
  readonly clientIp: string
  readonly clientPort: number
  readonly serverIp: string
  readonly serverPort: number
}

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')
/** Version 2 with the commands `PROXY` and `LOCAL`. */
const PROXY = 0x21
const LOCAL = 0x20
const TCP_OVER = { IPv4: 0x11, IPv6: 0x21 } as const

type Family = keyof typeof TCP_OVER
interface End {
  readonly bytes: Buffer
  readonly port: number
}

/**
 * What a service is told about a visitor before the first byte (HAProxy's "The PROXY protocol", 2.1 and
 * 2.2). Both addresses are of one family: an IPv4 address beside an IPv6 one is written as one of those.
 * Nothing is said of who is gone already, or of nobody: undefined.
 */
export function encodeProxyProtocol(
  version: ProxyProtocol,
  ends: ConnectionEnds | undefined,
): Buffer {
  const { clientIp = '', clientPort = 0, serverIp = '', serverPort = 0 } = ends ?? {}
  if (!isIP(clientIp) || !isIP(serverIp)) return version === 1 ? UNKNOWN_TEXT : UNKNOWN_BINARY
  const family = isIPv6(clientIp) || isIPv6(serverIp) ? 'IPv6' : 'IPv4'
  const both = [
    { bytes: bytesOf(clientIp, family), port: clientPort },
    { bytes: bytesOf(serverIp, family), port: serverPort },
  ]
  return version === 1 ? textOf(family, both) : binaryOf(family, both)
}

/** "PROXY UNKNOWN" with two IPv6 addresses, CRLF included (2.1). */
const MAX_TEXT = 107
const BINARY_START = 16
const MAX_BINARY = 232
const TEXT_START = Buffer.from('PROXY ')

/**
 * How many of the bytes are a PROXY header that they begin with; undefined while it is not all there.
 * Throws where they begin with none.
 */
export function proxyHeaderLength(bytes: Buffer): number | undefined {
  if (beginsWith(bytes, SIGNATURE)) {
    if (bytes.length < BINARY_START) return undefined
    const length = BINARY_START + bytes.readUInt16BE(BINARY_START - 2)
    if (length > MAX_BINARY) throw new Error('the PROXY header is too long')
    return bytes.length < length ? undefined : length
  }
  if (!beginsWith(bytes, TEXT_START)) throw new Error('the PROXY header is missing')
  const end = bytes.subarray(0, MAX_TEXT).indexOf('\r\n')
  if (end !== -1) return end + 2
  if (bytes.length >= MAX_TEXT) throw new Error('the PROXY header is too long')
  return undefined
}

/** As far as there are bytes. */
function beginsWith(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length)
  return bytes.subarray(0, length).equals(start.subarray(0, length))
}

const UNKNOWN_TEXT = Buffer.from('PROXY UNKNOWN\r\n')
const UNKNOWN_BINARY = Buffer.concat([SIGNATURE, Buffer.from([LOCAL, 0, 0, 0])])

function textOf(family: Family, ends: readonly End[]): Buffer {
  const ips = ends.map(({ bytes }) => ipaddr.fromByteArray([...bytes]).toString())
  const ports = ends.map(({ port }) => port)
  return Buffer.from(`PROXY TCP${family === 'IPv4' ? 4 : 6} ${[...ips, ...ports].join(' ')}\r\n`)
}

function binaryOf(family: Family, ends: readonly End[]): Buffer {
  const ips = Buffer.concat(ends.map(({ bytes }) => bytes))
  const ports = Buffer.alloc(ends.length * 2)
  for (const [index, { port }] of ends.entries()) ports.writeUInt16BE(port, index * 2)
  const head = Buffer.from([PROXY, TCP_OVER[family], 0, ips.length + ports.length])
  return Buffer.concat([SIGNATURE, head, ips, ports])
}

function bytesOf(ip: string, family: Family): Buffer {
  const parsed = ipaddr.parse(ip)
  const isForeign = family === 'IPv6' && parsed.kind() === 'ipv4'
  const address = isForeign ? (parsed as ipaddr.IPv4).toIPv4MappedAddress() : parsed
  return Buffer.from(address.toByteArray())
}
