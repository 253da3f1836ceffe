import type { DetailedPeerCertificate, TLSSocket } from 'node:tls'

const MOST_CERTIFICATES = 8
const MOST_CHARACTERS = 64

/** The certificates that a server shows, by name, its own first: `gateway.lan ← site CA`. Untrusted text. */
export function shownChain(socket: TLSSocket): string {
  const names: string[] = []
  const seen = new Set<string>()
  let certificate: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true)
  let issuer: string | undefined
  // The last one of a chain is its own issuer.
  while (certificate?.fingerprint256 && !seen.has(certificate.fingerprint256)) {
    if (names.length === MOST_CERTIFICATES) return [...names, '…'].join(' ← ')
    seen.add(certificate.fingerprint256)
    names.push(nameOf(certificate.subject))
    issuer = nameOf(certificate.issuer)
    certificate = certificate.issuerCertificate
  }
  if (issuer !== undefined && issuer !== names.at(-1)) names.push(`${issuer} (not sent)`)
  return names.join(' ← ')
}

function nameOf(name: Partial<Record<string, string | string[]>> | undefined): string {
  const said = name?.CN ?? name?.O
  const text = Array.isArray(said) ? said[0] : said
  return (text ?? 'unnamed certificate').slice(0, MOST_CHARACTERS)
}
