import type { X509Certificate } from 'node:crypto'
import { TLSSocket } from 'node:tls'
import type { AddressTables } from '../../../policy/exchange/address-tables.ts'
import type { TlsTerms } from '../../../policy/exchange/outcome.ts'
import type {
  CertificateExtension,
  Connection,
  SessionCertificate,
  TlsSession,
} from '../../../policy/exchange/policy-exchange.ts'
import type { ClientSocket } from './client-socket.ts'
// The X.509 library expects it to be there first.
import 'reflect-metadata'
import * as x509 from '@peculiar/x509'

/** Names of Go's crypto/x509, which policies compare with. */
const SIGNATURE_ALGORITHMS: Readonly<Record<string, string>> = {
  '1.2.840.113549.1.1.4': 'MD5-RSA',
  '1.2.840.113549.1.1.5': 'SHA1-RSA',
  '1.2.840.113549.1.1.11': 'SHA256-RSA',
  '1.2.840.113549.1.1.12': 'SHA384-RSA',
  '1.2.840.113549.1.1.13': 'SHA512-RSA',
  '1.2.840.10040.4.3': 'DSA-SHA1',
  '2.16.840.1.101.3.4.3.2': 'DSA-SHA256',
  '1.2.840.10045.4.1': 'ECDSA-SHA1',
  '1.2.840.10045.4.3.2': 'ECDSA-SHA256',
  '1.2.840.10045.4.3.3': 'ECDSA-SHA384',
  '1.2.840.10045.4.3.4': 'ECDSA-SHA512',
  '1.3.101.112': 'Ed25519',
}
const RSA_PSS = '1.2.840.113549.1.1.10'

interface Decoded {
  readonly signatureAlgorithm: string
  readonly extensions: readonly CertificateExtension[]
}

/** A certificate of a client's connection. Parts that Node does not provide are decoded once, on demand. */
export class ConnectionCertificate implements SessionCertificate {
  readonly x509: X509Certificate
  #decoded: Decoded | undefined
  #isOdd = false

  constructor(certificate: X509Certificate) {
    this.x509 = certificate
  }

  get signatureAlgorithm(): string | undefined {
    return this.#decode()?.signatureAlgorithm
  }

  get extensions(): readonly CertificateExtension[] | undefined {
    return this.#decode()?.extensions
  }

  /** Undefined for a certificate that TLS took and the library does not. */
  #decode(): Decoded | undefined {
    if (this.#decoded || this.#isOdd) return this.#decoded
    try {
      this.#decoded = new DecodableCertificate(this.x509.raw).decoded
    } catch {
      this.#isOdd = true
    }
    return this.#decoded
  }
}

/** Gives access to the raw extensions: the library parses the extensions that it knows. */
class DecodableCertificate extends x509.X509Certificate {
  get decoded(): Decoded {
    const { signatureAlgorithm, tbsCertificate } = this.asn
    return {
      signatureAlgorithm: this.#nameOf(signatureAlgorithm.algorithm),
      extensions: (tbsCertificate.extensions ?? []).map(({ extnID, critical, extnValue }) => ({
        id: extnID,
        critical,
        value: new Uint8Array(extnValue.buffer),
      })),
    }
  }

  /** The OID itself when it has no name. */
  #nameOf(oid: string): string {
    if (oid === RSA_PSS) return `${this.signatureAlgorithm.hash.name.replace('-', '')}-RSAPSS`
    return SIGNATURE_ALGORITHMS[oid] ?? oid
  }
}

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

  /**
   * `tls`: facts of TLS that ended earlier. `serverName`: the client's server name in TLS that is passed on.
   */
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

  /** TLS now ends on the connection, with the terms of a policy or of the gateway. */
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
