import { X509Certificate } from 'node:crypto'
import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import type { Database } from '../../../store/database.ts'
import type { SecretSeal } from '../../access/secret-seal.ts'
import { certificateFields } from '../../certificates/certificate-fields.ts'
import {
  checkUpload,
  commonName,
  dnsNames,
  MAX_CERTIFICATE_PEM,
  MAX_KEY_PEM,
} from '../../certificates/uploaded-certificate.ts'
import { QUOTA_CODE } from '../../records/account-quotas.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../../records/service-error.ts'
import type { TlsCertificate, TlsCertificateStore } from '../../records/tls-certificate-store.ts'
import { ownerFor } from '../common/caller.ts'
import { itemFields, requireChange, Timestamp, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'

const MAX_OF_BOT_USER = 100
const MAX_OF_OWNER = 1_000
/** Code of the refusal to delete a certificate that domains use. */
const IN_USE = 853
const TEXT_CODES = [420, 421] as const

const TLSCertificateCreate = z.strictObject({
  ...texts,
  certificate_pem: z
    .string()
    .describe(`certificate and chain in PEM, at most ${MAX_CERTIFICATE_PEM} characters`),
  private_key_pem: z
    .string()
    .describe(`private key in PEM, not encrypted, at most ${MAX_KEY_PEM} characters`),
  owner_id: z.string().nullable().optional(),
})
const TLSCertificateUpdate = z.strictObject(texts)

const TLSCertificateView = z.strictObject({
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
  owner_id: z.string().optional(),
  certificate_pem: z.string(),
  subject_common_name: z.string(),
  subject_alternative_names: z.strictObject({
    dns_names: z.array(z.string()),
    ips: z.array(z.string()),
  }),
  /** Always null: authorities do not issue uploaded certificates for the gateway. */
  issued_at: z.null(),
  not_before: Timestamp,
  not_after: Timestamp,
  key_usages: z.array(z.string()),
  extended_key_usages: z.array(z.string()),
  private_key_type: z.enum(['rsa', 'ecdsa']),
  issuer_common_name: z.string(),
  serial_number: z.string(),
  subject_organization: z.string(),
  subject_organizational_unit: z.string(),
  subject_locality: z.string(),
  subject_province: z.string(),
  subject_country: z.string(),
})

export interface TlsCertificatesDeps {
  readonly database: Pick<Database, 'change'>
  readonly tlsCertificates: TlsCertificateStore
  readonly botUsers: BotUserStore
  readonly seal: SecretSeal
  readonly ids: IdSource
  readonly clock: Clock
}

/** Certificates that were uploaded for reserved domains. */
export function tlsCertificates({
  database,
  tlsCertificates: store,
  botUsers,
  seal,
  ids,
  clock,
}: TlsCertificatesDeps): Resource<TlsCertificate> {
  return {
    path: 'tls_certificates',
    noun: 'TLSCertificate',
    about: 'Certificates of your own for reserved domains. Private keys are never shown.',
    collection: 'tls_certificates',
    prefix: 'cert',
    schema: TLSCertificateView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: viewCertificate,
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ TLSCertificateCreate }, async (body, { baseUrl, caller }) => {
      const { description = '', metadata = '', certificate_pem, private_key_pem } = body
      const ownerId = ownerFor(caller, body.owner_id)
      checkTexts({ description, metadata }, TEXT_CODES)
      const now = clock.now()
      const { certPem, keyPem } = checkUpload(
        { certPem: certificate_pem, keyPem: private_key_pem },
        now,
      )
      const id = ids.next('cert')
      const created = await database.change(
        () => {
          botUsers.checkOwner(ownerId)
          checkCount(ownerId, store.countOf(ownerId))
          const sealedKey = seal.seal(keyPem, { certificateId: id })
          const texts = { description, metadata }
          const certificate = { id, ownerId, ...texts, certPem, sealedKey, createdAt: now }
          store.insert(certificate)
          return certificate
        },
        { concludes: id },
      )
      return viewCertificate(created, baseUrl)
    }),
    update: withBody({ TLSCertificateUpdate }, (change, { item }) => {
      requireChange(change, 422, 'description or metadata')
      return database.change(
        () => {
          const before = present(store.get(item.id))
          const { description = before.description, metadata = before.metadata } = change
          checkTexts({ description, metadata }, TEXT_CODES)
          const updated = { ...before, description, metadata }
          store.replace(updated)
          return updated
        },
        { concludes: item.id },
      )
    }),
    remove: async ({ id }) => {
      const remove = () => {
        const domains = store.domainsOf(id)
        if (domains.length > 0) throw inUse(domains)
        store.delete(id)
      }
      await database.change(remove, { concludes: id, mayUseReserve: true })
    },
  }
}

function checkCount(ownerId: string | null, count: number): void {
  const max = ownerId === null ? MAX_OF_OWNER : MAX_OF_BOT_USER
  if (count < max) return
  throw new ServiceError(
    QUOTA_CODE,
    `The account has ${count} TLS certificates; at most ${max} are allowed. Delete certificates that no domain uses.`,
  )
}

function inUse(domains: readonly string[]): ServiceError {
  const more = domains.length - 10
  const names = domains.slice(0, 10).join(', ') + (more > 0 ? ` and ${more} more` : '')
  return new ServiceError(
    IN_USE,
    `The certificate is in use by ${names}. Assign another certificate to these domains first, or detach it with DELETE /reserved_domains/{id}/certificate.`,
  )
}

function viewCertificate(
  { id, ownerId, description, metadata, certPem, createdAt }: TlsCertificate,
  baseUrl: string,
): z.infer<typeof TLSCertificateView> {
  const leaf = new X509Certificate(certPem)
  const { subject, keyUsages, extendedKeyUsages } = certificateFields(leaf)
  const ips = (leaf.subjectAltName ?? '').split(', ').flatMap((entry) => {
    return entry.startsWith('IP Address:') ? [entry.slice('IP Address:'.length)] : []
  })
  return {
    id,
    uri: `${baseUrl}/tls_certificates/${id}`,
    created_at: timestamp(createdAt),
    description,
    metadata,
    ...(ownerId !== null && { owner_id: ownerId }),
    certificate_pem: certPem,
    subject_common_name: subject('CN'),
    subject_alternative_names: { dns_names: dnsNames(leaf), ips },
    issued_at: null,
    not_before: timestamp(Date.parse(leaf.validFrom)),
    not_after: timestamp(Date.parse(leaf.validTo)),
    key_usages: [...keyUsages],
    extended_key_usages: [...extendedKeyUsages],
    private_key_type: leaf.publicKey.asymmetricKeyType === 'rsa' ? 'rsa' : 'ecdsa',
    issuer_common_name: commonName(leaf.issuer),
    serial_number: leaf.serialNumber.toLowerCase(),
    subject_organization: subject('O'),
    subject_organizational_unit: subject('OU'),
    subject_locality: subject('L'),
    subject_province: subject('ST'),
    subject_country: subject('C'),
  }
}
