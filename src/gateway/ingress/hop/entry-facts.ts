import type {
  Connection,
  SessionCertificate,
  TlsSession,
} from '../../../policy/exchange/policy-exchange.ts'
import type { HttpEntry } from '../../peers/visitor-facts.ts'
import type { IngressListener } from '../ingress-listener.ts'

/** What a home has to know of the way by which requests come in. */
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
  return x509.raw.toString('base64')
}
