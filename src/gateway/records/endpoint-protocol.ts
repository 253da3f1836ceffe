/** How clients reach an endpoint that speaks HTTP. */
export type HttpProtocol = 'http' | 'https'

export const PROTOCOLS = ['http', 'https', 'tcp', 'tls'] as const

/** How clients reach an endpoint. */
export type EndpointProtocol = (typeof PROTOCOLS)[number]

/** Whether it carries requests; else a stream of bytes. */
export function carriesRequests(protocol: EndpointProtocol): protocol is HttpProtocol {
  return protocol === 'http' || protocol === 'https'
}

/**
 * Ingress type: one of the two listeners, or the ports of TCP endpoints. An address has one endpoint at each.
 */
export type IngressType = 'http' | 'https' | 'tcp'

/** A server name at the HTTPS listener belongs to an HTTPS endpoint, or to a TLS one. */
export function ingressTypeOf(protocol: EndpointProtocol): IngressType {
  return protocol === 'tls' ? 'https' : protocol
}

/** Address of an endpoint. */
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
  // The URL parser does not normalize host names of unknown schemes.
  const host = hostname.toLowerCase()
  if (protocol === 'tcp') return port === '' ? undefined : { protocol, host: `${host}:${port}` }
  // The URL parser drops a port that is the scheme's own; no internal endpoint has another.
  const isOwnPort = port === '' || (protocol === 'tls' && port === '443')
  return protocol && isOwnPort ? { protocol, host } : undefined
}

/** Address of an account's endpoint; null for the gateway's owner. */
export interface OwnedAddress extends EndpointAddress {
  readonly ownerId: string | null
}
