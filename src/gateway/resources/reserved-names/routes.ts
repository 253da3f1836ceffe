import { Resolver } from 'node:dns/promises'
import * as z from 'zod'
import type { Authority } from '../../access/authority.ts'
import type { NameOwners } from '../../access/name-rules.ts'
import type { CertificateStatus } from '../../certificates/server-certificate.ts'
import { challengeTarget, cnameTarget } from '../../records/domain-name.ts'
import { PRIVATE_KEY_TYPES } from '../../records/private-key.ts'
import type { ReservedAddr, ReservedAddrStore } from '../../records/reserved-addr-store.ts'
import {
  CERTIFICATE_AUTHORITIES,
  CHALLENGE_METHODS,
  isOnDemand,
  type ReservedDomain,
  type ReservedDomainStore,
} from '../../records/reserved-domain-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import type { TlsCertificateStore } from '../../records/tls-certificate-store.ts'
import { type Caller, ownerFor, sees, type Viewer } from '../common/caller.ts'
import { itemFields, requireChange, Timestamp, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import type { AddrRegistrar } from './addr-registrar.ts'
import type { DomainRegistrar, DomainSettings } from './domain-registrar.ts'

const ReservedAddrCreate = z.strictObject({
  ...texts,
  addr: z.string().optional().describe('host:port of this gateway; default: any free address'),
  region: z.string().optional(),
  owner_id: z.string().nullable().optional(),
})
const ReservedAddrUpdate = z.strictObject({
  ...texts,
  owner_id: z.string().nullable().optional(),
})

const ReservedAddrView = z.strictObject({
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
  addr: z.string(),
  region: z.string(),
  /** Bot user whose authtokens alone may bind it; omitted if it belongs to the gateway. */
  owner_id: z.string().optional(),
})

export interface ReservedAddrsDeps {
  readonly reservedAddrs: ReservedAddrStore
  readonly addrRegistrar: AddrRegistrar
}

/** TCP addresses that are kept for one account. */
export function reservedAddrs({
  reservedAddrs: store,
  addrRegistrar,
}: ReservedAddrsDeps): Resource<ReservedAddr> {
  const view = ({ ownerId, createdAt, ...addr }: ReservedAddr, baseUrl: string) =>
    ({
      ...addr,
      uri: `${baseUrl}/reserved_addrs/${addr.id}`,
      created_at: timestamp(createdAt),
      ...(ownerId !== null && { owner_id: ownerId }),
    }) satisfies z.infer<typeof ReservedAddrView>
  return {
    path: 'reserved_addrs',
    noun: 'ReservedAddr',
    about: 'TCP addresses reserved for an account.',
    collection: 'reserved_addrs',
    prefix: 'ra',
    schema: ReservedAddrView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ ReservedAddrCreate }, async (body, { baseUrl, caller }) => {
      const { owner_id, ...request } = body
      const ownerId = ownerFor(caller, owner_id)
      return view(await addrRegistrar.reserve({ ...request, ownerId }), baseUrl)
    }),
    update: withBody({ ReservedAddrUpdate }, (body, { item, caller }) => {
      requireChange(body, 422, 'description, metadata or owner_id')
      const { owner_id, ...change } = body
      const ownerId = owner_id === undefined ? undefined : ownerFor(caller, owner_id)
      return addrRegistrar.update(item, { ...change, ownerId })
    }),
    remove: (addr) => addrRegistrar.release(addr),
  }
}

const TIMEOUT_MS = 2_000
const TRIES = 2
/** Asked for in place of the star: only a wildcard record answers for it. */
const PROBE_LABEL = 'dns-check'

const DnsCheckView = z.strictObject({
  ok: z.boolean(),
  records: z.array(
    z.strictObject({
      type: z.literal('CNAME'),
      /** Name of the DNS record. */
      name: z.string(),
      expected: z.string(),
      found: z.array(z.string()),
      ok: z.boolean(),
      /** Why nothing was found: the resolver's code, such as `ENOTFOUND`. */
      error: z.string().nullable(),
    }),
  ),
})

/** A CNAME record that ought to be there. */
interface ExpectedRecord {
  readonly name: string
  readonly expected: string
  /** Target of earlier versions, which leads here, too. */
  readonly earlier?: string
}

