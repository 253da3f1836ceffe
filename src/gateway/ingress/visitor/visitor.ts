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
import { VisitorPeerStreams } from '../device/peer-streams.ts'
import { knownField } from '../syntax/message-fields.ts'
import type { RequestHead } from '../syntax/request-head.ts'

/** A visitor's connection, as the ingress keeps it. */
export interface IngressConnection extends SharedConnection {
  /** Begins no new exchange. Closes when the current exchanges have ended. */
  stop(): void
  /** Closes at once. */
  destroy(): void
  /** Checks the deadlines; `now` is monotonic. */
  sweep(now: number): void
  /** Checks for useless work caused by the client; called more often than `sweep`. */
  checkFlood(): void
}

/** A connection that a policy judged before there was HTTP on it. */
export interface Admitted {
  readonly facts: Connection
  /** Endpoint whose `on_tcp_connect` has run. If undefined, it runs for each request. */
  readonly endpoint: Endpoint | undefined
  /** All endpoints whose connect rules have run; shared by the streams of one visitor's connection. */
  readonly by?: WeakSet<Endpoint> | undefined
}

/** Heads up to this length are part of the usual cost of a request and are not counted. */
const USUAL_HEAD_BYTES = 4_096
/** A head is kept in two forms: as received, and as sent on. */
const COPIES_OF_HEAD = 2

/** Returns the bytes that are counted for a head during its exchange. */
export function countedHeadBytes(bytes: number): number {
  return bytes > USUAL_HEAD_BYTES ? COPIES_OF_HEAD * bytes : 0
}

export interface VisitorOptions {
  readonly listener: IngressListener
  readonly ip: string
  readonly port: number
  /** Returns the connection as policies see it; called at the first use. */
  readonly facts: () => Connection
  /** Endpoints whose connect rules have run for the visitor. Entries disappear with the endpoint. */
  readonly admittedBy?: WeakSet<Endpoint> | undefined
}

/** Sender of requests on a connection: its peer, or the client named by a trusted proxy. */
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
  #hops: VisitorPeerStreams | undefined
  #isProxy: boolean | undefined

  constructor({ listener, ip, port, facts, admittedBy }: VisitorOptions) {
    this.listener = listener
    this.ip = ip
    this.address = formatListenAddress({ host: ip, port })
    this.network = networkOf(ip)
    this.#makeFacts = facts
    this.#admittedBy = admittedBy ?? new WeakSet()
  }

  /** Creates the visitor for the peer of a socket. */
  static at(socket: ClientSocket, options: Omit<VisitorOptions, 'ip' | 'port'>): Visitor {
    const { remoteAddress = '', remotePort = 0 } = socket
    return new Visitor({ ...options, ip: plainAddress(remoteAddress), port: remotePort })
  }

  get facts(): Connection {
    this.#facts ??= this.#makeFacts()
    return this.#facts
  }

  /** Paths to other nodes; created at the first use. */
  get hops(): VisitorPeerStreams {
    this.#hops ??= new VisitorPeerStreams(this)
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
   * Returns the visitor of a request. A trusted proxy sends requests of many clients on one connection. Each
   * of its requests has a separate visitor, and no state is kept between them.
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
    return {
      visitor,
      head: { ...head, fields: forwardedFields(head.fields, before), recurs: false },
    }
  }

  /** Releases its resources: no more requests are sent for it. */
  close(): void {
    this.logins.close()
    this.#hops?.close()
  }
}

/** A proxy's connection, seen by one request of a client behind it. */
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

/** Clients that reached the proxy over plain HTTP are redirected to HTTPS, as on a plain listener. */
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

/** Replaces `x-forwarded-for` of the proxies by the entries left of the client. */
function forwardedFields(fields: readonly string[], before: readonly string[]): string[] {
  const kept: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    if (knownField(name) !== 'x-forwarded-for') kept.push(name, fields[at + 1] as string)
  }
  if (before.length > 0) kept.push('x-forwarded-for', before.join(', '))
  return kept
}
