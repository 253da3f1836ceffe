// The X.509 library requires this import first.
import 'reflect-metadata'
import * as x509 from '@peculiar/x509'

/** Names of the bits of RFC 5280 section 4.2.1.3, in kebab case. */
export function keyUsages(certificate: x509.X509Certificate): string[] {
  const usages = certificate.getExtension(x509.KeyUsagesExtension)?.usages ?? 0
  return Object.entries(x509.KeyUsageFlags).flatMap(([name, bit]) =>
    typeof bit === 'number' && (usages & bit) !== 0 ? [kebab(name)] : [],
  )
}

/** Names of RFC 5280 section 4.2.1.12 in kebab case; other usages by their number. */
export function extendedKeyUsages(certificate: x509.X509Certificate): string[] {
  const usages = certificate.getExtension(x509.ExtendedKeyUsageExtension)?.usages ?? []
  const names = new Map(Object.entries(x509.ExtendedKeyUsage).map(([name, oid]) => [oid, name]))
  return usages.map((usage) => {
    const name = names.get(String(usage) as x509.ExtendedKeyUsage)
    return name === undefined ? String(usage) : kebab(name)
  })
}

const kebab = (name: string) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