/** Asks resolvers for CNAME records; `servers` are `address` or `address:port`. */
export class DnsCheck {
  readonly #servers: readonly string[]

  /** Without servers, the machine's own resolvers are asked. */
  constructor(servers: readonly string[] = []) {
    this.#servers = servers
  }

  async check(records: readonly ExpectedRecord[]): Promise<z.infer<typeof DnsCheckView>> {
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES })
    if (this.#servers.length > 0) resolver.setServers(this.#servers)
    const checked = await Promise.all(records.map((record) => checkRecord(resolver, record)))
    return { ok: checked.every(({ ok }) => ok), records: checked }
  }
}

async function checkRecord(resolver: Resolver, { name, expected, earlier }: ExpectedRecord) {
  const record = { type: 'CNAME' as const, name, expected }
  try {
    const answers = await resolver.resolveCname(name.replace(/^\*/, PROBE_LABEL))
    const found = answers.map(normalName)
    const good = [expected, ...(earlier === undefined ? [] : [earlier])].map(normalName)
    return { ...record, found, ok: found.some((target) => good.includes(target)), error: null }
  } catch (error) {
    const { code = 'EUNKNOWN' } = error as NodeJS.ErrnoException
    return { ...record, found: [], ok: false, error: code }
  }
}

/** DNS names compare without case, and with or without the dot of the root. */
function normalName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '')
}

/** Settings of a domain without a certificate policy. */
const UNMANAGED: DomainSettings = { authority: 'gateway', privateKeyType: 'ecdsa' }
const IN_PROGRESS = 'Managed certificate provisioning in progress.'

const policyFields = {
  authority: z.enum(CERTIFICATE_AUTHORITIES),
  private_key_type: z.enum(PRIVATE_KEY_TYPES),
  challenge: z
    .enum(CHALLENGE_METHODS)
    .describe(
      'How the ACME authority checks the domain. dns-01: by DNS, also for a wildcard. on-demand: by connections to the gateway, for each name that is reserved or online.',
    ),
}
const policyChange = {
  certificate_management_policy: z.strictObject(policyFields).partial().optional(),
  certificate_id: z
    .string()
    .nullable()
    .optional()
    .describe('Uploaded certificate of the domain, instead of a policy. null detaches it.'),
}

const ReservedDomainCreate = z.strictObject({
  ...texts,
  ...policyChange,
  domain: z.string().optional(),
  /** Earlier name of `domain`. */
  name: z.string().optional(),
  region: z.string().optional(),
  owner_id: z.string().nullable().optional(),
})
const ReservedDomainUpdate = z.strictObject({
  ...texts,
  ...policyChange,
  region: z.string().optional(),
  owner_id: z.string().nullable().optional(),
})

const ReservedDomainView = z.strictObject({
  ...itemFields,
  /** Left out while they are empty. */
  description: z.string().optional(),
  metadata: z.string().optional(),
  /** Bot user whose authtokens may bind it without a rule; omitted if it belongs to the gateway. */
  owner_id: z.string().optional(),
  domain: z.string(),
  region: z.string(),
  /**
   * Set if an older domain of another account overlaps, from before overlaps were refused. The older domain
   * serves the common names. Only keys that can see the older domain get its id and name.
   */
  overlap: z
    .strictObject({
      older_id: z.string().optional(),
      older_domain: z.string().optional(),
      msg: z.string(),
    })
    .optional(),
  /** Set if an account could not reserve this domain today. It works as before. */
  warning: z.strictObject({ msg: z.string() }).optional(),
  cname_target: z.string(),
  http_endpoint_configuration: z.null(),
  https_endpoint_configuration: z.null(),
  /** Uploaded certificate. */
  certificate: z.strictObject({ id: z.string(), uri: z.string() }).nullable(),
  /** `challenge` is omitted for certificates of the gateway's CA. */
  certificate_management_policy: z.strictObject(policyFields).partial({ challenge: true }),
  certificate_management_status: z.strictObject({
    renews_at: Timestamp.nullable(),
    /** Only for an uploaded certificate, which the gateway cannot renew. */
    ends_at: Timestamp.optional(),
    provisioning_job: z
      .strictObject({
        error_code: z.string().nullable(),
        msg: z.string(),
        started_at: Timestamp,
        retries_at: Timestamp.nullable(),
      })
      .nullable(),
  }),
  acme_challenge_cname_target: z.string(),
})

