// Has to come first: what the X.509 library is built on looks for it at import.
import 'reflect-metadata'
import { KeyObject, webcrypto } from 'node:crypto'
import * as x509 from '@peculiar/x509'

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const HOUR_MS = 3_600_000

/** A server certificate and the CA that signed it, all PEM. */
export interface TlsFixture {
  readonly caPem: string
  readonly certPem: string
  readonly keyPem: string
}

const FOR_AN_HOUR = {
  notBefore: new Date(Date.now() - HOUR_MS),
  notAfter: new Date(Date.now() + HOUR_MS),
}

/** Makes a CA and a leaf for `localhost` and 127.0.0.1 that hold for an hour, or for `validity`. */
export async function createTlsFixture(validity = FOR_AN_HOUR): Promise<TlsFixture> {
  const caKeys = await generateKeys()
  const keys = await generateKeys()
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    ...validity,
    serialNumber: '01',
    name: 'CN=test CA',
    keys: caKeys,
    signingAlgorithm: ALGORITHM,
    extensions: [new x509.BasicConstraintsExtension(true, 0, true)],
  })
  const leaf = await x509.X509CertificateGenerator.create({
    ...validity,
    serialNumber: '02',
    subject: 'CN=localhost',
    issuer: ca.subject,
    signingKey: caKeys.privateKey,
    publicKey: keys.publicKey,
    signingAlgorithm: ALGORITHM,
    extensions: [
      // rustls refuses a leaf without alternative names.
      new x509.SubjectAlternativeNameExtension([
        { type: 'dns', value: 'localhost' },
        { type: 'ip', value: '127.0.0.1' },
      ]),
    ],
  })
  const keyPem = KeyObject.from(keys.privateKey).export({ type: 'pkcs8', format: 'pem' })
  return { caPem: ca.toString('pem'), certPem: leaf.toString('pem'), keyPem: keyPem.toString() }
}

function generateKeys(): Promise<webcrypto.CryptoKeyPair> {
  return webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
}
