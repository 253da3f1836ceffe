import { isIPv6 } from 'node:net'
import { consistsOf, HOST } from './byte-class.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'

const DOT = 0x2e
const DIGITS = /^[0-9]{1,5}$/
const MAX_PORT = 65_535
const IP_LITERAL = /^\[([0-9A-Fa-f:.]{2,45})\]$/

/**
 * The host name of a Host value (RFC 9110 7.2): lower case, without port and without the dot of a
 * rooted name, so that it can be looked up. A port that is empty is refused as one that is none:
 * RFC 3986 3.2.3 has it, no client sends it, and servers read it differently. Throws HttpSyntaxError.
 */
export function hostnameOf(host: string): string {
  const bracket = host.lastIndexOf(']')
  const colon = host.indexOf(':', bracket + 1)
  const end = colon === -1 ? host.length : colon
  if (colon !== -1 && !isPort(host.slice(colon + 1))) {
    throw new HttpSyntaxError('a Host with an invalid port')
  }
  const nameEnd = host.charCodeAt(end - 1) === DOT ? end - 1 : end
  const name = host.slice(0, nameEnd)
  if (!(bracket === -1 ? consistsOf(host, 0, nameEnd, HOST) : isIpLiteral(name))) {
    throw new HttpSyntaxError('a Host that is not a valid host name')
  }
  return name.toLowerCase()
}

function isPort(text: string): boolean {
  return DIGITS.test(text) && Number(text) <= MAX_PORT
}

function isIpLiteral(name: string): boolean {
  return isIPv6(IP_LITERAL.exec(name)?.[1] ?? '')
}
