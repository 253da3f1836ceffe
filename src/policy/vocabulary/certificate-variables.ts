import type { X509Certificate } from 'node:crypto'
import type { SessionCertificate } from '../exchange/policy-exchange.ts'
import { timestamp, type ValueInput } from '../expression/value.ts'

interface CertificateVariable {
  readonly type: string
  /** Undefined when the certificate does not tell. */
  readonly read: (certificate: SessionCertificate) => ValueInput | undefined
}

const NAME_LISTS: Readonly<Record<string, string>> = {
  country: 'C',
  locality: 'L',
  organization: 'O',
  organizational_unit: 'OU',
  postal_code: 'postalCode',
  province: 'ST',
  street_address: 'street',
}

const SAN_LISTS: Readonly<Record<string, string>> = {
  dns_names: 'DNS',
  email_addresses: 'email',
  ip_addresses: 'IP Address',
  uris: 'URI',
}

/** What expressions can read of a certificate, under `conn.tls.client` and `conn.tls.server`. */
export const CERTIFICATE_VARIABLES: Readonly<Record<string, CertificateVariable>> = {
  signature_algorithm: { type: 'string', read: ({ signatureAlgorithm }) => signatureAlgorithm },
  extensions: { type: 'list(extension)', read: ({ extensions }) => extensions },
  serial_number: text(({ serialNumber }) => serialNumber.toLowerCase()),
  ...distinguishedName('subject'),
  ...distinguishedName('issuer'),
  san: text(({ subjectAltName }) => subjectAltName ?? ''),
  ...Object.fromEntries(
    Object.entries(SAN_LISTS).map(([name, kind]) => [
      `san.${name}`,
      list(({ subjectAltName }) => alternativeNames(subjectAltName ?? '', kind)),
    ]),
  ),
  'validity.not_before': time(({ validFrom }) => validFrom),
  'validity.not_after': time(({ validTo }) => validTo),
}

function text(read: (certificate: X509Certificate) => string): CertificateVariable {
  return { type: 'string', read: ({ x509 }) => read(x509) }
}

function list(read: (certificate: X509Certificate) => string[]): CertificateVariable {
  return { type: 'list(string)', read: ({ x509 }) => read(x509) }
}

function time(read: (certificate: X509Certificate) => string): CertificateVariable {
  return { type: 'timestamp', read: ({ x509 }) => timestamp(Date.parse(read(x509))) }
}

function distinguishedName(part: 'subject' | 'issuer'): Record<string, CertificateVariable> {
  const field = (kind: string) => (certificate: X509Certificate) =>
    linesOf(certificate[part])
      .filter((line) => line.startsWith(`${kind}=`))
      .map((line) => line.slice(kind.length + 1).replace(/\\(.)/g, '$1'))
  return {
    // RFC 2253 2.1 writes the last part of the sequence first.
    [part]: text((certificate) => linesOf(certificate[part]).reverse().join(',')),
    [`${part}.common_name`]: text((certificate) => field('CN')(certificate).at(-1) ?? ''),
    ...Object.fromEntries(
      Object.entries(NAME_LISTS).map(([name, kind]) => [`${part}.${name}`, list(field(kind))]),
    ),
  }
}

/** Node writes a name as one `KIND=value` per line, escaped as in RFC 2253. */
function linesOf(name: string | undefined): string[] {
  return name === undefined || name === '' ? [] : name.split('\n')
}

/** Node writes `DNS:a.example, URI:"with a comma"`; what needs quotes is quoted as JSON. */
function alternativeNames(names: string, kind: string): string[] {
  const found = names.matchAll(/(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,]*)/g)
  return Array.from(found)
    .filter((match) => match[1] === kind)
    .map(([, , value = '']) => (value.startsWith('"') ? JSON.parse(value) : value))
}
