import { createPrivateKey, createPublicKey, randomBytes, webcrypto } from 'node:crypto'
import type * as x509 from '@peculiar/x509'
import type { PrivateKeyType } from '../records/private-key.ts'

const DAY_MS = 86_400_000
/** Clocks of devices and machines are late more often than not. */
const BACKDATED_MS = DAY_MS
export const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const RSA_ALGORITHM = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' } as const

/** A number of its own, and when it is good: from a day ago until `lifeMs` from now. */
export function validity(now: number, lifeMs: number) {
  // RFC 5280 section 4.1.2.2: a positive number; 127 bits.
  const serial = randomBytes(16)
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40
  return {
    serialNumber: serial.toString('hex'),
    notBefore: new Date(now - BACKDATED_MS),
    notAfter: new Date(now + lifeMs),
  }
}

export function toPem(certificate: x509.X509Certificate): string {
  return `${certificate.toString('pem')}\n`
}

/** What an authority signs with. Throws when the PEM is no private key of P-256. */
export async function readSigningKeys(keyPem: string): Promise<webcrypto.CryptoKeyPair> {
  const der = createPrivateKey(keyPem).export({ type: 'pkcs8', format: 'der' })
  const privateKey = await webcrypto.subtle.importKey('pkcs8', der, ALGORITHM, false, ['sign'])
  return { privateKey, publicKey: await readPublicKey(keyPem) }
}

/** The public half of a private key, PEM. */
export function readPublicKey(
  privateKeyPem: string,
  type?: PrivateKeyType,
): Promise<webcrypto.CryptoKey> {
  const der = createPublicKey(privateKeyPem).export({ type: 'spki', format: 'der' })
  const algorithm = type === 'rsa' ? RSA_ALGORITHM : ALGORITHM
  return webcrypto.subtle.importKey('spki', der, algorithm, true, ['verify'])
}
