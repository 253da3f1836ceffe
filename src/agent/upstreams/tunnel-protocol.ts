/** What visitors of a tunnel speak. */
export type TunnelProtocol = 'http' | 'tcp' | 'tls'

/** What the service behind it is sent: requests, or bytes as they come. */
export type Carrier = 'http' | 'tcp'

export function carrierOf(protocol: TunnelProtocol): Carrier {
  return protocol === 'http' ? 'http' : 'tcp'
}
