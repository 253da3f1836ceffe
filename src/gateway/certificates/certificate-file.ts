import { createPrivateKey, X509Certificate } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { createSecureContext, type SecureContext } from 'node:tls'
import { writeFileDurably } from '../../base/file.ts'
import type { PrivateKeyType } from '../records/private-key.ts'

/** The folder of the certificates of reserved domains, in that of the gateway's data. */
export const CERTIFICATES = 'certificates'

/** A certificate, with the chain below it if there is one, and its private key; all PEM. */
export interface IssuedCertificate {
  readonly certPem: string
  readonly keyPem: string
}

/** A certificate in use: for handshakes as they are, and as PEM for those with terms of their own. */
export interface ServedCertificate extends IssuedCertificate {
  readonly context: SecureContext
}

/** Throws when the key is not that of the certificate. */
export function served({ certPem, keyPem }: IssuedCertificate): ServedCertificate {
  const context = createSecureContext({ cert: certPem, key: keyPem, minVersion: 'TLSv1.2' })
  return { certPem, keyPem, context }
}

/** Where certificates come from. */
export interface CertificateSource {
  issue(names: readonly string[], keyType?: PrivateKeyType): Promise<IssuedCertificate>
  /** False for a certificate that came from somewhere else. */
  hasIssued(certificate: X509Certificate): boolean
}

/** A server certificate as it lies on disk: certificate and key in one file, so never half new. */
export interface KeptCertificate extends IssuedCertificate {
  /** Host names, wildcards and IP addresses that it is good for. */
  readonly names: readonly string[]
  readonly keyType: PrivateKeyType
  readonly notBefore: number
  readonly notAfter: number
}

export function saveCertificate(path: string, issued: IssuedCertificate): void {
  writeFileDurably(path, pemOf(issued))
}

/** Certificate, chain and key in one text, which `{ certPem, keyPem }` may both be. */
export function pemOf({ certPem, keyPem }: IssuedCertificate): string {
  return certPem === keyPem ? certPem : `${certPem.trimEnd()}\n${keyPem}`
}

/** Undefined when there is no file, or when it holds no certificate of `source` with its own key. */
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
    // A damaged file is worth a new certificate, not a stopped gateway.
    return undefined
  }
}

/** Reads out of a certificate what is needed to judge it later. */
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

/** Addresses in the long form in which certificates show them: `::1` is `0:0:0:0:0:0:0:1`. */
export function normalName(name: string): string {
  if (!name.includes(':')) return name.toLowerCase()
  // The URL parser gives every IPv6 address one form.
  return new URL(`http://[${name}]`).hostname.slice(1, -1)
}
