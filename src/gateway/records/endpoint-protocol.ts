/** How clients reach an endpoint that speaks HTTP. */
export type HttpProtocol = 'http' | 'https'

export const PROTOCOLS = ['http', 'https', 'tcp', 'tls'] as const

/** How clients reach an endpoint. */
export type EndpointProtocol = (typeof PROTOCOLS)[number]

/** Whether what comes in there is requests; else it is bytes, from the first to the last. */
export function carriesRequests(protocol: EndpointProtocol): protocol is HttpProtocol {
  return protocol === 'http' || protocol === 'https'
}

/**
 * Where clients come in: the two listeners of the ingress, and the ports of TCP endpoints. Of all
 * that comes in at one place an address has a single endpoint.
 */
export type Entrance = 'http' | 'https' | 'tcp'

/** A server name at the HTTPS listener belongs to an HTTPS endpoint, or to a TLS one. */
export function entranceOf(protocol: EndpointProtocol): Entrance {
  return protocol === 'tls' ? 'https' : protocol
}

/** What an endpoint is found by. */
export interface EndpointAddress {
  readonly protocol: EndpointProtocol
  /** Lower case, no port but that of a TCP address; a wildcard starts with `*.`. */
  readonly host: string
}

/** The address that an internal URL stands for; undefined when no internal endpoint can have it. */
export function internalAddressOf({
  protocol: scheme,
  hostname,
  port,
}: URL): EndpointAddress | undefined {
  const protocol = PROTOCOLS.find((known) => scheme === `${known}:`)
  // Of schemes that it does not know, the URL parser leaves the name as it is written.
  const host = hostname.toLowerCase()
  if (protocol === 'tcp') return port === '' ? undefined : { protocol, host: `${host}:${port}` }
  // The URL parser drops a port that is the scheme's own; no internal endpoint has another.
  const isOwnPort = port === '' || (protocol === 'tls' && port === '443')
  return protocol && isOwnPort ? { protocol, host } : undefined
}

/** What is found there is an account's; null for the gateway's owner. */
export interface OwnedAddress extends EndpointAddress {
  readonly ownerId: string | null
}
