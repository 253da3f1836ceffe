import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointProtocol,
  entranceOf,
  type HttpProtocol,
} from '../records/endpoint-protocol.ts'

const DEFAULT_PORTS: Readonly<Record<HttpProtocol, number>> = { http: 80, https: 443 }

/** The URLs of endpoints: they name the port of the ingress, unless it is the scheme's own. */
export class EndpointUrls {
  #ports: Readonly<Record<HttpProtocol, number>>

  /** `ports`: where the ingress is going to listen. */
  constructor(ports: Readonly<Record<HttpProtocol, number>>) {
    this.#ports = ports
  }

  /** The ingress listens: it knows its ports now, those too that were left to the system. */
  listening(ports: Readonly<Record<HttpProtocol, number>>): void {
    this.#ports = ports
  }

  of(protocol: EndpointProtocol, host: string): string {
    const entrance = entranceOf(protocol)
    // The host of a TCP address has its port already.
    if (entrance === 'tcp') return `tcp://${host}`
    const port = this.#ports[entrance]
    const isDefault = isInternal(host) || port === DEFAULT_PORTS[entrance]
    return `${protocol}://${host}${isDefault ? '' : `:${port}`}`
  }

  /** Whether a URL that somebody writes may name this port: the scheme's own, or the ingress's. */
  mayName(protocol: HttpProtocol, host: string, port: number): boolean {
    return port === DEFAULT_PORTS[protocol] || (!isInternal(host) && port === this.#ports[protocol])
  }
}
