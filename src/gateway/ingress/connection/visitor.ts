import { networkOf } from '../../../base/limit/network.ts'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import { LoginStreams } from '../../streams/login-streams.ts'
import { VisitorHops } from '../hop/visitor-hops.ts'
import type { IngressListener } from '../ingress-listener.ts'
import type { ClientSocket } from './client-socket.ts'
import { plainAddress } from './connection-facts.ts'

export interface VisitorOptions {
  readonly listener: IngressListener
  readonly ip: string
  readonly port: number
  /** The connection as its policy sees it; made when first asked for. */
  readonly facts: () => Connection
  /** Endpoints whose connect rules are done with the visitor; they go when the endpoint does. */
  readonly admittedBy?: WeakSet<Endpoint> | undefined
}

/** Who sends requests on a connection: its peer, or the client that a trusted proxy names. */
export class Visitor {
  readonly listener: IngressListener
  readonly ip: string
  /** `ip:port`. */
  readonly address: string
  /** See `Client`. */
  readonly network: string
  readonly logins = new LoginStreams()
  readonly #makeFacts: () => Connection
  readonly #admittedBy: WeakSet<Endpoint>
  #facts: Connection | undefined
  #hops: VisitorHops | undefined

  constructor({ listener, ip, port, facts, admittedBy }: VisitorOptions) {
    this.listener = listener
    this.ip = ip
    this.address = formatListenAddress({ host: ip, port })
    this.network = networkOf(ip)
    this.#makeFacts = facts
    this.#admittedBy = admittedBy ?? new WeakSet()
  }

  /** The peer of a socket. */
  static of(socket: ClientSocket, options: Omit<VisitorOptions, 'ip' | 'port'>): Visitor {
    const { remoteAddress = '', remotePort = 0 } = socket
    return new Visitor({ ...options, ip: plainAddress(remoteAddress), port: remotePort })
  }

  get facts(): Connection {
    this.#facts ??= this.#makeFacts()
    return this.#facts
  }

  /** Its ways to other nodes; made when first asked for. */
  get hops(): VisitorHops {
    this.#hops ??= new VisitorHops(this)
    return this.#hops
  }

  isAdmitted(endpoint: Endpoint): boolean {
    return this.#admittedBy.has(endpoint)
  }

  admit(endpoint: Endpoint): void {
    this.#admittedBy.add(endpoint)
  }

  /** Nothing more is sent for it. */
  close(): void {
    this.logins.close()
    this.#hops?.close()
  }
}
