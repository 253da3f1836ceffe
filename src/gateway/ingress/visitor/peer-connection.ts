import { X509Certificate } from 'node:crypto'
import type { AddressTables } from '../../../policy/exchange/address-tables.ts'
import type {
  Connection,
  SessionCertificate,
  TlsSession,
} from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { PeerSocket } from '../../streams/peer-socket.ts'
import type { HttpEntry, VisitorFacts } from '../../streams/visitor-facts.ts'
import { ConnectionCertificate } from '../common/connection-certificate.ts'

type TlsFacts = NonNullable<HttpEntry['tls']>

/** A visitor's connection to another node, as policies see it: all its streams to here are one. */
export class PeerConnection implements Connection {
  readonly clientIp: string
  readonly clientPort: number
  readonly serverIp: string
  readonly serverPort: number
  readonly startedAt: number
  readonly tls: TlsSession | undefined
  readonly tables: AddressTables | undefined
  /** Endpoints whose connect rules are done with it. */
  readonly admittedBy = new WeakSet<Endpoint>()
  readonly #sockets = new Set<PeerSocket>()
  #closedIn = 0
  #closedOut = 0

  constructor(facts: VisitorFacts, tables: AddressTables | undefined) {
    this.clientIp = facts.client_ip
    this.clientPort = facts.client_port
    this.serverIp = facts.server_ip
    this.serverPort = facts.server_port
    this.startedAt = facts.started_at
    this.tables = tables
    const { entry } = facts
    this.tls = 'tls' in entry && entry.tls ? new PeerTlsSession(entry.tls) : undefined
  }

  get bytesIn(): number {
    let bytes = this.#closedIn
    for (const { bytesRead } of this.#sockets) bytes += bytesRead
    return bytes
  }

  get bytesOut(): number {
    let bytes = this.#closedOut
    for (const { bytesWritten } of this.#sockets) bytes += bytesWritten
    return bytes
  }

  add(socket: PeerSocket): void {
    this.#sockets.add(socket)
  }

  /** True when no stream of it is left. */
  remove(socket: PeerSocket): boolean {
    this.#sockets.delete(socket)
    this.#closedIn += socket.bytesRead
    this.#closedOut += socket.bytesWritten
    return this.#sockets.size === 0
  }
}

/** TLS that has ended at another node; its certificates are looked at when a policy asks. */
class PeerTlsSession implements TlsSession {
  readonly version: string
  readonly cipherSuite: string
  readonly serverName: string
  readonly alpn: string
  readonly #facts: TlsFacts
  #server: SessionCertificate | undefined
  #client: SessionCertificate | undefined

  constructor(facts: TlsFacts) {
    this.#facts = facts
    this.version = facts.version
    this.cipherSuite = facts.cipher
    this.serverName = facts.server_name
    this.alpn = facts.alpn
  }

  get serverCertificate(): SessionCertificate | undefined {
    this.#server ??= certificateOf(this.#facts.server_certificate)
    return this.#server
  }

  get clientCertificate(): SessionCertificate | undefined {
    this.#client ??= certificateOf(this.#facts.client_certificate)
    return this.#client
  }
}

function certificateOf(der: string | undefined): SessionCertificate | undefined {
  if (der === undefined) return undefined
  return new ConnectionCertificate(new X509Certificate(Buffer.from(der, 'base64')))
}
