import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointProtocol,
  entranceOf,
  type HttpProtocol,
} from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'
import { checkEndpointHost } from './endpoint-host.ts'

const URL_FORM = /^([a-z][a-z0-9+.-]*):\/\/([^/?#@:]+)(?::(\d{1,5}))?\/?$/i
const SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i
const DEFAULT_PORTS: Readonly<Record<HttpProtocol, number>> = { http: 80, https: 443 }

/** Where an HTTP endpoint is found. */
export interface HttpPlace {
  readonly protocol: HttpProtocol
  readonly host: string
}

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
  mayName(protocol: HttpProtocol | 'tls', host: string, port: number): boolean {
    const entrance = protocol === 'http' ? 'http' : 'https'
    return port === DEFAULT_PORTS[entrance] || (!isInternal(host) && port === this.#ports[entrance])
  }

  /** Throws ServiceError 18001, 18003, 18022 or that of a host that cannot be. */
  read(url: string): HttpPlace {
    if (!SCHEME.test(url)) {
      throw new ServiceError(18022, 'The URL has no scheme. Write https://host or http://host.')
    }
    const [, scheme = '', name = '', port] = URL_FORM.exec(url) ?? []
    if (name === '') {
      throw new ServiceError(18001, 'The URL is not valid. Write https://host or http://host.')
    }
    const protocol = scheme.toLowerCase()
    if (protocol !== 'https' && protocol !== 'http') {
      throw new ServiceError(18022, `The scheme ${protocol} is not supported. Use https or http.`)
    }
    const host = name.toLowerCase()
    checkEndpointHost(host)
    if (port !== undefined && !this.mayName(protocol, host, Number(port))) {
      throw new ServiceError(18003, `The port ${port} is not served by this gateway. Leave it out.`)
    }
    return { protocol, host }
  }
}
