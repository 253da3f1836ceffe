import type {
  Connection,
  SessionCertificate,
  TlsSession,
} from '../../../policy/exchange/policy-exchange.ts'
import { type HttpEntry, MAX_CERTIFICATE_BYTES } from '../../streams/visitor-facts.ts'
import type { IngressListener } from '../common/ingress-listener.ts'

/** A visitor may show any certificate, where a policy asks for one; a home reads no endless one. */
export class CertificateTooLargeError extends Error {
  constructor() {
    super('A certificate of this connection is too large to forward to the gateway of the device.')
  }
}

/** What a home has to know of the way by which requests come in. Throws CertificateTooLargeError. */
export function entryFacts({ scheme, internal }: IngressListener, { tls }: Connection): HttpEntry {
  return {
    kind: 'http',
    scheme,
    ...(tls && { tls: tlsFacts(tls) }),
    ...(internal && {
      internal: {
        owner_id: internal.ownerId,
        ask_depth: internal.asker.depth,
        hops: 0,
        withholds_login: false,
      },
    }),
  }
}

/** The session without the terms of a policy: those are known where it runs. */
export function tlsFacts(tls: TlsSession) {
  const { serverCertificate, clientCertificate } = tls
  return {
    version: tls.version,
    cipher: tls.cipherSuite,
    server_name: tls.serverName,
    alpn: tls.alpn,
    ...(serverCertificate && { server_certificate: derOf(serverCertificate) }),
    ...(clientCertificate && { client_certificate: derOf(clientCertificate) }),
  }
}

function derOf({ x509 }: SessionCertificate): string {
  if (x509.raw.length > MAX_CERTIFICATE_BYTES) throw new CertificateTooLargeError()
  return x509.raw.toString('base64')
}
