import { createPrivateKey, type KeyObject, sign, verify, X509Certificate } from 'node:crypto'
import { rootCertificates } from 'node:tls'
import { ServiceError } from '../records/service-error.ts'
import { checkFields } from './certificate-fields.ts'
import { type IssuedCertificate, served } from './certificate-file.ts'

/** Characters of the PEM texts. Together they fit into the body of a request. */
export const MAX_CERTIFICATE_PEM = 40_000
export const MAX_KEY_PEM = 12_000
/** Certificates of a chain, and names of a certificate. */
const MAX_CHAIN = 10
const MAX_NAMES = 250
const RSA_BITS = { least: 2_048, most: 8_192 }
const CURVES: ReadonlySet<string> = new Set(['prime256v1', 'secp384r1', 'secp521r1'])
/** How far the clock of an authority may be ahead of this machine's clock. */
const CLOCK_SKEW_MS = 300_000
/** People replace uploaded certificates, so warnings start this early. */
const WARN_BEFORE_MS = 14 * 86_400_000
const BLOCK = /-----BEGIN ([A-Z0-9 ]{1,40})-----[^-]*-----END \1-----/g

/** Start of the warnings before an uploaded certificate expires. */
export const uploadWarnsAt = (endsAt: number): number => endsAt - WARN_BEFORE_MS

/**
 * Checks a certificate with its chain and key, and returns them as they are stored. Throws a ServiceError 215
 * with the fix.
 */
export function checkUpload(
  { certPem, keyPem }: IssuedCertificate,
  now: number,
): IssuedCertificate {
  const chain = readChain(certPem, 'certificate_pem')
  const [leaf, issuer] = chain
  if (!leaf) throw refused('certificate_pem contains no certificate.')
  const isSelfSigned = chain.length === 1 && leaf.checkIssued(leaf)
  if (leaf.ca && !isSelfSigned) {
    throw refused(
      'The first certificate in certificate_pem is of a CA. Put the certificate of the domain first, then the intermediate certificates.',
    )
  }
  for (const certificate of chain) checkPublicKey(certificate.publicKey, nameOf(certificate))
  for (const certificate of chain) checkDates(certificate, now)
  checkNames(leaf)
  checkFields(leaf, 'certificate_pem')
  checkOrder(chain)
  if (!issuer && !isSelfSigned) checkComplete(leaf)
  const key = readKey(keyPem)
  checkKey(leaf, key)
  const issued = {
    certPem: chain.map((it) => it.toString()).join(''),
    keyPem: key.export({ type: 'pkcs8', format: 'pem' }).toString(),
  }
  try {
    served(issued)
  } catch (error) {
    throw refused(`TLS refuses the certificate: ${oneLine(error)}.`)
  }
  return issued
}

/** Checks certificates of a CA, and returns them as they are stored. Throws a ServiceError 215 with the fix. */
export function checkAuthority(caPem: string, now: number): string {
  const certificates = readChain(caPem, 'ca_pem')
  const [first] = certificates
  if (first) checkFields(first, 'ca_pem')
  for (const certificate of certificates) {
    const name = nameOf(certificate)
    if (!certificate.ca) {
      throw refused(
        `The certificate ${name} in ca_pem is not of a CA: it needs basicConstraints CA:TRUE and, if it has key usages, keyCertSign. Use the certificate that signs the client certificates.`,
      )
    }
    if (certificate.publicKey.asymmetricKeyType !== 'ed25519') {
      checkPublicKey(certificate.publicKey, name)
    }
    checkDates(certificate, now)
  }
  return certificates.map((it) => it.toString()).join('')
}

/** Throws a ServiceError 215 if a certificate is expired, or does not cover a domain or wildcard. */
export function checkCovers(certPem: string, domain: string, now: number): void {
  const leaf = new X509Certificate(certPem)
  checkDates(leaf, now)
  const names = dnsNames(leaf)
  const parent = `*${domain.slice(domain.indexOf('.'))}`
  if (names.includes(domain) || (!domain.startsWith('*.') && names.includes(parent))) return
  throw refused(
    `The certificate does not cover ${domain}. Its names are ${listed(names)}. Use a certificate with the name ${domain}.`,
  )
}

/** DNS names of a certificate, lower case. */
export function dnsNames({ subjectAltName }: X509Certificate): string[] {
  return (subjectAltName ?? '')
    .split(', ')
    .flatMap((entry) => (entry.startsWith('DNS:') ? [entry.slice(4).toLowerCase()] : []))
}

/** Reads certificates in PEM. Throws a ServiceError 215 that names the field. */
export function readChain(pem: string, field: string): X509Certificate[] {
  if (pem.length > MAX_CERTIFICATE_PEM) {
    throw refused(
      `${field} has ${pem.length} characters; at most ${MAX_CERTIFICATE_PEM} are allowed.`,
    )
  }
  const blocks = [...pem.matchAll(BLOCK)]
  if (blocks.some(([, label = '']) => label.endsWith('PRIVATE KEY'))) {
    throw refused(`${field} contains a private key. Put only certificates into it.`)
  }
  const certificates = blocks.filter(([, label]) => label === 'CERTIFICATE')
  if (certificates.length === 0) {
    throw refused(
      `${field} contains no certificate in PEM. It must begin with -----BEGIN CERTIFICATE-----. Convert a DER file with: openssl x509 -inform der -in file.cer -out file.pem`,
    )
  }
  if (certificates.length > MAX_CHAIN) {
    throw refused(
      `${field} has ${certificates.length} certificates; at most ${MAX_CHAIN} are allowed. Remove those that are not part of the chain.`,
    )
  }
  return certificates.map(([block], index) => {
    try {
      return new X509Certificate(block)
    } catch {
      throw refused(`Certificate ${index + 1} in ${field} cannot be read. Copy the file again.`)
    }
  })
}

