/** How clients reach an endpoint that speaks HTTP. */
export type HttpProtocol = 'http' | 'https'

/** How clients reach an endpoint. */
export type EndpointProtocol = HttpProtocol | 'tcp' | 'tls'

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

/** What is found there is an account's; null for the gateway's owner. */
export interface OwnedAddress extends EndpointAddress {
  readonly ownerId: string | null
}
