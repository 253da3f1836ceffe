import { randomBytes } from 'node:crypto'
import type { Clock } from '../../../base/clock.ts'
import { isThisMachine } from '../../../base/net/public-names.ts'
import type { Database } from '../../../store/database.ts'
import type { NameOwners, ReservationProblem } from '../../access/name-rules.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { AccountQuotas } from '../../records/account-quotas.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import { checkDomain, type DomainCodes, isBelow, isInternal } from '../../records/domain-name.ts'
import type { OwnedAddress } from '../../records/endpoint-protocol.ts'
import type { PrivateKeyType } from '../../records/private-key.ts'
import type {
  CertificateAuthorityName,
  ChallengeMethod,
  ReservedDomain,
  ReservedDomainStore,
} from '../../records/reserved-domain-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../../records/service-error.ts'
import type { TlsCertificateStore } from '../../records/tls-certificate-store.ts'

const RESERVE_CODES: DomainCodes = {
  'wildcard-place': 402,
  character: 406,
  'first-character': 407,
  'last-character': 408,
  'repeated-dot': 409,
  hyphens: 410,
  'top-level': 411,
  punycode: 429,
  underscore: 438,
  'not-qualified': 448,
  'label-length': 513,
  length: 514,
}
const REFUSALS: Readonly<Record<ReservationProblem, { code: number; reason: string }>> = {
  overlap: {
    code: 850,
    reason:
      "overlaps with a domain of another account. Reserve another one, or ask the gateway's owner to reserve it for you.",
  },
  'public-suffix': {
    code: 851,
    reason:
      "is a public suffix: names of many owners lie below it. Reserve a domain below it, or ask the gateway's owner.",
  },
  'gateway-name': {
    code: 852,
    reason:
      "overlaps with a name of the gateway itself. Reserve another one, or ask the gateway's owner.",
  },
}
const GATEWAY_OWNER: DomainAuthor = { isGranting: true }
const TEXT_CODES = [420, 421] as const

export interface DomainRegistrarDeps {
  readonly database: Pick<Database, 'change'>
  readonly store: ReservedDomainStore
  readonly owners: NameOwners
  readonly botUsers: BotUserStore
  readonly quotas: AccountQuotas
  readonly registry: EndpointRegistry
  /** Endpoints that are online at other nodes of the cluster. */
  readonly elsewhere?: () => Iterable<OwnedAddress>
  /** Uploaded certificates. */
  readonly tlsCertificates: TlsCertificateStore
  /** Throws a ServiceError if a certificate does not cover a domain now. */
  readonly checkCovers: (certPem: string, domain: string, now: number) => void
  readonly ids: IdSource
  readonly clock: Clock
  /** Ways to certificates of an ACME authority; empty without an authority. */
  readonly challenges: readonly ChallengeMethod[]
}

/** Settings of a domain that can be chosen at first and changed later. */
export interface DomainSettings {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
  readonly authority?: CertificateAuthorityName | undefined
  readonly privateKeyType?: PrivateKeyType | undefined
  readonly challenge?: ChallengeMethod | undefined
  /** Uploaded certificate; null detaches it. */
  readonly certificateId?: string | null | undefined
  /** Owning bot user; null: the gateway's owner. */
  readonly ownerId?: string | null | undefined
}

/** A domain to reserve. */
export interface DomainRequest extends DomainSettings {
  readonly domain: string
  readonly region?: string | undefined
}

/** The caller that reserves or changes a domain. */
export interface DomainAuthor {
  /** Whether the caller is the gateway's owner, who may let domains of several accounts overlap. */
  readonly isGranting: boolean
}

/** Reserves and releases domains. Every refusal is a ServiceError. */
export class DomainRegistrar {
  readonly #deps: DomainRegistrarDeps

  constructor(deps: DomainRegistrarDeps) {
    this.#deps = deps
  }

  /**
   * Reserves a domain. Only the gateway's owner may reserve a name that overlaps with names of other
   * accounts.
   */
  reserve(request: DomainRequest, author = GATEWAY_OWNER): Promise<ReservedDomain> {
    const reserved = this.#draft(request, author)
    return this.#change(reserved.id, () => this.#insert(reserved))
  }

