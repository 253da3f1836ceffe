import { isIP, isIPv4 } from 'node:net'
import { networkInterfaces } from 'node:os'
import { domainToASCII } from 'node:url'
import { formatListenAddress, isLoopback, type ListenAddress } from '../listen-address.ts'

/** A DNS name or address by which devices and visitors reach the gateway. An IPv6 host has no brackets. */
export interface PublicName {
  readonly host: string
  /** Port for devices, if a router or proxy in front has another; undefined: the port of the listener. */
  readonly port: number | undefined
}

/** Each name makes the certificate larger. */
const MAX_NAMES = 20
const MAX_DNS_NAME = 253
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const FORM = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::(.*))?$/

/** Parses names with an optional port. Returns the reason if one cannot be used. */
export function parsePublicNames(
  texts: readonly string[],
): readonly PublicName[] | { readonly problem: string } {
  if (texts.length > MAX_NAMES) return { problem: `can list at most ${MAX_NAMES} names` }
  const names = new Map<string, PublicName>()
  for (const text of texts) {
    const name = parsePublicName(text)
    if ('problem' in name) return { problem: `cannot list ${text}: ${name.problem}` }
    const key = JSON.stringify(name)
    if (names.has(key)) return { problem: `lists ${text} twice` }
    names.set(key, name)
  }
  return [...names.values()]
}

function parsePublicName(text: string): PublicName | { readonly problem: string } {
  const url = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i.exec(text)
  if (url) return { problem: `it is a URL; write ${url[1] || 'the host name'} without the scheme` }
  if (text.includes('/'))
    return { problem: 'it has a path or a prefix length; write only the host' }
  if (text.includes('*')) {
    return { problem: 'it is a wildcard; write the name that devices connect to' }
  }
  if (isIP(text) === 6) return { problem: `write the IPv6 address in brackets: [${text}]` }
  const [, address, name = '', digits] = FORM.exec(text) ?? []
  if (address === undefined && name === '') return { problem: 'it is not a host or host:port' }
  const port = digits === undefined ? undefined : Number(digits)
  if (port !== undefined && !(/^\d+$/.test(digits ?? '') && port >= 1 && port <= 65_535)) {
    return { problem: 'the port must be a whole number from 1 to 65535' }
  }
  const host = address === undefined ? name.toLowerCase() : ipv6Of(address)
  if (host === undefined) return { problem: 'the text in brackets is not an IPv6 address' }
  const problem = address === undefined ? nameProblem(host) : undefined
  if (problem !== undefined) return { problem }
  if (isAnyHost(host)) return { problem: 'no device can connect to this address' }
  return { host, port }
}

/** The shortest form, as in URLs. Undefined for other text, and for addresses with a zone. */
function ipv6Of(text: string): string | undefined {
  if (isIP(text) !== 6 || text.includes('%')) return undefined
  return new URL(`http://[${text}]`).hostname.slice(1, -1)
}

function nameProblem(host: string): string | undefined {
  if (isIPv4(host)) return undefined
  const labels = host.split('.')
  if (/^\d+$/.test(labels.at(-1) ?? '')) return 'it is neither an IPv4 address nor a DNS name'
  if (labels.at(-1) === '') return 'write the name without the dot at its end'
  if (host.length <= MAX_DNS_NAME && labels.every((label) => LABEL.test(label))) return undefined
  const ascii = /[^\0-\x7f]/.test(host) ? domainToASCII(host) : ''
  return ascii === '' ? 'it is not a DNS name' : `write it in ASCII: ${ascii}`
}

/** True for the addresses that mean all addresses of a machine. */
export function isAnyHost(host: string): boolean {
  return host === '0.0.0.0' || host === '::'
}

/** Addresses of this machine that others may reach. */
export function machineAddresses(): string[] {
  return (
    Object.values(networkInterfaces())
      .flatMap((addresses) => addresses ?? [])
      // Link-local addresses are useless without their interface.
      .filter(({ internal, address }) => !internal && !address.startsWith('fe80:'))
      .map(({ address }) => address)
  )
}

/** The first DNS name and the first IPv4 address that lead visitors to this machine. */
export function visitorHost(names: readonly PublicName[]): {
  readonly name: string | undefined
  readonly address: string | undefined
} {
  const hosts = names.map(({ host }) => host).filter((host) => !isThisMachine(host))
  return { name: hosts.find((host) => isIP(host) === 0), address: hosts.find(isIPv4) }
}

/** True for names and addresses that lead every machine to itself (RFC 6761 section 6.3). */
export function isThisMachine(host: string): boolean {
  return isLoopback(host) || host.endsWith('.localhost')
}

/**
 * Addresses for `SVC_SERVER_ADDR`, the best first: the public names, else the known addresses. Without IPv6
 * addresses, which the SDK does not dial. Empty while the port is unknown.
 */
export function agentAddresses(listen: ListenAddress, names: readonly PublicName[]): string[] {
  const isDialled = (host: string) => isIP(host) !== 6
  const given = names.filter(({ host }) => isDialled(host))
  const known = isAnyHost(listen.host) ? machineAddresses() : [listen.host]
  const hosts = known.filter(isDialled)
  if (hosts.length === 0 && isAnyHost(listen.host)) hosts.push('127.0.0.1')
  const best = given.length > 0 ? given : hosts.map((host) => ({ host, port: undefined }))
  return best
    .map(({ host, port = listen.port }) => ({ host, port }))
    .filter(({ port }) => port > 0)
    .map(formatListenAddress)
}
