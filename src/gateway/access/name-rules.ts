import { parse } from 'tldts'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Logger } from '../../base/logger.ts'
import { isBelow, isInternal, wildcardsAbove } from '../records/domain-name.ts'
import type { ReservedDomain, ReservedDomainStore } from '../records/reserved-domain-store.ts'

/** Hosts of visitors whose reservations are kept at hand. */
const MAX_HOSTS = 4_096

/** Who owns which name here: the rules of `name-ts` for the reservations as they are. */
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
    return reservationOf(name, this.#find)
  }

  /** Why a reservation cannot be made, or given to its owner. */
  reservationProblem(reserved: ReservedDomain): ReservationProblem | undefined {
    const related = this.#domains.related(reserved.domain)
    return reservationProblem(reserved, related, this.#ownNames)
  }

  /** The older domain of another account that overlaps with this one, and serves where both cover a name. */
  olderOverlap(reserved: ReservedDomain): ReservedDomain | undefined {
    if (reserved.ownerId === null || reserved.isGranted) return undefined
    const related = this.#domains.related(reserved.domain)
    for (const [older, newer] of contradictions(related)) {
      if (newer.id === reserved.id) return older
    }
    return undefined
  }

  /** Whether an ACL rule gives an account none of the reserved names that it is for. */
  givesNothing(ruleHost: string, use: NameUse): boolean {
    const related = this.#domains.related(ruleHost)
    return givesNothing(ruleHost, use, this.#find, this.#ownNames, related)
  }

  useProblem(host: string, use: NameUse): UseProblem | undefined {
    return useProblem(host, use, this.#find, this.#ownNames)
  }

  isGrant(ruleHost: string | undefined, host: string): boolean {
    return isGrant(ruleHost, host, this.#find, this.#ownNames)
  }

  /** See `mayAnswer`; asked for each request that a wildcard is to answer. */
  mayAnswer(host: string, endpoint: { readonly host: string; readonly ownerId: Account }): boolean {
    if (endpoint.host === host) return true
    const { version } = this.#domains
    if (version !== this.#version) this.#verdicts = this.#noVerdicts()
    this.#version = version
    return this.#verdicts.get(JSON.stringify([host, endpoint.host, endpoint.ownerId]))
  }

  #noVerdicts(): BoundedCache<boolean> {
    return new BoundedCache((key) => {
      const [host, wildcard, ownerId] = JSON.parse(key)
      return mayAnswer(host, { host: wildcard, ownerId }, this.#find, this.#ownNames)
    }, MAX_HOSTS)
  }
}

/** Of each kind, as many are told one by one; of more, how many there are. */
export const MOST_TOLD = 20

/** Tells the gateway's owner of domains that overlapped before overlaps were refused. */
export function tellOfOverlaps(domains: Pick<ReservedDomainStore, 'all'>, log: Logger): void {
  let count = 0
  for (const [older, newer] of contradictions(domains.all())) {
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

/** Stands for any label in a question about what lies right below a name. */
const ANY_LABEL = 'any'

/**
 * True for a name below which anybody may register names: `com`, `co.uk`, `github.io`, a top-level name
 * that is on no list, and a name below which all names are such.
 */
function isPublicSuffix(name: string): boolean {
  return isSuffix(name) || isSuffix(`${ANY_LABEL}.${name}`)
}

function isSuffix(name: string): boolean {
  const { publicSuffix } = parse(name, { allowPrivateDomains: true, extractHostname: false })
  return publicSuffix === name
}

/** An account: a bot user, or null for the gateway's owner. */
export type Account = string | null

/** What a reserved domain says about names. */
export interface Reservation {
  readonly domain: string
  readonly ownerId: Account
  /** Made by the gateway's owner, who may let domains of several accounts overlap. */
  readonly isGranted: boolean
  readonly createdAt: number
}

/** The reservation of exactly this domain. */
export type FindReservation<R extends Reservation = Reservation> = (domain: string) => R | undefined

/** Why a domain cannot be reserved. */
export type ReservationProblem = 'gateway-name' | 'public-suffix' | 'overlap'

/** Why a name cannot be used. */
export type UseProblem =
  | 'gateway-name'
  | 'not-reserved'
  | 'wildcard-not-reserved'
  | 'wildcard-above'

/** What an account wants to use a name for. */
export interface NameUse {
  readonly ownerId: Account
  /** Whether the gateway's owner lets the account use this name of the owner's own domains. */
  readonly isGranted: boolean
}

/**
 * The reservation that a name belongs to: the most specific one that covers it. Of two that overlapped
 * before overlaps were refused, the older one, unless the gateway's owner has given the name away.
 */
export function reservationOf<R extends Reservation>(
  name: string,
  find: FindReservation<R>,
): R | undefined {
  let found: R | undefined
  for (const domain of [name, ...wildcardsAbove(name)]) {
    const wider = find(domain)
    if (wider && (!found || isContested(found, wider))) found = wider
  }
  return found
}

/** True when the wider of two reservations keeps its names, because it was there first. */
function isContested(narrow: Reservation, wide: Reservation): boolean {
  if (narrow.isGranted || narrow.ownerId === wide.ownerId) return false
  return narrow.ownerId !== null && wide.ownerId !== null && wide.createdAt < narrow.createdAt
}

/** True when one of two domains covers the other; a wildcard and the name above it count, too. */
export function overlaps(one: string, other: string): boolean {
  return one === other || covers(one, other) || covers(other, one)
}

function covers(wildcard: string, name: string): boolean {
  if (!wildcard.startsWith('*.')) return false
  return isBelow(name, wildcard) || name === wildcard.slice(2)
}

/**
 * Why an account cannot reserve a domain by itself; undefined when it can. `related` are the reservations
 * that overlap with the domain. Whatever the gateway's owner asks for is granted.
 */
export function reservationProblem(
  { domain, ownerId, isGranted }: Pick<Reservation, 'domain' | 'ownerId' | 'isGranted'>,
  related: Iterable<Reservation>,
  ownNames: readonly string[],
): ReservationProblem | undefined {
  if (isGranted || ownerId === null) return undefined
  if (isPublicSuffix(domain.replace(/^\*\./, ''))) return 'public-suffix'
  // Names below the gateway's own would look like the gateway's to visitors.
  if (ownNames.some((own) => overlaps(own, domain) || isBelow(domain, `*.${own}`))) {
    return 'gateway-name'
  }
  return overlapping({ domain, ownerId, isGranted }, related) ? 'overlap' : undefined
}

/** The first reservation of another account that overlaps with one, where the gateway's owner did not allow that. */
function overlapping<R extends Reservation>(
  { domain, ownerId, isGranted }: Pick<Reservation, 'domain' | 'ownerId' | 'isGranted'>,
  related: Iterable<R>,
): R | undefined {
  if (isGranted || ownerId === null) return undefined
  for (const other of related) {
    if (other.ownerId !== ownerId && overlaps(other.domain, domain)) return other
  }
  return undefined
}

/** Why an account cannot use a host for an endpoint; undefined when it can. */
export function useProblem(
  host: string,
  { ownerId, isGranted }: NameUse,
  find: FindReservation,
  ownNames: readonly string[],
): UseProblem | undefined {
  if (isInternal(host)) return undefined
  const covering = reservationOf(host, find)
  const isOwn = covering?.ownerId === ownerId
  const isWildcard = host.startsWith('*.')
  if (!covering || !(isOwn || (isGranted && covering.ownerId === null))) {
    return isWildcard ? 'wildcard-not-reserved' : 'not-reserved'
  }
  if (isWildcard && covering.domain !== host) return 'wildcard-above'
  if (ownerId === null || !isOneOf(ownNames, host)) return undefined
  const isGiven = isOwn ? covering.domain === host && covering.isGranted : isGranted
  return isGiven ? undefined : 'gateway-name'
}

/**
 * Whether an ACL rule is for reserved names, and gives an account none of them: it has no domain there, and
 * the rule does not lie in one of the gateway's owner. `related` are the reservations that overlap with the
 * rule's host.
 */
export function givesNothing(
  ruleHost: string,
  use: NameUse,
  find: FindReservation,
  ownNames: readonly string[],
  related: readonly Reservation[],
): boolean {
  const problem = useProblem(ruleHost, use, find, ownNames)
  if (problem === undefined || problem === 'wildcard-above') return false
  const others = related.filter(
    ({ domain }) => isBelow(domain, ruleHost) || covers(domain, ruleHost),
  )
  return others.length > 0 && others.every(({ ownerId }) => ownerId !== use.ownerId)
}

/**
 * Whether an ACL rule that the gateway's owner has set lets an account use a name of the owner's domains:
 * a rule that lies inside such a domain does, `*` (no `ruleHost`) for all of them. Only a rule for exactly
 * that name gives one of the gateway's own names.
 */
export function isGrant(
  ruleHost: string | undefined,
  host: string,
  find: FindReservation,
  ownNames: readonly string[],
): boolean {
  if (isOneOf(ownNames, host)) return ruleHost === host
  return ruleHost === undefined || reservationOf(ruleHost, find)?.ownerId === null
}

/**
 * Whether a wildcard endpoint may answer for a host: a host that is reserved by itself, or below a more
 * specific wildcard, is for the account of that reservation alone, also while nothing is online there.
 */
export function mayAnswer(
  host: string,
  endpoint: { readonly host: string; readonly ownerId: Account },
  find: FindReservation,
  ownNames: readonly string[],
): boolean {
  if (endpoint.host === host) return true
  if (endpoint.ownerId !== null && isOneOf(ownNames, host)) return false
  const covering = reservationOf(host, find)
  return !covering || covering.domain === endpoint.host || covering.ownerId === endpoint.ownerId
}

function isOneOf(names: readonly string[], host: string): boolean {
  return names.some((name) => name === host || isBelow(host, name))
}

/**
 * Pairs of domains of different accounts that overlap without the leave of the gateway's owner. What lies
 * below a domain of that owner was always made by that owner.
 */
export function* contradictions<R extends Reservation>(
  reservations: readonly R[],
): Generator<readonly [older: R, newer: R]> {
  const byDomain = new Map(reservations.map((one) => [one.domain, one]))
  for (const narrow of reservations) {
    const isWildcard = narrow.domain.startsWith('*.')
    const above = isWildcard ? [] : [`*.${narrow.domain}`]
    for (const domain of [...wildcardsAbove(narrow.domain), ...above]) {
      const wide = byDomain.get(domain)
      if (!wide) continue
      const isGiven = wide.ownerId === null && isBelow(narrow.domain, wide.domain)
      const [older, newer] = narrow.createdAt < wide.createdAt ? [narrow, wide] : [wide, narrow]
      if (!isGiven && overlapping(newer, [older])) yield [older, newer]
    }
  }
}
