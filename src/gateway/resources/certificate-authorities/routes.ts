import { X509Certificate } from 'node:crypto'
import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import type { Database } from '../../../store/database.ts'
import { certificateFields } from '../../certificates/certificate-fields.ts'
import { checkAuthority, MAX_CERTIFICATE_PEM } from '../../certificates/uploaded-certificate.ts'
import { QUOTA_CODE } from '../../records/account-quotas.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../../records/service-error.ts'
import { ownerFor } from '../common/caller.ts'
import { itemFields, requireChange, Timestamp, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import type {
  CertificateAuthority,
  CertificateAuthorityStore,
} from './certificate-authority-store.ts'

const MAX_OF_BOT_USER = 100
const MAX_OF_OWNER = 1_000
const TEXT_CODES = [215, 215] as const

const CertificateAuthorityCreate = z.strictObject({
  ...texts,
  ca_pem: z
    .string()
    .describe(`one CA certificate or more in PEM, at most ${MAX_CERTIFICATE_PEM} characters`),
  owner_id: z.string().nullable().optional(),
})
const CertificateAuthorityUpdate = z.strictObject(texts)

const CertificateAuthorityView = z.strictObject({
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
  owner_id: z.string().optional(),
  ca_pem: z.string(),
  subject_common_name: z.string().describe('of the first certificate, like all fields below'),
  not_before: Timestamp,
  not_after: Timestamp,
  key_usages: z.array(z.string()),
  extended_key_usages: z.array(z.string()),
})

export interface CertificateAuthoritiesDeps {
  readonly database: Pick<Database, 'change'>
  readonly certificateAuthorities: CertificateAuthorityStore
  readonly botUsers: BotUserStore
  readonly ids: IdSource
  readonly clock: Clock
}

/** CAs that policies trust for client certificates. */
export function certificateAuthorities({
  database,
  certificateAuthorities: store,
  botUsers,
  ids,
  clock,
}: CertificateAuthoritiesDeps): Resource<CertificateAuthority> {
  return {
    path: 'certificate_authorities',
    noun: 'CertificateAuthority',
    about: 'CAs of client certificates. Policies name them by id in terminate-tls.',
    collection: 'certificate_authorities',
    prefix: 'ca',
    schema: CertificateAuthorityView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: viewAuthority,
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ CertificateAuthorityCreate }, async (body, { baseUrl, caller }) => {
      const { description = '', metadata = '' } = body
      const ownerId = ownerFor(caller, body.owner_id)
      checkTexts({ description, metadata }, TEXT_CODES)
      const now = clock.now()
      const caPem = checkAuthority(body.ca_pem, now)
      const id = ids.next('ca')
      const authority = { id, ownerId, description, metadata, caPem, createdAt: now }
      const keep = () => {
        botUsers.checkOwner(ownerId)
        checkCount(ownerId, store.countOf(ownerId))
        store.insert(authority)
      }
      await database.change(keep, { concludes: id })
      return viewAuthority(authority, baseUrl)
    }),
    update: withBody({ CertificateAuthorityUpdate }, (change, { item: { id } }) => {
      requireChange(change, 215, 'description or metadata')
      const keep = () => {
        const before = present(store.get(id))
        const { description = before.description, metadata = before.metadata } = change
        checkTexts({ description, metadata }, TEXT_CODES)
        const updated = { ...before, description, metadata }
        store.replace(updated)
        return updated
      }
      return database.change(keep, { concludes: id })
    }),
    remove: async ({ id }) => {
      await database.change(() => store.delete(id), { concludes: id, mayUseReserve: true })
    },
  }
}

function checkCount(ownerId: string | null, count: number): void {
  const max = ownerId === null ? MAX_OF_OWNER : MAX_OF_BOT_USER
  if (count < max) return
  throw new ServiceError(
    QUOTA_CODE,
    `The account has ${count} certificate authorities; at most ${max} are allowed. Delete those that no policy uses.`,
  )
}

function viewAuthority(
  { id, ownerId, description, metadata, caPem, createdAt }: CertificateAuthority,
  baseUrl: string,
): z.infer<typeof CertificateAuthorityView> {
  // Node reads the first certificate.
  const certificate = new X509Certificate(caPem)
  const { subject, keyUsages, extendedKeyUsages } = certificateFields(certificate)
  return {
    id,
    uri: `${baseUrl}/certificate_authorities/${id}`,
    created_at: timestamp(createdAt),
    description,
    metadata,
    ...(ownerId !== null && { owner_id: ownerId }),
    ca_pem: caPem,
    subject_common_name: subject('CN'),
    not_before: timestamp(Date.parse(certificate.validFrom)),
    not_after: timestamp(Date.parse(certificate.validTo)),
    key_usages: [...keyUsages],
    extended_key_usages: [...extendedKeyUsages],
  }
}
