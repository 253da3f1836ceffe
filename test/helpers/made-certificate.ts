// Has to come first: the X.509 library looks for it at import.
import 'reflect-metadata'
import { generateKeyPairSync, randomBytes, webcrypto } from 'node:crypto'
import * as x509 from '@peculiar/x509'

const DAY_MS = 86_400_000
const EC = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const RSA = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' } as const

export interface MadeCertificate {
  readonly certPem: string
  readonly keyPem: string
  readonly certificate: x509.X509Certificate
  readonly privateKey: webcrypto.CryptoKey
}

export interface CertificateWish {
  readonly names?: readonly string[]
  readonly commonName?: string
  readonly isCa?: boolean
  /** Unset: it signs itself. */
  readonly issuer?: MadeCertificate
  readonly rsaBits?: number
  readonly notBefore?: number
  readonly notAfter?: number
  /** Address of the issuer's certificate, as public authorities have it. */
  readonly issuerUrl?: string
  /** OID of an extension whose content is an integer, against its definition. */
  readonly malformed?: string
}

/** A certificate of a test, with all that can be wrong with it. */
export async function makeCertificate(wish: CertificateWish = {}): Promise<MadeCertificate> {
  const { names = [], commonName = 'test', issuer, rsaBits, isCa = false } = wish
  const pair = rsaBits
    ? generateKeyPairSync('rsa', { modulusLength: rsaBits })
    : generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const algorithm = rsaBits ? RSA : EC
  const pkcs8 = pair.privateKey.export({ type: 'pkcs8', format: 'der' })
  const spki = pair.publicKey.export({ type: 'spki', format: 'der' })
  const { subtle } = webcrypto
  const privateKey = await subtle.importKey('pkcs8', pkcs8, algorithm, true, ['sign'])
  const publicKey = await subtle.importKey('spki', spki, algorithm, true, ['verify'])
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: `40${randomBytes(8).toString('hex')}`,
    subject: `CN=${commonName}`,
    issuer: issuer?.certificate.subject ?? `CN=${commonName}`,
    notBefore: new Date(wish.notBefore ?? Date.now() - DAY_MS),
    notAfter: new Date(wish.notAfter ?? Date.now() + 90 * DAY_MS),
    publicKey,
    signingKey: issuer?.privateKey ?? privateKey,
    signingAlgorithm:
      issuer?.privateKey.algorithm.name === RSA.name ? RSA : issuer ? EC : algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(isCa, undefined, true),
      new x509.KeyUsagesExtension(
        isCa ? x509.KeyUsageFlags.keyCertSign : x509.KeyUsageFlags.digitalSignature,
        true,
      ),
      ...(isCa ? [] : [new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth])]),
      ...(names.length > 0
        ? [
            new x509.SubjectAlternativeNameExtension(
              names.map((value) => ({ type: 'dns' as const, value })),
            ),
          ]
        : []),
      ...(wish.issuerUrl
        ? [new x509.AuthorityInfoAccessExtension({ caIssuers: [wish.issuerUrl] })]
        : []),
      ...(wish.malformed
        ? [new x509.Extension(wish.malformed, false, Uint8Array.of(2, 1, 5))]
        : []),
    ],
  })
  const keyPem = pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  return { certPem: `${certificate.toString('pem')}\n`, keyPem, certificate, privateKey }
}
