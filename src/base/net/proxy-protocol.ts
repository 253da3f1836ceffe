import { isIP, isIPv6 } from 'node:net'
import ipaddr from 'ipaddr.js'

/** Version of the header: 1 is text, 2 is binary. */
export type ProxyProtocol = 1 | 2

/** Both ends of a visitor's connection. Addresses are IPv4 or IPv6 without brackets. */
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
 * Encodes the header that a service reads before the visitor's first byte (HAProxy's "The PROXY protocol",
 * 2.1 and 2.2). Both addresses are of one family: IPv4 next to IPv6 is written as IPv4-mapped IPv6.
 *
 * Without addresses the header is `UNKNOWN` or `LOCAL`. That applies to undefined `ends`, and to a visitor
 * that has already disconnected.
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

/** "PROXY UNKNOWN" with two IPv6 addresses, including CRLF (2.1). */
const MAX_TEXT = 107
const BINARY_START = 16
const MAX_BINARY = 232
const TEXT_START = Buffer.from('PROXY ')

/**
 * Returns the length of the PROXY header at the start of the bytes, undefined while it is incomplete. Throws
 * if the header is missing or too long.
 */
export function proxyHeaderLength(bytes: Buffer, maxBytes = MAX_BINARY): number | undefined {
  if (beginsWith(bytes, SIGNATURE)) {
    if (bytes.length < BINARY_START) return undefined
    const length = BINARY_START + bytes.readUInt16BE(BINARY_START - 2)
    if (length > maxBytes) throw new Error('the PROXY header is too long')
    return bytes.length < length ? undefined : length
  }
  if (!beginsWith(bytes, TEXT_START)) throw new Error('the PROXY header is missing')
  const end = bytes.subarray(0, MAX_TEXT).indexOf('\r\n')
  if (end !== -1) return end + 2
  if (bytes.length >= MAX_TEXT) throw new Error('the PROXY header is too long')
  return undefined
}

const TEXT = /^PROXY TCP([46]) (\S+) (\S+) (\d{1,5}) (\d{1,5})\r\n$/

/**
 * Returns both ends from a complete header. Undefined if the header has no addresses (`UNKNOWN`, `LOCAL`,
 * other families): then use those of the connection. Throws if the header is invalid.
 */
export function decodeProxyProtocol(header: Buffer): ConnectionEnds | undefined {
  if (!beginsWith(header, SIGNATURE)) return readText(header.toString('latin1'))
  const [command, family] = [header[SIGNATURE.length], header[SIGNATURE.length + 1]]
  if (command === LOCAL) return undefined
  if (command !== PROXY) throw new Error('the PROXY header has an unknown command')
  const width = family === TCP_OVER.IPv4 ? 4 : 16
  if (family !== TCP_OVER.IPv4 && family !== TCP_OVER.IPv6) return undefined
  const ends = header.subarray(BINARY_START, BINARY_START + 2 * width + 4)
  if (ends.length < 2 * width + 4) throw new Error('the PROXY header is too short')
  return {
    clientIp: textOfAddress(ends.subarray(0, width)),
    clientPort: ends.readUInt16BE(2 * width),
    serverIp: textOfAddress(ends.subarray(width, 2 * width)),
    serverPort: ends.readUInt16BE(2 * width + 2),
  }
}

function readText(text: string): ConnectionEnds | undefined {
  if (/^PROXY UNKNOWN(?: .*)?\r\n$/.test(text)) return undefined
  const [, version, client = '', server = '', ...ports] = TEXT.exec(text) ?? []
  const [clientPort = 0, serverPort = 0] = ports.map(Number)
  // After a `%` is a zone of the proxy's machine, which may be any text.
  const isValid = [client, server].every((ip) => isIP(ip) === Number(version) && !ip.includes('%'))
  if (!isValid || clientPort > 65_535 || serverPort > 65_535) {
    throw new Error('the PROXY header is not valid')
  }
  const [clientIp, serverIp] = [usual(client), usual(server)]
  return { clientIp, clientPort, serverIp, serverPort }
}

function textOfAddress(bytes: Buffer): string {
  return usual(ipaddr.fromByteArray([...bytes]).toString())
}

/** Returns one spelling per address, because limits count by it. IPv4-mapped IPv6 becomes IPv4. */
function usual(ip: string): string {
  return ipaddr.process(ip).toString()
}

/** Compares as many bytes as there are. */
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
