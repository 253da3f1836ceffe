import type { EndpointUrls } from '../endpoints/endpoint-urls.ts'
import { type EndpointProtocol, PROTOCOLS } from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'

const SCHEME = /^([a-z][a-z0-9+.-]*):\/\/(.*)$/is
const PLACE = /^(\[[0-9a-f:.]+\]|[^[\]:\s]*)(?::(\d*))?$/i
const MAX_PORT = 65_535

/** What the URL of a bind asks for. */
export interface AskedPlace {
  readonly protocol: EndpointProtocol
  /** Lower case; with its port for TCP. Empty: any that the gateway chooses. */
  readonly host: string
}

/**
 * Reads the URL of a bind: `host`, `scheme://host`, `scheme://host:port`, or `scheme://` for an address
 * that the gateway chooses. `proto` is the protocol of the same bind and has to agree; empty means the
 * scheme of the URL, or https.
 *
 * Throws a ServiceError with the code of the hosted service: 9030 for a port out of range, 9034 for text
 * that is no URL, 9035 for a port that the scheme cannot have here, 9036 for a scheme, 9037 for a user,
 * path, query or fragment, 9038 for a slash at the end.
 */
export function readBindUrl(text: string, proto: string, urls: EndpointUrls): AskedPlace {
  const [, scheme, place = text] = SCHEME.exec(text) ?? []
  const protocol = protocolOf(scheme?.toLowerCase(), proto.toLowerCase())
  if (/[@?#]/.test(place) || /\/./s.test(place)) {
    throw new ServiceError(
      9037,
      `The URL ${shown(text)} cannot be used: leave out user, path, query and fragment.`,
    )
  }
  if (place.endsWith('/')) {
    throw new ServiceError(9038, `The URL ${text} cannot be used: leave out the slash at its end.`)
  }
  const match = PLACE.exec(place)
  const [, name = '', digits] = match ?? []
  if (!match || digits === '' || (name === '' && digits !== undefined)) {
    throw new ServiceError(
      9034,
      `The URL ${text} is malformed: write scheme://host or scheme://host:port.`,
    )
  }
  const host = name.toLowerCase()
  const port = digits === undefined ? undefined : Number(digits)
  if (port !== undefined && (port < 1 || port > MAX_PORT)) {
    throw new ServiceError(9030, `The URL ${text} cannot be used: a port is from 1 to ${MAX_PORT}.`)
  }
  if (protocol === 'tcp') return { protocol, host: addressOf(text, host, port) }
  if (port !== undefined && !urls.mayName(protocol, host, port)) {
    throw new ServiceError(
      9035,
      `The URL ${text} cannot be used: this gateway has no ${protocol} endpoints on port ${port}. Leave the port out.`,
    )
  }
  return { protocol, host }
}

function protocolOf(scheme: string | undefined, proto: string): EndpointProtocol {
  const asked = scheme ?? (proto || 'https')
  const protocol = PROTOCOLS.find((known) => known === asked)
  if (!protocol) {
    throw new ServiceError(
      scheme === undefined ? 332 : 9036,
      `The scheme ${asked} is not supported. Use http, https, tcp or tls.`,
    )
  }
  if (proto === '' || proto === protocol) return protocol
  throw new ServiceError(
    9036,
    `The URL has the scheme ${protocol}, but the bind asks for ${proto}.`,
  )
}

function addressOf(text: string, host: string, port: number | undefined): string {
  if (host === '') return ''
  if (port !== undefined) return `${host}:${port}`
  throw new ServiceError(9034, `The URL ${text} needs a port: write tcp://host:port.`)
}

/** Without what may be a password. */
const shown = (text: string) => text.replace(/[^/@]*@/, '…@')
