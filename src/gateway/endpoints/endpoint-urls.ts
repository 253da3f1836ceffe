import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointAddress,
  type EndpointProtocol,
  entranceOf,
  type HttpProtocol,
  PROTOCOLS,
} from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'
import { checkEndpointHost, internalAddress } from './endpoint-host.ts'

const URL_FORM = /^([a-z][a-z0-9+.-]*):\/\/([^/?#@:]+)(?::(\d{1,5}))?\/?$/i
const SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i
const URL_ADVICE = 'Write https://host, http://host, tls://host or tcp://host:port.'
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
  mayName(protocol: HttpProtocol | 'tls', host: string, port: number): boolean {
    const entrance = protocol === 'http' ? 'http' : 'https'
    return port === DEFAULT_PORTS[entrance] || (!isInternal(host) && port === this.#ports[entrance])
  }

  /** Throws ServiceError 18001, 18003, 18022 or that of a host that cannot be. The port of a TCP address is not checked. */
  read(url: string): EndpointAddress {
    if (!SCHEME.test(url)) throw new ServiceError(18022, `The URL has no scheme. ${URL_ADVICE}`)
    const [, scheme = '', name = '', port] = URL_FORM.exec(url) ?? []
    if (name === '') throw new ServiceError(18001, `The URL is not valid. ${URL_ADVICE}`)
    const protocol = PROTOCOLS.find((known) => known === scheme.toLowerCase())
    if (!protocol) {
      throw new ServiceError(18022, `The scheme ${scheme} is not supported. ${URL_ADVICE}`)
    }
    const host = name.toLowerCase()
    if (protocol === 'tcp') {
      if (port === undefined) throw new ServiceError(18001, `A TCP URL needs a port. ${URL_ADVICE}`)
      return {
        protocol,
        host: isInternal(host) ? internalAddress(host, Number(port)) : `${host}:${Number(port)}`,
      }
    }
    checkEndpointHost(host)
    if (port !== undefined && !this.mayName(protocol, host, Number(port))) {
      throw new ServiceError(18003, `The port ${port} is not served by this gateway. Leave it out.`)
    }
    return { protocol, host }
  }
}
