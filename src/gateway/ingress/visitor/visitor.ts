import { formatListenAddress } from '../../../base/listen-address.ts'
import type { SharedConnection } from '../../../base/net/connection-shares.ts'
import { networkOf } from '../../../base/net/network.ts'
import type { TrustedProxies } from '../../../base/net/trusted-proxies.ts'
import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import { LoginStreams } from '../../streams/login-streams.ts'
import type { ClientSocket } from '../common/client-socket.ts'
import { plainAddress } from '../common/connection-facts.ts'
import type { IngressListener } from '../common/ingress-listener.ts'
import { VisitorHops } from '../device/visitor-hops.ts'
import { knownField } from '../syntax/message-fields.ts'
import type { RequestHead } from '../syntax/request-head.ts'

/** A visitor's connection, as the ingress keeps it. */
export interface IngressConnection extends SharedConnection {
  /** Begins no exchange any more; closes when those under way are over. */
  stop(): void
  /** Closes without waiting for anybody. */
  destroy(): void
  /** Looks at the deadlines; `now` is monotonic. */
  sweep(now: number): void
  /** Looks whether the client keeps the gateway busy with nothing; more often than `sweep`. */
  checkFlood(): void
}

/** A connection that a policy has judged before there was HTTP on it. */
export interface Admitted {
  readonly facts: Connection
  /** Whose `on_tcp_connect` is done with it; undefined: each request goes through it. */
  readonly endpoint: Endpoint | undefined
  /** All whose connect rules are done with it; shared by the streams of one visitor's connection. */
  readonly by?: WeakSet<Endpoint> | undefined
}

/** Heads up to this length are a part of what each request costs, and not counted. */
const USUAL_HEAD_BYTES = 4_096
/** They are kept as they came, and as they go on. */
const COPIES_OF_HEAD = 2

/** Bytes that a head is counted for while its exchange lasts. */
export function countedHeadBytes(bytes: number): number {
  return bytes > USUAL_HEAD_BYTES ? COPIES_OF_HEAD * bytes : 0
}

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
  #isProxy: boolean | undefined

  constructor({ listener, ip, port, facts, admittedBy }: VisitorOptions) {
    this.listener = listener
    this.ip = ip
    this.address = formatListenAddress({ host: ip, port })
    this.network = networkOf(ip)
    this.#makeFacts = facts
    this.#admittedBy = admittedBy ?? new WeakSet()
  }

  /** The peer of a socket. */
  static at(socket: ClientSocket, options: Omit<VisitorOptions, 'ip' | 'port'>): Visitor {
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

  /** Whether it is a trusted proxy, which sends requests of many clients. */
  isProxy(proxies: TrustedProxies | undefined): boolean {
    this.#isProxy ??= proxies?.trusts(this.ip) === true && !this.listener.internal
    return this.#isProxy
  }

  /**
   * Who sends a request. Behind a trusted proxy each request has a visitor of its own, because the
   * proxy sends those of many clients on one connection: nothing is kept from one to the next.
   */
  of(
    head: RequestHead,
    proxies: TrustedProxies | undefined,
  ): { readonly visitor: Visitor; readonly head: RequestHead } {
    if (!this.isProxy(proxies)) return { visitor: this, head }
    const client = proxies?.clientOf(this.ip, (name) => valuesOf(head.fields, name))
    const { ip, port, scheme, before = [] } = client ?? { ip: this.ip, port: 0 }
    const visitor = new Visitor({
      listener: listenerFor(this.listener, scheme),
      ...{ ip, port },
      facts: () => new ForwardedConnection(this.facts, ip, port),
    })
    return { visitor, head: { ...head, fields: forwardedFields(head.fields, before) } }
  }

  /** Nothing more is sent for it. */
  close(): void {
    this.logins.close()
    this.#hops?.close()
  }
}

/** A connection of a proxy, for one request of a client behind it. */
class ForwardedConnection implements Connection {
  readonly clientIp: string
  readonly clientPort: number
  readonly #proxy: Connection

  constructor(proxy: Connection, clientIp: string, clientPort: number) {
    this.#proxy = proxy
    this.clientIp = clientIp
    this.clientPort = clientPort
  }

  get serverIp(): string {
    return this.#proxy.serverIp
  }

  get serverPort(): number {
    return this.#proxy.serverPort
  }

  get startedAt(): number {
    return this.#proxy.startedAt
  }

  get tables(): Connection['tables'] {
    return this.#proxy.tables
  }

  get tls(): Connection['tls'] {
    return this.#proxy.tls
  }

  get bytesIn(): number {
    return this.#proxy.bytesIn
  }

  get bytesOut(): number {
    return this.#proxy.bytesOut
  }
}

/** Clients that came to the proxy by plain HTTP are led to HTTPS as those of a plain listener are. */
function listenerFor(listener: IngressListener, scheme: IngressListener['scheme'] | undefined) {
  return scheme ? { ...listener, scheme, redirectsToHttps: scheme === 'http' } : listener
}

function valuesOf(fields: readonly string[], name: string): string[] {
  const values: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    if (knownField(fields[at] as string) === name) values.push(fields[at + 1] as string)
  }
  return values
}

/** With the entries left of the client in place of the proxies' own `x-forwarded-for`. */
function forwardedFields(fields: readonly string[], before: readonly string[]): string[] {
  const kept: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    if (knownField(name) !== 'x-forwarded-for') kept.push(name, fields[at + 1] as string)
  }
  if (before.length > 0) kept.push('x-forwarded-for', before.join(', '))
  return kept
}
