import { createPrivateKey, X509Certificate } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { createSecureContext, type SecureContext } from 'node:tls'
import { writeFileDurably } from '../../base/file.ts'
import type { PrivateKeyType } from '../records/private-key.ts'

/** Directory of the certificates of reserved domains, inside the data directory. */
export const CERTIFICATES = 'certificates'

/** A certificate (with its chain, if any) and its private key; all PEM. */
export interface IssuedCertificate {
  readonly certPem: string
  readonly keyPem: string
}

/** A certificate in use: as context for handshakes, and as PEM for handshakes with their own TLS settings. */
export interface ServedCertificate extends IssuedCertificate {
  readonly context: SecureContext
}

/** Throws if the key does not match the certificate. */
export function served({ certPem, keyPem }: IssuedCertificate): ServedCertificate {
  const context = createSecureContext({ cert: certPem, key: keyPem, minVersion: 'TLSv1.2' })
  return { certPem, keyPem, context }
}

/** Issuer of certificates. */
export interface CertificateSource {
  issue(names: readonly string[], keyType?: PrivateKeyType): Promise<IssuedCertificate>
  /** Returns false for a certificate of another issuer. */
  hasIssued(certificate: X509Certificate): boolean
}

/**
 * A server certificate on disk. Certificate and key are in one file, so they are always replaced together.
 */
export interface KeptCertificate extends IssuedCertificate {
  /** Host names, wildcards and IP addresses that it is valid for. */
  readonly names: readonly string[]
  readonly keyType: PrivateKeyType
  readonly notBefore: number
  readonly notAfter: number
}

export function saveCertificate(path: string, issued: IssuedCertificate): void {
  writeFileDurably(path, pemOf(issued))
}

/** Certificate, chain and key in one text. The text works as both `certPem` and `keyPem`. */
export function pemOf({ certPem, keyPem }: IssuedCertificate): string {
  return certPem === keyPem ? certPem : `${certPem.trimEnd()}\n${keyPem}`
}

/** Undefined if the file is missing, or contains no certificate of `source` with its key. */
export function loadCertificate(
  path: string,
  source: Pick<CertificateSource, 'hasIssued'>,
): KeptCertificate | undefined {
  if (!existsSync(path)) return undefined
  try {
    const pem = readFileSync(path, 'utf8')
    const certificate = new X509Certificate(pem)
    const isOurs =
      certificate.checkPrivateKey(createPrivateKey(pem)) && source.hasIssued(certificate)
    return isOurs ? keep({ certPem: pem, keyPem: pem }) : undefined
  } catch {
    // A damaged file leads to a new certificate, not to a stopped gateway.
    return undefined
  }
}

/** Reads the fields of a certificate that later checks need. */
export function keep(issued: IssuedCertificate): KeptCertificate {
  const certificate = new X509Certificate(issued.certPem)
  const names = (certificate.subjectAltName ?? '')
    .split(', ')
    .map((entry) => normalName(entry.slice(entry.indexOf(':') + 1)))
  return {
    ...issued,
    names,
    keyType: certificate.publicKey.asymmetricKeyType === 'rsa' ? 'rsa' : 'ecdsa',
    notBefore: Date.parse(certificate.validFrom),
    notAfter: Date.parse(certificate.validTo),
  }
}

/** Expands IPv6 addresses to the long form of certificates: `::1` becomes `0:0:0:0:0:0:0:1`. */
export function normalName(name: string): string {
  if (!name.includes(':')) return name.toLowerCase()
  // The URL parser normalizes every IPv6 address.
  return new URL(`http://[${name}]`).hostname.slice(1, -1)
}