/** The certificates of reserved domains, as far as this resource needs to know them. */
export interface CertificatesOfDomains {
  statusOf(domain: ReservedDomain): CertificateStatus
  /** How many have failed; costs no read of the records. */
  readonly failed: number
  /** How many uploaded certificates expire soon or have expired. */
  readonly expiring: number
  /** Tries a failed issue again now. */
  retry(domain: ReservedDomain): void
}

export interface ReservedDomainsDeps {
  readonly domains: ReservedDomainStore
  readonly registrar: DomainRegistrar
  readonly authority: Authority
  readonly tlsCertificates: TlsCertificateStore
  readonly domainCertificates: CertificatesOfDomains
  /** CNAME targets lie below it; its names have to lead to this gateway. */
  readonly cnameBase: string
  /** CNAME target of all domains; unset: each has one of its own below the base, which leads nowhere. */
  readonly sharedCnameTarget?: string | undefined
  readonly dnsCheck: DnsCheck
}

/** Reserved domains (spec 2.4). */
export function reservedDomains(deps: ReservedDomainsDeps): Resource<ReservedDomain> {
  const { domains: store, registrar, domainCertificates } = deps
  const view = (domain: ReservedDomain, baseUrl: string, viewer?: Viewer) =>
    viewDomain(domain, baseUrl, viewer, deps)
  return {
    path: 'reserved_domains',
    noun: 'ReservedDomain',
    about: 'Host names for devices and cloud endpoints.',
    collection: 'reserved_domains',
    prefix: 'rd',
    schema: ReservedDomainView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ ReservedDomainCreate }, async (body, { baseUrl, caller }) => {
      const { domain, name, ...change } = body
      if (domain !== undefined && name !== undefined) {
        throw new ServiceError(449, 'Set either domain or name, not both.')
      }
      const asked = domain ?? name ?? ''
      if (asked === '') throw new ServiceError(407, 'The field domain is required.')
      const ownerId = ownerFor(caller, change.owner_id)
      checkVisible(change.certificate_id, caller, deps)
      const request = { ...settingsOf(change), region: change.region, ownerId, domain: asked }
      const reserved = await registrar.reserve(request, authorOf(caller))
      return view(reserved, baseUrl)
    }),
    update: withBody({ ReservedDomainUpdate }, (change, { item, caller }) => {
      requireChange(
        change,
        422,
        'description, metadata, owner_id, certificate_id or certificate_management_policy',
      )
      checkVisible(change.certificate_id, caller, deps)
      const { owner_id } = change
      const ownerId = owner_id === undefined ? undefined : ownerFor(caller, owner_id)
      return registrar.update(item, { ...settingsOf(change), ownerId }, authorOf(caller))
    }),
    remove: (domain) => registrar.release(domain),
    removals: {
      certificate: {
        summary: 'Detach the uploaded certificate',
        run: (domain) => registrar.update(domain, { certificateId: null }),
      },
      certificate_management_policy: {
        summary: 'Return to certificates of the local CA',
        run: (domain) =>
          registrar.update(domain, { ...UNMANAGED, certificateId: domain.certificateId }),
      },
    },
    actions: {
      check: {
        summary: 'Check the CNAME records of a domain',
        answer: { DnsCheck: DnsCheckView },
        run: async (_body, { item }) => {
          const result = await deps.dnsCheck.check(recordsOf(item, deps))
          // On demand, an address record is as good as the CNAME record.
          if (result.ok || isOnDemand(item)) domainCertificates.retry(item)
          return result
        },
      },
    },
  }
}

