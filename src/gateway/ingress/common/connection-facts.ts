import { TLSSocket } from 'node:tls'
import type { AddressTables } from '../../../policy/exchange/address-tables.ts'
import type { TlsTerms } from '../../../policy/exchange/outcome.ts'
import type { Connection, TlsSession } from '../../../policy/exchange/policy-exchange.ts'
import type { ClientSocket } from './client-socket.ts'
import { ConnectionCertificate } from './connection-certificate.ts'

/** An address as policies and devices see it: IPv4 even when the socket is an IPv6 one. */
export function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address
}

/** A client's connection as its policy sees it; the byte counts are those of the moment. */
export class ConnectionFacts implements Connection {
  readonly clientIp: string
  readonly clientPort: number
  readonly serverIp: string
  readonly serverPort: number
  readonly startedAt: number
  readonly tables: AddressTables | undefined
  readonly serverName: string | undefined
  #tls: TlsSession | undefined
  #socket: ClientSocket

  /** `tls`: that has ended before; `serverName`: what the client has said of TLS that goes on. */
  constructor(
    socket: ClientSocket,
    startedAt: number,
    tables?: AddressTables,
    before: Pick<Connection, 'tls' | 'serverName'> = {},
  ) {
    this.tables = tables
    this.#socket = socket
    this.clientIp = plainAddress(socket.remoteAddress ?? '')
    this.clientPort = socket.remotePort ?? 0
    this.serverIp = plainAddress(socket.localAddress ?? '')
    this.serverPort = socket.localPort ?? 0
    this.startedAt = startedAt
    this.serverName = before.serverName
    this.#tls = socket instanceof TLSSocket ? tlsSessionOf(socket) : before.tls
  }

  get tls(): TlsSession | undefined {
    return this.#tls
  }

  /** TLS has come to end on it, by terms of a policy or by those of the gateway. */
  secure(socket: TLSSocket, terms: TlsTerms | undefined): void {
    this.#socket = socket
    this.#tls = tlsSessionOf(socket, terms)
  }

  get bytesIn(): number {
    return this.#socket.bytesRead
  }

  get bytesOut(): number {
    return this.#socket.bytesWritten
  }
}

function tlsSessionOf(socket: TLSSocket, terms?: TlsTerms): TlsSession {
  const alpn = socket.alpnProtocol
  const own = socket.getX509Certificate()
  const peer = socket.getPeerX509Certificate()
  return {
    version: socket.getProtocol() ?? '',
    cipherSuite: socket.getCipher().standardName,
    serverName: servernameOf(socket),
    alpn: typeof alpn === 'string' ? alpn : '',
    serverCertificate: own && new ConnectionCertificate(own),
    clientCertificate: peer && new ConnectionCertificate(peer),
    terms: terms?.id,
  }
}

/** Node has it on sockets of a server, but its types do not. */
function servernameOf(socket: TLSSocket): string {
  const { servername } = socket as { servername?: string | false | null }
  return servername || ''
}