/** Throws a ServiceError 215 for an expired certificate, or one whose time has not come. */
export function checkDates(certificate: X509Certificate, now: number): void {
  const name = nameOf(certificate)
  if (Date.parse(certificate.validTo) <= now) {
    throw refused(`The certificate ${name} has expired on ${day(certificate.validTo)}. Renew it.`)
  }
  if (Date.parse(certificate.validFrom) > now + CLOCK_SKEW_MS) {
    throw refused(
      `The certificate ${name} is not valid before ${day(certificate.validFrom)}. Upload it then, or correct the clock of the gateway.`,
    )
  }
}

/** Throws a ServiceError 215 for a key that browsers refuse, or that costs too much. */
export function checkPublicKey(key: KeyObject, name: string): void {
  const { asymmetricKeyType: type = 'unknown', asymmetricKeyDetails: details = {} } = key
  const bits = details.modulusLength ?? 0
  const isGood =
    (type === 'rsa' && bits >= RSA_BITS.least && bits <= RSA_BITS.most) ||
    (type === 'ec' && CURVES.has(details.namedCurve ?? ''))
  if (isGood) return
  const what = [type, details.namedCurve ?? (bits > 0 ? `${bits} bits` : '')].join(' ').trim()
  throw refused(
    `The key of the certificate ${name} is ${what}. Use RSA with ${RSA_BITS.least} to ${RSA_BITS.most} bits, or EC with P-256, P-384 or P-521.`,
  )
}

function checkNames(leaf: X509Certificate): void {
  const { length } = dnsNames(leaf)
  if (length === 0) {
    throw refused(
      'The certificate has no DNS names (subjectAltName). Browsers ignore the common name. Issue it again with subjectAltName.',
    )
  }
  if (length > MAX_NAMES) {
    throw refused(`The certificate has ${length} DNS names; at most ${MAX_NAMES} are allowed.`)
  }
}

function checkOrder(chain: readonly X509Certificate[]): void {
  for (const [at, certificate] of chain.entries()) {
    const issuer = chain[at + 1]
    if (!issuer) return
    if (certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey)) continue
    throw refused(
      `The chain is not in order: ${nameOf(issuer)} did not issue ${nameOf(certificate)}. Put the certificate of the domain first. Each next certificate must be the issuer of the one before.`,
    )
  }
}

/** A public authority names the address of its certificate. Without it, clients may lack the intermediate. */
function checkComplete(leaf: X509Certificate): void {
  const url = /^CA Issuers - URI:(\S{1,200})$/m.exec(leaf.infoAccess ?? '')?.[1]
  if (url === undefined) return
  const isRoot = rootCertificates.some((pem) => leaf.checkIssued(new X509Certificate(pem)))
  if (isRoot) return
  throw refused(
    `The chain is incomplete: the certificate of the issuer ${commonName(leaf.issuer)} is missing. Add it behind the certificate. The authority offers it at ${url}`,
  )
}

function readKey(pem: string): KeyObject {
  if (pem.length > MAX_KEY_PEM) {
    throw refused(
      `private_key_pem has ${pem.length} characters; at most ${MAX_KEY_PEM} are allowed.`,
    )
  }
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED/m.test(pem)) {
    throw refused(
      'private_key_pem is encrypted. Decrypt it with: openssl pkey -in key.pem -out plain-key.pem',
    )
  }
  if (!/-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----/.test(pem)) {
    throw refused(
      'private_key_pem contains no private key in PEM. It must have a line -----BEGIN PRIVATE KEY-----.',
    )
  }
  try {
    return createPrivateKey(pem)
  } catch {
    throw refused('private_key_pem cannot be read. Copy the file again.')
  }
}

function checkKey(leaf: X509Certificate, key: KeyObject): void {
  const mismatch = refused(
    'private_key_pem does not match the certificate. Use the key that the certificate was requested with.',
  )
  if (!leaf.checkPrivateKey(key)) throw mismatch
  // The public half may match while the private half is damaged.
  const probe = Buffer.from('device-agent')
  try {
    if (verify('sha256', probe, leaf.publicKey, sign('sha256', probe, key))) return
  } catch {
    throw mismatch
  }
  throw mismatch
}

const refused = (text: string) => new ServiceError(215, text)
const oneLine = (error: unknown) => String((error as Error).message).replace(/\p{Cc}+/gu, ' ')
const day = (date: string) => new Date(date).toISOString().slice(0, 10)
const nameOf = (certificate: X509Certificate) =>
  dnsNames(certificate)[0] ?? commonName(certificate.subject)

/** Common name of a subject or issuer, else the first line. */
export function commonName(subject: string | undefined): string {
  const lines = (subject ?? '').split('\n')
  const line = lines.find((it) => it.startsWith('CN=')) ?? lines[0] ?? ''
  return line.slice(line.indexOf('=') + 1, line.indexOf('=') + 201).replace(/\p{Cc}+/gu, ' ')
}

function listed(names: readonly string[]): string {
  const more = names.length - 5
  return names.slice(0, 5).join(', ') + (more > 0 ? ` and ${more} more` : '')
}
