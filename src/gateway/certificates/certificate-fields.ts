import type { X509Certificate } from 'node:crypto'
// The X.509 library requires this import first.
import 'reflect-metadata'
import * as x509 from '@peculiar/x509'
import { ServiceError } from '../records/service-error.ts'

/** Fields of a certificate that Node does not offer. */
export interface CertificateFields {
  /** First value of an attribute of the subject, such as `CN`; empty if there is none. */
  readonly subject: (attribute: string) => string
  readonly keyUsages: readonly string[]
  readonly extendedKeyUsages: readonly string[]
}

/** Throws a ServiceError 215 for malformed extensions, which Node does not read. */
export function checkFields(certificate: X509Certificate, field: string): void {
  try {
    parseFields(certificate)
  } catch {
    throw new ServiceError(
      215,
      `The first certificate in ${field} has a malformed extension or subject. Issue it again.`,
    )
  }
}

/** Fields of a stored certificate. Never throws: usages of a malformed certificate are empty. */
export function certificateFields(certificate: X509Certificate): CertificateFields {
  try {
    return parseFields(certificate)
  } catch {
    const lines = certificate.subject?.split('\n') ?? []
    const subject = (name: string) =>
      lines.find((line) => line.startsWith(`${name}=`))?.slice(name.length + 1) ?? ''
    return { subject, keyUsages: [], extendedKeyUsages: [] }
  }
}

function parseFields({ raw }: X509Certificate): CertificateFields {
  const certificate = new x509.X509Certificate(raw)
  const { subjectName } = certificate
  return {
    subject: (name) => subjectName.getField(name)[0] ?? '',
    keyUsages: keyUsages(certificate),
    extendedKeyUsages: extendedKeyUsages(certificate),
  }
}

/** Names of the bits of RFC 5280 section 4.2.1.3, in kebab case. */
function keyUsages(certificate: x509.X509Certificate): string[] {
  const usages = certificate.getExtension(x509.KeyUsagesExtension)?.usages ?? 0
  return Object.entries(x509.KeyUsageFlags).flatMap(([name, bit]) =>
    typeof bit === 'number' && (usages & bit) !== 0 ? [kebab(name)] : [],
  )
}

/** Names of RFC 5280 section 4.2.1.12 in kebab case; other usages by their number. */
function extendedKeyUsages(certificate: x509.X509Certificate): string[] {
  const usages = certificate.getExtension(x509.ExtendedKeyUsageExtension)?.usages ?? []
  const names = new Map(Object.entries(x509.ExtendedKeyUsage).map(([name, oid]) => [oid, name]))
  return usages.map((usage) => {
    const name = names.get(String(usage) as x509.ExtendedKeyUsage)
    return name === undefined ? String(usage) : kebab(name)
  })
}

const kebab = (name: string) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
