import { consistsOf, HOST } from './byte-class.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'

const DOT = 0x2e
const DIGIT = /^[0-9]{1,5}$/
const IP_LITERAL = /^\[[0-9A-Fa-f:.]{2,45}\]$/

/**
 * The host name of a Host value (RFC 9110 7.2): lower case, without port and without the dot of a
 * rooted name, so that it can be looked up. Throws HttpSyntaxError.
 */
export function hostnameOf(host: string): string {
  const bracket = host.lastIndexOf(']')
  const colon = host.indexOf(':', bracket + 1)
  const end = colon === -1 ? host.length : colon
  if (colon !== -1 && !DIGIT.test(host.slice(colon + 1))) {
    throw new HttpSyntaxError('a Host with an invalid port')
  }
  const nameEnd = host.charCodeAt(end - 1) === DOT ? end - 1 : end
  const name = host.slice(0, nameEnd)
  if (!(bracket === -1 ? consistsOf(host, 0, nameEnd, HOST) : IP_LITERAL.test(name))) {
    throw new HttpSyntaxError('a Host that is not a valid host name')
  }
  return name.toLowerCase()
}
