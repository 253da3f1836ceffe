import {
  createHash,
  createPrivateKey,
  createPublicKey,
  randomBytes,
  webcrypto,
  X509Certificate,
} from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
// The X.509 library requires this import first.
import 'reflect-metadata'
import * as x509 from '@peculiar/x509'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { writeFileDurably } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import { createPrivateKeyPem, type PrivateKeyType } from '../records/private-key.ts'
import type { CertificateSource, IssuedCertificate } from './certificate-file.ts'

const DAY_MS = 86_400_000
/** Clocks of devices and machines are slow more often than fast. */
const BACKDATED_MS = DAY_MS
export const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const RSA_ALGORITHM = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' } as const

/** Returns a unique serial number and a validity from one day ago until `lifeMs` from now. */
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

/** Returns the signing keys of an authority. Throws if the PEM is not a P-256 private key. */
export async function readSigningKeys(keyPem: string): Promise<webcrypto.CryptoKeyPair> {
  const der = createPrivateKey(keyPem).export({ type: 'pkcs8', format: 'der' })
  const privateKey = await webcrypto.subtle.importKey('pkcs8', der, ALGORITHM, false, ['sign'])
  return { privateKey, publicKey: await readPublicKey(keyPem) }
}

/** The public half of a private key, PEM. */
function readPublicKey(privateKeyPem: string, type?: PrivateKeyType): Promise<webcrypto.CryptoKey> {
  const der = createPublicKey(privateKeyPem).export({ type: 'spki', format: 'der' })
  const algorithm = type === 'rsa' ? RSA_ALGORITHM : ALGORITHM
  return webcrypto.subtle.importKey('spki', der, algorithm, true, ['verify'])
}

/** Lifetime of the CA certificate: 10 years. */
const CA_LIFE_MS = 3_650 * DAY_MS
/** Devices keep a CA certificate that was made while the clock of the gateway was ahead by up to this time. */
const CA_BACKDATED_MS = CA_LIFE_MS
/** Lifetime of every certificate that the authority issues. */
const LEAF_LIFE_MS = 90 * DAY_MS

export interface CertificateAuthorityOptions {
  /** Directory of `ca.key` and `ca.pem`, which are created if both are missing. */
  readonly folder: string
  readonly clock: Clock
  readonly log: Logger
}

/** The gateway's own CA. Devices and clients must trust it. Issuing needs no network. */
export class CertificateAuthority implements CertificateSource {
  readonly certPath: string
  readonly #keys: webcrypto.CryptoKeyPair
  readonly #clock: Clock
  readonly #log: Logger
  #certificate: x509.X509Certificate

  private constructor(
    certificate: x509.X509Certificate,
    certPath: string,
    keys: webcrypto.CryptoKeyPair,
    { clock, log }: CertificateAuthorityOptions,
  ) {
    this.certPath = certPath
    this.#certificate = certificate
    this.#keys = keys
    this.#clock = clock
    this.#log = log
  }

  /** Throws a StartError if `ca.key` is missing: a new key would lock out every device. */
  static async open(options: CertificateAuthorityOptions): Promise<CertificateAuthority> {
    const { folder, clock } = options
    const keyPath = join(folder, 'ca.key')
    const certPath = join(folder, 'ca.pem')
    if (!existsSync(keyPath)) {
      if (existsSync(certPath)) {
        throw new StartError(
          `${keyPath} is missing. Restore it from a backup, or delete ${certPath} too and give every device the new CA certificate.`,
        )
      }
      // Writes the key first: the certificate can be recreated from it.
      writeFileDurably(keyPath, await createPrivateKeyPem())
    }
    const keys = await readCaKeys(keyPath)
    const kept = readCaCertificate(certPath)
    const certificate = kept ?? (await createCaCertificate(keys, clock.now()))
    if (!kept) writeFileDurably(certPath, toPem(certificate))
    const authority = new CertificateAuthority(certificate, certPath, keys, options)
    await authority.refresh()
    return authority
  }