/** Without a viewer, an older domain of another account is not named. */
function viewDomain(
  domain: ReservedDomain,
  baseUrl: string,
  viewer: Viewer | undefined,
  deps: Targets & Pick<ReservedDomainsDeps, 'authority' | 'domainCertificates'>,
) {
  const view: z.infer<typeof ReservedDomainView> = {
    id: domain.id,
    uri: `${baseUrl}/reserved_domains/${domain.id}`,
    created_at: timestamp(domain.createdAt),
    ...(domain.description && { description: domain.description }),
    ...(domain.metadata && { metadata: domain.metadata }),
    ...(domain.ownerId !== null && { owner_id: domain.ownerId }),
    domain: domain.domain,
    region: domain.region,
    ...overlapOf(deps.authority.owners.olderOverlap(domain), viewer),
    ...warningOf(domain, deps.authority.owners),
    http_endpoint_configuration: null,
    https_endpoint_configuration: null,
    certificate:
      domain.certificateId === null
        ? null
        : {
            id: domain.certificateId,
            uri: `${baseUrl}/tls_certificates/${domain.certificateId}`,
          },
    certificate_management_policy: {
      authority: domain.authority,
      private_key_type: domain.privateKeyType,
      ...(domain.authority !== 'gateway' && { challenge: domain.challenge }),
    },
    certificate_management_status: viewStatus(deps.domainCertificates.statusOf(domain)),
    ...targetsOf(domain, deps),
  }
  return view
}

type Targets = Pick<ReservedDomainsDeps, 'cnameBase' | 'sharedCnameTarget'>

function targetsOf(domain: ReservedDomain, { cnameBase, sharedCnameTarget }: Targets) {
  return {
    cname_target: sharedCnameTarget ?? cnameTarget(domain, cnameBase),
    acme_challenge_cname_target: challengeTarget(domain, cnameBase),
  }
}

/** The CNAME records that a domain needs: one for visitors, and one for challenges by DNS. */
function recordsOf(domain: ReservedDomain, deps: Targets): ExpectedRecord[] {
  const { cname_target, acme_challenge_cname_target } = targetsOf(domain, deps)
  const challengeName = `_acme-challenge.${domain.domain.replace(/^\*\./, '')}`
  const earlier = cnameTarget(domain, deps.cnameBase)
  const record = { name: domain.domain, expected: cname_target, earlier }
  if (domain.authority === 'gateway' || isOnDemand(domain)) return [record]
  return [record, { name: challengeName, expected: acme_challenge_cname_target }]
}

/** Overlaps are for the gateway's owner to allow, and not for a key that is for one owner. */
const authorOf = ({ isOwnerOnly }: Caller) => ({ isGranting: !isOwnerOnly })

function overlapOf(older: ReservedDomain | undefined, viewer: Viewer | undefined) {
  if (!older) return {}
  if (!viewer || !sees(viewer, older.ownerId)) {
    const msg =
      "This domain overlaps with an older domain of another account, which serves the names that both cover. Ask the gateway's owner to let this domain serve them, or delete it."
    return { overlap: { msg } }
  }
  const msg = `${older.domain} is older and belongs to another account. It serves the names that both domains cover. To let this domain serve them, set its owner_id again with a key of the gateway's owner. Otherwise delete this domain.`
  return { overlap: { older_id: older.id, older_domain: older.domain, msg } }
}

function warningOf(domain: ReservedDomain, owners: Pick<NameOwners, 'refusedToday'>) {
  const msg = owners.refusedToday(domain)
  return msg === undefined ? {} : { warning: { msg } }
}

/** Throws ServiceError 215 for a certificate that the caller must not know. */
function checkVisible(
  id: string | null | undefined,
  caller: Caller,
  { tlsCertificates }: Pick<ReservedDomainsDeps, 'tlsCertificates'>,
): void {
  if (id === null || id === undefined) return
  const found = tlsCertificates.get(id)
  if (found && sees(caller, found.ownerId)) return
  throw new ServiceError(215, `The TLS certificate ${id} does not exist.`)
}

function settingsOf(change: z.infer<typeof ReservedDomainUpdate>): DomainSettings {
  const { description, metadata, certificate_id, certificate_management_policy: policy } = change
  if (policy && certificate_id) {
    throw new ServiceError(
      215,
      'Set either certificate_id or certificate_management_policy, not both.',
    )
  }
  return {
    description,
    metadata,
    authority: policy?.authority,
    privateKeyType: policy?.private_key_type,
    challenge: policy?.challenge,
    certificateId: certificate_id,
  }
}

function viewStatus({ renewsAt, endsAt, isUploaded, job }: CertificateStatus) {
  return {
    renews_at: renewsAt === undefined ? null : timestamp(renewsAt),
    ...(isUploaded && endsAt !== undefined && { ends_at: timestamp(endsAt) }),
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
