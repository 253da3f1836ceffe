// Has to come first: what the X.509 library is built on looks for it at import.
import 'reflect-metadata'
import { webcrypto } from 'node:crypto'
import * as x509 from '@peculiar/x509'

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const

export interface CertificateNames {
  readonly name: string
  readonly dns: readonly string[]
  readonly ip: readonly string[]
  readonly email: readonly string[]
  readonly url: readonly string[]
}

/** A self-signed certificate with all kinds of names, PEM. */
export async function createCertificate(names: CertificateNames): Promise<string> {
  x509.cryptoProvider.set(webcrypto)
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
  const { name, ...others } = names
  const alternatives = Object.entries(others).flatMap(([type, values]) =>
    values.map((value) => ({ type: type as 'dns' | 'ip' | 'email' | 'url', value })),
  )
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: '0a1b2c',
    notBefore: new Date('2030-01-01T00:00:00Z'),
    notAfter: new Date('2030-12-01T00:00:00Z'),
    name,
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [new x509.SubjectAlternativeNameExtension(alternatives)],
  })
  return `${certificate.toString('pem')}\n`
}
