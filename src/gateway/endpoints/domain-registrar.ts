import { randomBytes } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import type { Database } from '../../store/database.ts'
import type { NameOwners, ReservationProblem } from '../access/name-rules.ts'
import type { AccountQuotas } from '../records/account-quotas.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import { checkDomain, type DomainCodes, isBelow, isInternal } from '../records/domain-name.ts'
import type { OwnedAddress } from '../records/endpoint-protocol.ts'
import type { PrivateKeyType } from '../records/private-key.ts'
import type {
  CertificateAuthorityName,
  ReservedDomain,
  ReservedDomainStore,
} from '../records/reserved-domain-store.ts'
import type { IdSource } from '../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../records/service-error.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

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
  /** What is online at other gateways of the site. */
  readonly elsewhere?: () => Iterable<OwnedAddress>
  readonly ids: IdSource
  readonly clock: Clock
  /** Whether there is an ACME authority to order certificates from. */
  readonly hasAcme: boolean
}

/** What may be chosen when a domain is reserved, and changed later. */
export interface DomainSettings {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
  readonly authority?: CertificateAuthorityName | undefined
  readonly privateKeyType?: PrivateKeyType | undefined
  /** The bot user that it is for; null for the gateway's owner. */
  readonly ownerId?: string | null | undefined
}

/** Who reserves a domain, or changes one. */
export interface DomainAuthor {
  /** The gateway's owner, who may let domains of several accounts overlap. */
  readonly isGranting: boolean
}

/** Reserves domains and gives them up. Every refusal is a ServiceError. */
export class DomainRegistrar {
  readonly #deps: DomainRegistrarDeps

  constructor(deps: DomainRegistrarDeps) {
    this.#deps = deps
  }

  /** A name that overlaps with those of other accounts is for the gateway's owner to give. */
  reserve(
    request: DomainSettings & { domain: string; region?: string | undefined },
    { isGranting } = GATEWAY_OWNER,
  ): Promise<ReservedDomain> {
    const { store, ids, clock } = this.#deps
    const { region = '', description = '', metadata = '' } = request
    const { authority = 'gateway', privateKeyType = 'ecdsa', ownerId = null } = request
    const domain = request.domain.toLowerCase()
    const reserved: ReservedDomain = {
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
      isGranted: isGranting,
    }
    return this.#change(reserved.id, () => {
      checkDomain(domain, RESERVE_CODES)
      if (isInternal(domain)) {
        throw new ServiceError(411, `The domain ${domain} is internal and cannot be reserved.`)
      }
      this.#checkOverlap(reserved)
      if (store.find(domain)) {
        throw new ServiceError(413, `The domain ${domain} is already reserved.`)
      }
      checkTexts({ description, metadata }, TEXT_CODES)
      this.#deps.botUsers.checkOwner(ownerId)
      this.#checkAuthority(authority)
      this.#deps.quotas.check(ownerId, 'domains')
      store.insert(reserved)
      // Names that were below a wider domain until now: whoever serves them has to stop first.
      if (ownerId !== null) this.#checkUnused(reserved, (ofWhom) => ofWhom === ownerId)
      return reserved
    })
  }

  /** With an owner in the change, the gateway's owner gives the domain to that account. */
  update(
    { id }: ReservedDomain,
    change: DomainSettings,
    { isGranting } = GATEWAY_OWNER,
  ): Promise<ReservedDomain> {
    const { store } = this.#deps
    return this.#change(id, () => {
      const domain = present(store.get(id))
      const { description = domain.description, metadata = domain.metadata } = change
      const { authority = domain.authority, privateKeyType = domain.privateKeyType } = change
      const { ownerId = domain.ownerId } = change
      checkTexts({ description, metadata }, TEXT_CODES)
      if (authority !== domain.authority) this.#checkAuthority(authority)
      if (ownerId !== domain.ownerId) {
        this.#deps.botUsers.checkOwner(ownerId)
        this.#deps.quotas.check(ownerId, 'domains')
        this.#checkUnused(domain, (ofWhom) => ofWhom === ownerId)
      }
      const isGranted = domain.isGranted || (isGranting && change.ownerId !== undefined)
      const settings = { description, metadata, authority, privateKeyType, ownerId, isGranted }
      const updated = { ...domain, ...settings }
      if (ownerId !== domain.ownerId) this.#checkOverlap(updated)
      store.replace(updated)
      return updated
    })
  }

  /** Gives a domain up; refused with 446 while an endpoint that needs it is online. */
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

  /** Throws ServiceError 446 while an endpoint needs the domain that may not stay without it. */
  #checkUnused({ id, domain }: ReservedDomain, mayStay: (ownerId: string | null) => boolean): void {
    const { registry, elsewhere } = this.#deps
    for (const { host, ownerId } of [...registry.all(), ...(elsewhere?.() ?? [])]) {
      const isBelowIt = host === domain || isBelow(host, domain)
      // A name that is reserved itself, or below another wildcard, does not need this one.
      if (isBelowIt && this.#deps.owners.reservationOf(host)?.id === id && !mayStay(ownerId)) {
        throw new ServiceError(446, `The domain ${domain} is in use: ${host} is online.`)
      }
    }
  }

  /** Throws ServiceError 850, 851 or 852 for a domain that only the gateway's owner may give. */
  #checkOverlap(reserved: ReservedDomain): void {
    const problem = this.#deps.owners.reservationProblem(reserved)
    if (problem === undefined) return
    const { code, reason } = REFUSALS[problem]
    throw new ServiceError(code, `The domain ${reserved.domain} ${reason}`)
  }

  #checkAuthority(authority: CertificateAuthorityName): void {
    if (authority === 'gateway' || this.#deps.hasAcme) return
    throw new ServiceError(
      215,
      `No ACME authority is configured. Set GATEWAY_ACME_DIRECTORY to use ${authority}.`,
    )
  }
}

/** Calls `listener` when a domain, its owner or its certificate policy has come, changed or gone. */
export function watchDomains(
  domains: ReservedDomainStore,
  listener: (domain: ReservedDomain) => void,
): void {
  domains.onChange(({ before, after }) => {
    const domain = after ?? before
    const isSame =
      before?.ownerId === after?.ownerId &&
      before?.authority === after?.authority &&
      before?.privateKeyType === after?.privateKeyType
    if (domain && !isSame) listener(domain)
  })
}