  /** Like `reserve`, as a part of an open change. */
  reserveWithin(request: DomainRequest, author = GATEWAY_OWNER): ReservedDomain {
    return this.#insert(this.#draft(request, author))
  }

  /** Throws the ServiceError with which `reserve` would refuse a domain at this time. */
  checkReservation(request: DomainRequest, author = GATEWAY_OWNER): void {
    this.#check(this.#draft(request, author))
  }

  #draft(request: DomainRequest, { isGranting }: DomainAuthor): ReservedDomain {
    const { ids, clock } = this.#deps
    const { region = '', description = '', metadata = '' } = request
    const domain = request.domain.toLowerCase()
    const { challenge = this.#bestChallenge } = request
    // An uploaded certificate takes the place of an authority.
    const isUploaded = request.certificateId != null
    const { authority = isUploaded ? 'gateway' : this.#authorityFor(domain) } = request
    const { privateKeyType = 'ecdsa', ownerId = null, certificateId = null } = request
    return {
      id: ids.next('rd'),
      domain,
      ownerId,
      region,
      description,
      metadata,
      dnsLabel: randomBytes(10).toString('hex'),
      createdAt: clock.now(),
      authority,
      privateKeyType,
      challenge,
      certificateId,
      isGranted: isGranting,
    }
  }

  #insert(reserved: ReservedDomain): ReservedDomain {
    const { ownerId } = reserved
    this.#check(reserved)
    this.#deps.store.insert(reserved)
    // Covers names that belonged to a wider domain until now. Their endpoints must stop first.
    if (ownerId !== null) this.#checkUnused(reserved, (ofWhom) => ofWhom === ownerId)
    return reserved
  }

