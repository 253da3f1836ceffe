import type { Clock } from '../base/clock.ts'
import type { ListenAddress } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import type { Secret } from '../base/secret.ts'

export interface GatewayOptions {
  /** Folder for `gateway.db`, the CA and the certificates; made when missing. */
  readonly dataDir: string
  readonly agentListen: ListenAddress
  readonly httpListen: ListenAddress
  readonly httpsListen: ListenAddress
  /** Certificate for the HTTPS ingress; without it the own CA issues one per reserved domain. */
  readonly tls?: { readonly certPath: string; readonly keyPath: string } | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** Where the started gateway really listens, and what its clients must trust. */
export interface GatewayAddresses {
  readonly agent: ListenAddress
  readonly http: ListenAddress
  readonly https: ListenAddress
  readonly caCertPath: string
}

export interface ProvisionRequest {
  /** The wildcard that the device may bind below, such as `*.site.example.com`. */
  readonly domain: string
  /** Name of the bot user that owns the credential. */
  readonly name: string
  /** A token from an earlier start: it is handed back when it still allows this. */
  readonly authtoken?: Secret | undefined
}

export interface Provisioned {
  readonly domain: string
  readonly authtoken: Secret
}

/** The embedded service: agents connect to it, public traffic comes in through it. */
export class Gateway {
  readonly #options: GatewayOptions

  constructor(options: GatewayOptions) {
    this.#options = options
  }

  start(): Promise<GatewayAddresses> {
    return Promise.reject(new Error(`not there yet: ${this.#options.dataDir}`))
  }

  stop(): Promise<void> {
    return Promise.resolve()
  }

  /** Reserves the domain, makes the bot user and its credential; call it after `start()`. */
  provision(request: ProvisionRequest): Provisioned {
    throw new Error(`not there yet: ${request.domain}`)
  }
}
