import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Logger } from '../../base/logger.ts'
import type { ReservedDomain, ReservedDomainStore } from '../records/reserved-domain-store.ts'
import * as rules from './name-rules.ts'

/** Hosts of visitors whose reservations are kept at hand. */
const MAX_HOSTS = 4_096

/** Who owns which name here: the rules of `name-rules.ts` for the reservations as they are. */
export class NameOwners {
  readonly #domains: Pick<ReservedDomainStore, 'find' | 'related' | 'version'>
  /** Names and wildcards of the gateway itself. */
  readonly #ownNames: readonly string[]
  #version = -1
  #verdicts = this.#noVerdicts()

  constructor(domains: ReservedDomainStore, ownNames: readonly string[] = []) {
    this.#domains = domains
    this.#ownNames = ownNames
  }

  readonly #find = (domain: string): ReservedDomain | undefined => this.#domains.find(domain)

  /** The reservation that a name belongs to. */
  reservationOf(name: string): ReservedDomain | undefined {
    return rules.reservationOf(name, this.#find)
  }

  /** Why a reservation cannot be made, or given to its owner. */
  reservationProblem(reserved: ReservedDomain): rules.ReservationProblem | undefined {
    const related = this.#domains.related(reserved.domain)
    return rules.reservationProblem(reserved, related, this.#ownNames)
  }

  /** The older domain of another account that overlaps with this one, and serves where both cover a name. */
  olderOverlap(reserved: ReservedDomain): ReservedDomain | undefined {
    if (reserved.ownerId === null || reserved.isGranted) return undefined
    const related = this.#domains.related(reserved.domain)
    for (const [older, newer] of rules.contradictions(related)) {
      if (newer.id === reserved.id) return older
    }
    return undefined
  }

  /** Whether an ACL rule gives an account none of the reserved names that it is for. */
  givesNothing(ruleHost: string, use: rules.NameUse): boolean {
    const related = this.#domains.related(ruleHost)
    return rules.givesNothing(ruleHost, use, this.#find, this.#ownNames, related)
  }

  useProblem(host: string, use: rules.NameUse): rules.UseProblem | undefined {
    return rules.useProblem(host, use, this.#find, this.#ownNames)
  }

  isGrant(ruleHost: string | undefined, host: string): boolean {
    return rules.isGrant(ruleHost, host, this.#find, this.#ownNames)
  }

  /** See `mayAnswer`; asked for each request that a wildcard is to answer. */
  mayAnswer(
    host: string,
    endpoint: { readonly host: string; readonly ownerId: rules.Account },
  ): boolean {
    if (endpoint.host === host) return true
    const { version } = this.#domains
    if (version !== this.#version) this.#verdicts = this.#noVerdicts()
    this.#version = version
    return this.#verdicts.get(JSON.stringify([host, endpoint.host, endpoint.ownerId]))
  }

  #noVerdicts(): BoundedCache<boolean> {
    return new BoundedCache((key) => {
      const [host, wildcard, ownerId] = JSON.parse(key)
      return rules.mayAnswer(host, { host: wildcard, ownerId }, this.#find, this.#ownNames)
    }, MAX_HOSTS)
  }
}

/** Of each kind, as many are told one by one; of more, how many there are. */
export const MOST_TOLD = 20

/** Tells the gateway's owner of domains that overlapped before overlaps were refused. */
export function tellOfOverlaps(domains: Pick<ReservedDomainStore, 'all'>, log: Logger): void {
  let count = 0
  for (const [older, newer] of rules.contradictions(domains.all())) {
    count += 1
    if (count > MOST_TOLD) continue
    log.warn(
      {
        older: older.domain,
        owner: older.ownerId,
        newer: newer.domain,
        newer_owner: newer.ownerId,
      },
      'two accounts have domains that overlap: the older one serves; to let the newer one serve its names, set its owner_id again with a key of the gateway’s owner, or delete it',
    )
  }
  if (count > MOST_TOLD) log.warn({ count }, 'more domains overlap than are listed')
}