  #check(reserved: ReservedDomain): void {
    const { domain, ownerId } = reserved
    checkDomain(domain, RESERVE_CODES)
    if (isInternal(domain)) {
      throw new ServiceError(411, `The domain ${domain} is internal and cannot be reserved.`)
    }
    this.#checkOverlap(reserved)
    if (this.#deps.store.find(domain)) {
      throw new ServiceError(413, `The domain ${domain} is already reserved.`)
    }
    checkTexts(reserved, TEXT_CODES)
    this.#deps.botUsers.checkOwner(ownerId)
    this.#checkAuthority(reserved.authority, reserved.challenge)
    this.#checkCertificate(reserved)
    this.#deps.quotas.check(ownerId, 'domains')
  }

  /** A change of the owner, made by the gateway's owner, grants the domain to that account. */
  update(
    { id }: ReservedDomain,
    change: DomainSettings,
    { isGranting } = GATEWAY_OWNER,
  ): Promise<ReservedDomain> {
    const { store } = this.#deps
    return this.#change(id, () => {
      const domain = present(store.get(id))
      const { description = domain.description, metadata = domain.metadata } = change
      const { privateKeyType = domain.privateKeyType } = change
      const isPolicyChange = change.authority !== undefined || change.challenge !== undefined
      const keptId = isPolicyChange ? null : domain.certificateId
      const { certificateId = keptId } = change
      const { authority = certificateId === null ? domain.authority : 'gateway' } = change
      const { ownerId = domain.ownerId } = change
      const { challenge = this.#challengeFor(domain, authority) } = change
      checkTexts({ description, metadata }, TEXT_CODES)
      if (authority !== domain.authority || challenge !== domain.challenge) {
        this.#checkAuthority(authority, challenge)
      }
      if (ownerId !== domain.ownerId) {
        this.#deps.botUsers.checkOwner(ownerId)
        this.#deps.quotas.check(ownerId, 'domains')
        this.#checkUnused(domain, (ofWhom) => ofWhom === ownerId)
      }
      const isGranted = domain.isGranted || (isGranting && change.ownerId !== undefined)
      const policy = { authority, privateKeyType, challenge, certificateId }
      const updated = { ...domain, description, metadata, ...policy, ownerId, isGranted }
      if (ownerId !== domain.ownerId) this.#checkOverlap(updated)
      if (certificateId !== domain.certificateId) this.#checkCertificate(updated)
      store.replace(updated)
      return updated
    })
  }

  /** Releases a domain. Throws ServiceError 446 while an endpoint that needs it is online. */
  async release(reserved: ReservedDomain): Promise<void> {
    const { store, database } = this.#deps
    const release = () => {
      this.#checkUnused(reserved, () => false)
      store.delete(reserved.id)
    }
    await database.change(release, { concludes: reserved.id, mayUseReserve: true })
  }

  #change<T>(id: string, change: () => T): Promise<T> {
    return this.#deps.database.change(change, { concludes: id })
  }

  /** Throws ServiceError 446 while an endpoint depends on the domain and may not stay without it. */
  #checkUnused({ id, domain }: ReservedDomain, mayStay: (ownerId: string | null) => boolean): void {
    const { registry, elsewhere } = this.#deps
    for (const { host, ownerId } of [...registry.all(), ...(elsewhere?.() ?? [])]) {
      const isBelowIt = host === domain || isBelow(host, domain)
      // A name with its own reservation, or below another wildcard, does not need this domain.
      if (isBelowIt && this.#deps.owners.reservationOf(host)?.id === id && !mayStay(ownerId)) {
        throw new ServiceError(446, `The domain ${domain} is in use: ${host} is online.`)
      }
    }
  }

  /** Throws ServiceError 850, 851 or 852 for a domain that only the gateway's owner may grant. */
  #checkOverlap(reserved: ReservedDomain): void {
    const problem = this.#deps.owners.reservationProblem(reserved)
    if (problem === undefined) return
    const { code, reason } = REFUSALS[problem]
    throw new ServiceError(code, `The domain ${reserved.domain} ${reason}`)
  }

  /** Without a DNS server for challenges, an ACME authority is there for certificates on demand. */
  #authorityFor(domain: string): CertificateAuthorityName {
    const isOnDemand = this.#bestChallenge === 'on-demand'
    return isOnDemand && !isThisMachine(domain) ? 'letsencrypt' : 'gateway'
  }

  get #bestChallenge(): ChallengeMethod {
    return this.#deps.challenges[0] ?? 'dns-01'
  }

  /** A domain that changes to the authority without a choice gets a way that the gateway has. */
  #challengeFor(domain: ReservedDomain, authority: CertificateAuthorityName): ChallengeMethod {
    const { challenges } = this.#deps
    const isNew = authority !== 'gateway' && domain.authority === 'gateway'
    return isNew && !challenges.includes(domain.challenge) ? this.#bestChallenge : domain.challenge
  }

  /** Throws ServiceError 215 if the uploaded certificate of a domain does not exist or does not fit. */
  #checkCertificate({ certificateId, domain }: ReservedDomain): void {
    if (certificateId === null) return
    const { tlsCertificates, clock } = this.#deps
    const found = tlsCertificates.get(certificateId)
    if (!found) throw new ServiceError(215, `The TLS certificate ${certificateId} does not exist.`)
    this.#deps.checkCovers(found.certPem, domain, clock.now())
  }

  #checkAuthority(authority: CertificateAuthorityName, challenge: ChallengeMethod): void {
    const { challenges } = this.#deps
    if (authority === 'gateway' || challenges.includes(challenge)) return
    throw new ServiceError(
      215,
      challenges.length === 0
        ? `No ACME authority is configured. Set GATEWAY_ACME_DIRECTORY to use ${authority}.`
        : `The challenge ${challenge} requires GATEWAY_DNS_LISTEN. Set it, or use the challenge on-demand.`,
    )
  }
}

/** Calls `listener` when a domain is added or removed, or its owner or certificate policy changes. */
export function watchDomains(
  domains: ReservedDomainStore,
  listener: (domain: ReservedDomain) => void,
): void {
  domains.onChange(({ before, after }) => {
    const domain = after ?? before
    const isSame =
      before?.ownerId === after?.ownerId &&
      before?.authority === after?.authority &&
      before?.privateKeyType === after?.privateKeyType &&
      before?.challenge === after?.challenge &&
      before?.certificateId === after?.certificateId
    if (domain && !isSame) listener(domain)
  })
}
