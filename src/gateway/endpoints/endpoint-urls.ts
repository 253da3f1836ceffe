import { isInternal } from '../records/domain-name.ts'
import type { EndpointProtocol } from '../records/endpoint-protocol.ts'

const DEFAULT_PORTS: Readonly<Record<EndpointProtocol, number>> = { http: 80, https: 443 }

/** The URLs of endpoints: they name the port of the ingress, unless it is the scheme's own. */
export class EndpointUrls {
  #ports: Readonly<Record<EndpointProtocol, number>>

  /** `ports`: where the ingress is going to listen. */
  constructor(ports: Readonly<Record<EndpointProtocol, number>>) {
    this.#ports = ports
  }

  /** The ingress listens: it knows its ports now, those too that were left to the system. */
  listening(ports: Readonly<Record<EndpointProtocol, number>>): void {
    this.#ports = ports
  }

  of(protocol: EndpointProtocol, host: string): string {
    const port = this.#ports[protocol]
    const isDefault = isInternal(host) || port === DEFAULT_PORTS[protocol]
    return `${protocol}://${host}${isDefault ? '' : `:${port}`}`
  }

  /** Whether a URL that somebody writes may name this port: the scheme's own, or the ingress's. */
  mayName(protocol: EndpointProtocol, host: string, port: number): boolean {
    return port === DEFAULT_PORTS[protocol] || (!isInternal(host) && port === this.#ports[protocol])
  }
}