  /** The CA certificate, PEM. */
  get certPem(): string {
    return toPem(this.#certificate)
  }

  /**
   * Renews the certificate before it expires, or if it was made with a wrong clock. The key and name stay the
   * same. So clients with an earlier certificate trust new certificates until the earlier certificate
   * expires. A failed write is logged and retried with the next call.
   */
  async refresh(): Promise<void> {
    const { certPath } = this
    const now = this.#clock.now()
    if (isGoodFor(this.#certificate, now)) return
    const { notBefore } = this.#certificate
    const begin = notBefore.getTime() > now ? notBefore.toISOString() : undefined
    const renewed = await createCaCertificate(this.#keys, now, this.#certificate)
    try {
      writeFileDurably(certPath, toPem(renewed))
      this.#certificate = renewed
      this.#log.warn(
        { certPath, ...(begin && { began: begin }) },
        begin
          ? 'ca certificate began in the future, renewed: the clock was ahead when it was made, or is behind now. Check the clock, then copy the new file to the devices'
          : 'ca certificate renewed: copy the new file to the devices',
      )
    } catch (error) {
      this.#log.error({ err: error }, 'ca certificate not renewed, will retry')
    }
  }

  /** Issues a server certificate with a new key for host names, wildcards and IP addresses. */
  async issue(names: readonly string[], keyType?: PrivateKeyType): Promise<IssuedCertificate> {
    const keyPem = await createPrivateKeyPem(keyType)
    const now = this.#clock.now()
    const publicKey = await readPublicKey(keyPem, keyType)
    const certificate = await x509.X509CertificateGenerator.create({
      ...validity(now, LEAF_LIFE_MS),
      // Clients only read the alternative names. A common name is limited to 64 characters.
      subject: 'CN=device-agent gateway',
      issuer: this.#certificate.subject,
      signingKey: this.#keys.privateKey,
      publicKey,
      signingAlgorithm: ALGORITHM,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
        new x509.SubjectAlternativeNameExtension(
          names.map((value) => ({ type: isIP(value) ? 'ip' : 'dns', value })),
        ),
        await x509.AuthorityKeyIdentifierExtension.create(this.#keys.publicKey),
        await x509.SubjectKeyIdentifierExtension.create(publicKey),
      ],
    })
    return { certPem: toPem(certificate), keyPem }
  }

  hasIssued(certificate: X509Certificate): boolean {
    return certificate.verify(new X509Certificate(this.certPem).publicKey)
  }
}

async function createCaCertificate(
  keys: webcrypto.CryptoKeyPair,
  now: number,
  earlier?: x509.X509Certificate,
): Promise<x509.X509Certificate> {
  const { serialNumber, notAfter } = validity(now, CA_LIFE_MS)
  const notBefore = new Date(now - CA_BACKDATED_MS)
  return x509.X509CertificateGenerator.createSelfSigned({
    serialNumber,
    // Either clock may have been wrong, so the certificate is valid for the times of both.
    notBefore: earlier && earlier.notBefore < notBefore ? earlier.notBefore : notBefore,
    notAfter: earlier && earlier.notAfter > notAfter ? earlier.notAfter : notAfter,
    name: earlier?.subject ?? (await caName(keys)),
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(
        x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign,
        true,
      ),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  })
}

/** The digits distinguish the gateways in a trust store. They depend only on the key. */
async function caName({ publicKey }: webcrypto.CryptoKeyPair): Promise<string> {
  const spki = await webcrypto.subtle.exportKey('spki', publicKey)
  const digits = createHash('sha256').update(Buffer.from(spki)).digest('hex').slice(0, 8)
  return `CN=device-agent gateway CA ${digits}`
}

/** Returns false if it expires before a leaf issued now, or begins in the future. */
function isGoodFor({ notBefore, notAfter }: x509.X509Certificate, now: number): boolean {
  return notBefore.getTime() <= now && notAfter.getTime() > now + LEAF_LIFE_MS
}

/** Undefined if the file is missing or damaged. The certificate is then recreated from the key. */
function readCaCertificate(path: string): x509.X509Certificate | undefined {
  if (!existsSync(path)) return undefined
  const pem = readFileSync(path, 'utf8')
  try {
    return new x509.X509Certificate(pem)
  } catch {
    return undefined
  }
}

async function readCaKeys(path: string): Promise<webcrypto.CryptoKeyPair> {
  try {
    return await readSigningKeys(readFileSync(path, 'utf8'))
  } catch (error) {
    throw new StartError(`${path} is not an EC private key. Restore it from a backup.`, {
      cause: error,
    })
  }
}
