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

const FOR_AN_HOUR: Validity = {
  notBefore: new Date(Date.now() - HOUR_MS),
  notAfter: new Date(Date.now() + HOUR_MS),
}

export interface LeafWish {
  readonly name?: string
  readonly validity?: Validity
  /** Only for servers, or for clients; unless given, for both. */
  readonly purpose?: 'server' | 'client'
  /** More names, which make it as large as is wished for. */
  readonly moreNames?: readonly string[]
}

/** A CA of a test, which holds for an hour, and signs what it is asked for. */
export interface TestAuthority {
  readonly caPem: string
  issue(wish?: LeafWish): Promise<Omit<TlsFixture, 'caPem'>>
}

interface Validity {
  readonly notBefore: Date
  readonly notAfter: Date
}

export const AN_HOUR_AGO: Validity = {
  notBefore: new Date(Date.now() - 2 * HOUR_MS),
  notAfter: new Date(Date.now() - HOUR_MS),
}

const PURPOSES = { server: '1.3.6.1.5.5.7.3.1', client: '1.3.6.1.5.5.7.3.2' }

export async function createAuthority(validityOfCa = FOR_AN_HOUR): Promise<TestAuthority> {
  const keys = await generateKeys()
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    ...validityOfCa,
    serialNumber: '01',
    name: 'CN=test CA',
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [new x509.BasicConstraintsExtension(true, 0, true)],
  })
  return authorityOf(ca, keys)
}

/** A CA whose certificate another one has signed, of which nobody has the certificate. */
export async function createIntermediate(): Promise<TestAuthority> {
  const [rootKeys, keys] = [await generateKeys(), await generateKeys()]
  const ca = await x509.X509CertificateGenerator.create({
    ...FOR_AN_HOUR,
    serialNumber: '03',
    subject: 'CN=test intermediate CA',
    issuer: 'CN=absent root CA',
    signingKey: rootKeys.privateKey,
    publicKey: keys.publicKey,
    signingAlgorithm: ALGORITHM,
    extensions: [new x509.BasicConstraintsExtension(true, 0, true)],
  })
  return authorityOf(ca, keys)
}

function authorityOf(ca: x509.X509Certificate, caKeys: webcrypto.CryptoKeyPair): TestAuthority {
  const issue: TestAuthority['issue'] = async ({
    name = 'localhost',
    validity = FOR_AN_HOUR,
    purpose,
    moreNames = [],
  } = {}) => {
    const keys = await generateKeys()
    const leaf = await x509.X509CertificateGenerator.create({
      ...validity,
      serialNumber: '02',
      subject: `CN=${name}`,
      issuer: ca.subject,
      signingKey: caKeys.privateKey,
      publicKey: keys.publicKey,
      signingAlgorithm: ALGORITHM,
      extensions: [
        // rustls refuses a leaf without alternative names.
        new x509.SubjectAlternativeNameExtension([
          { type: 'dns', value: name },
          { type: 'ip', value: '127.0.0.1' },
          ...moreNames.map((value) => ({ type: 'dns', value }) as const),
        ]),
        ...(purpose ? [new x509.ExtendedKeyUsageExtension([PURPOSES[purpose]])] : []),
      ],
    })
    const keyPem = KeyObject.from(keys.privateKey).export({ type: 'pkcs8', format: 'pem' })
    return { certPem: leaf.toString('pem'), keyPem: keyPem.toString() }
  }
  return { caPem: ca.toString('pem'), issue }
}

/** Makes a CA and a leaf for `localhost` and 127.0.0.1 that hold for an hour, or for `validity`. */
export async function createTlsFixture(validity = FOR_AN_HOUR): Promise<TlsFixture> {
  const { caPem, issue } = await createAuthority(validity)
  return { caPem, ...(await issue({ validity })) }
}

function generateKeys(): Promise<webcrypto.CryptoKeyPair> {
  return webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
}
