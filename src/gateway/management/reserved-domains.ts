import { z } from 'zod'
import type { CertificateStatus } from '../domain-certificates.ts'
import type { DomainRegistrar } from '../domain-registrar.ts'
import type { ReservedDomain, ReservedDomainStore } from '../reserved-domain-store.ts'
import { ServiceError } from '../service-error.ts'
import { parseBody, texts } from './body.ts'
import type { DnsCheck, ExpectedRecord } from './dns-check.ts'
import type { Resource } from './resource.ts'
import { timestamp } from './timestamp.ts'

const IN_PROGRESS = 'Managed certificate provisioning in progress.'
/** The own CA issues for everybody, with this kind of key. */
const OWN_AUTHORITY = { authority: 'gateway', private_key_type: 'ecdsa' } as const

export const ReservedDomainCreate = z.strictObject({
  ...texts,
  domain: z.string().optional(),
  /** What `domain` was called first. */
  name: z.string().optional(),
  region: z.string().optional(),
})
export const ReservedDomainUpdate = z.strictObject({ ...texts, region: z.string().optional() })

export const ReservedDomainView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  created_at: z.string(),
  /** Left out while they are empty. */
  description: z.string().optional(),
  metadata: z.string().optional(),
  domain: z.string(),
  region: z.string(),
  cname_target: z.string(),
  http_endpoint_configuration: z.null(),
  https_endpoint_configuration: z.null(),
  certificate: z.null(),
  certificate_management_policy: z.strictObject({
    authority: z.string(),
    private_key_type: z.string(),
  }),
  certificate_management_status: z.strictObject({
    renews_at: z.string().nullable(),
    provisioning_job: z
      .strictObject({
        error_code: z.string().nullable(),
        msg: z.string(),
        started_at: z.string(),
        retries_at: z.string().nullable(),
      })
      .nullable(),
  }),
  acme_challenge_cname_target: z.string(),
})

export interface ReservedDomainsDeps {
  readonly domains: ReservedDomainStore
  readonly registrar: DomainRegistrar
  readonly certificateStatus: (domain: ReservedDomain) => CertificateStatus
  /** CNAME targets lie below it; its names have to lead to this gateway. */
  readonly cnameBase: string
  readonly dnsCheck: DnsCheck
}

/** Reserved domains (spec 2.4). */
export function reservedDomains({
  domains: store,
  registrar,
  certificateStatus,
  cnameBase,
  dnsCheck,
}: ReservedDomainsDeps): Resource<ReservedDomain> {
  const targetsOf = ({ dnsLabel }: ReservedDomain) => ({
    cname_target: `${dnsLabel}.cname.${cnameBase}`,
    acme_challenge_cname_target: `${dnsLabel}.acme.${cnameBase}`,
  })
  const view = (domain: ReservedDomain, baseUrl: string) =>
    ({
      id: domain.id,
      uri: `${baseUrl}/reserved_domains/${domain.id}`,
      created_at: timestamp(domain.createdAt),
      ...(domain.description && { description: domain.description }),
      ...(domain.metadata && { metadata: domain.metadata }),
      domain: domain.domain,
      region: domain.region,
      http_endpoint_configuration: null,
      https_endpoint_configuration: null,
      certificate: null,
      certificate_management_policy: OWN_AUTHORITY,
      certificate_management_status: viewStatus(certificateStatus(domain)),
      ...targetsOf(domain),
    }) satisfies z.infer<typeof ReservedDomainView>

  return {
    path: 'reserved_domains',
    collection: 'reserved_domains',
    prefix: 'rd',
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    create: (body, baseUrl) => {
      const { domain, name, ...request } = parseBody(ReservedDomainCreate, body)
      if (domain !== undefined && name !== undefined) {
        throw new ServiceError(449, 'Give either domain or name, not both.')
      }
      return view(registrar.reserve({ ...request, domain: domain ?? name ?? '' }), baseUrl)
    },
    update: (domain, body) => {
      const change = parseBody(ReservedDomainUpdate, body)
      if (Object.keys(change).length === 0) {
        throw new ServiceError(422, 'Give a description or metadata to change.')
      }
      return registrar.update(domain, change)
    },
    remove: (domain) => registrar.release(domain),
    actions: {
      check: (domain) => {
        const { cname_target, acme_challenge_cname_target } = targetsOf(domain)
        const records: ExpectedRecord[] = [
          { name: domain.domain, expected: cname_target },
          {
            name: `_acme-challenge.${domain.domain.replace(/^\*\./, '')}`,
            expected: acme_challenge_cname_target,
          },
        ]
        return dnsCheck.check(records)
      },
    },
  }
}

function viewStatus({ renewsAt, job }: CertificateStatus) {
  return {
    renews_at: renewsAt === undefined ? null : timestamp(renewsAt),
    provisioning_job: job
      ? {
          error_code: job.error === undefined ? null : 'ERR_GATEWAY_CERTIFICATE',
          msg: job.error ?? IN_PROGRESS,
          started_at: timestamp(job.startedAt),
          retries_at: job.retriesAt === undefined ? null : timestamp(job.retriesAt),
        }
      : null,
  }
}
