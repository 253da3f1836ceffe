import { createHash, createPrivateKey, type webcrypto, X509Certificate } from 'node:crypto'
// The X.509 library expects it to be there first.
import 'reflect-metadata'
import * as x509 from '@peculiar/x509'
import {
  ALGORITHM,
  readSigningKeys,
  toPem,
  validity,
} from '../../certificates/certificate-authority.ts'
import { createPrivateKeyPem } from '../../records/private-key.ts'
import { nodeName } from './node-name.ts'

const DAY_MS = 86_400_000
const CA_LIFE_MS = 3_650 * DAY_MS
const NODE_LIFE_MS = 365 * DAY_MS

/** The certificate authority of a cluster. Its key is the cluster's most precious secret. */
export interface AuthorityPem {
  readonly certPem: string
  readonly keyPem: string
}

/** A new authority; it lasts ten years. `now` is in milliseconds since the epoch. */
export async function createAuthority(now: number): Promise<AuthorityPem> {
  const keyPem = await createPrivateKeyPem()
  const keys = await readSigningKeys(keyPem)
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    ...validity(now, CA_LIFE_MS),
    name: 'CN=device-agent cluster',
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
  return { certPem: toPem(certificate), keyPem }
}

/** SHA-256 of a certificate, hex: by it a join token says which cluster it is for. */
export function fingerprintOf(certificate: X509Certificate): string {
  return createHash('sha256').update(certificate.raw).digest('hex')
}

/** Issues certificates to the nodes of a cluster. */
export class ClusterAuthority {
  readonly certPem: string
  readonly fingerprint: string
  readonly #certificate: x509.X509Certificate
  readonly #keys: webcrypto.CryptoKeyPair

  private constructor(
    certificate: x509.X509Certificate,
    certPem: string,
    keys: webcrypto.CryptoKeyPair,
  ) {
    this.certPem = certPem
    this.fingerprint = fingerprintOf(new X509Certificate(certPem))
    this.#certificate = certificate
    this.#keys = keys
  }

  /** Throws when the two do not belong together. */
  static async open({ certPem, keyPem }: AuthorityPem): Promise<ClusterAuthority> {
    const certificate = new X509Certificate(certPem)
    if (!certificate.checkPrivateKey(createPrivateKey(keyPem))) {
      throw new Error('the CA certificate of the cluster does not match its key')
    }
    return new ClusterAuthority(
      new x509.X509Certificate(certPem),
      certPem,
      await readSigningKeys(keyPem),
    )
  }

  /**
   * Issues a certificate for a node, in PEM. From the PKCS#10 request (PEM), only the key is used, whose
   * possession it proves. Throws a TypeError if the proof fails.
   */
  async issue(nodeId: string, request: string, now: number): Promise<string> {
    const publicKey = await keyOf(request)
    const certificate = await x509.X509CertificateGenerator.create({
      ...validity(now, NODE_LIFE_MS),
      subject: 'CN=device-agent node',
      issuer: this.#certificate.subject,
      signingKey: this.#keys.privateKey,
      publicKey,
      signingAlgorithm: ALGORITHM,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([
          x509.ExtendedKeyUsage.serverAuth,
          x509.ExtendedKeyUsage.clientAuth,
        ]),
        new x509.SubjectAlternativeNameExtension([{ type: 'url', value: nodeName(nodeId) }]),
        await x509.AuthorityKeyIdentifierExtension.create(this.#keys.publicKey),
      ],
    })
    return toPem(certificate)
  }
}

/** Makes a certificate request for a private key in PEM. The signer sets the name. */
export async function requestFor(keyPem: string): Promise<string> {
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: 'CN=device-agent node',
    keys: await readSigningKeys(keyPem),
    signingAlgorithm: ALGORITHM,
  })
  return `${request.toString('pem')}\n`
}

async function keyOf(requestPem: string): Promise<webcrypto.CryptoKey> {
  try {
    const request = new x509.Pkcs10CertificateRequest(requestPem)
    if (await request.verify()) return await request.publicKey.export(ALGORITHM, ['verify'])
  } catch (cause) {
    throw new TypeError('the certificate request is not valid', { cause })
  }
  throw new TypeError('the certificate request is not signed with its key')
}
