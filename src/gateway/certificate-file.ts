import { createPrivateKey, X509Certificate } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { writeFileDurably } from '../base/file.ts'
import type { IssuedCertificate } from './certificate-authority.ts'

/** A server certificate as it lies on disk: certificate and key in one file, so never half new. */
export interface KeptCertificate extends IssuedCertificate {
  /** Host names, wildcards and IP addresses that it is good for. */
  readonly names: readonly string[]
  readonly notBefore: number
  readonly notAfter: number
}

export function saveCertificate(path: string, { certPem, keyPem }: IssuedCertificate): void {
  writeFileDurably(path, `${certPem}${keyPem}`)
}

/** Undefined when there is no file, or when it holds no certificate of this CA with its own key. */
export function loadCertificate(path: string, caPem: string): KeptCertificate | undefined {
  if (!existsSync(path)) return undefined
  try {
    const pem = readFileSync(path, 'utf8')
    const certificate = new X509Certificate(pem)
    const isOurs =
      certificate.checkPrivateKey(createPrivateKey(pem)) &&
      certificate.verify(new X509Certificate(caPem).publicKey)
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
