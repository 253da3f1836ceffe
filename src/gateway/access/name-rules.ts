import { parse } from 'tldts'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Logger } from '../../base/logger.ts'
import { isBelow, isInternal, wildcardsAbove } from '../records/domain-name.ts'
import type { ReservedDomain, ReservedDomainStore } from '../records/reserved-domain-store.ts'

/** Maximum number of cached verdicts for hosts of visitors. */
const MAX_HOSTS = 4_096

/** Owners of names, by the rules of this file and the current reservations. */
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

  /**
   * Why an account could not reserve a stored domain today, and how to keep it. An overlap is no such reason:
   * see `olderOverlap`.
   */
  refusedToday(reserved: ReservedDomain): string | undefined {
    const problem = reservationProblem(reserved, [], this.#ownNames)
    if (problem === undefined) return undefined
    const [reason, effect] =
      problem === 'public-suffix'
        ? ['is a public suffix: names of many owners lie below it', 'It works as before']
        : [
            'overlaps with a name of the gateway itself',
            'Endpoints at names of the gateway are refused. Other names work as before',
          ]
    return `The domain ${reserved.domain} ${reason}. ${effect}, but an account can no longer reserve it. To confirm it, set its owner_id again with a key of the gateway's owner. Otherwise delete it.`
  }

  /** The older overlapping domain of another account, which serves the names that both domains cover. */
  olderOverlap(reserved: ReservedDomain): ReservedDomain | undefined {
    if (reserved.ownerId === null || reserved.isGranted) return undefined
    const related = this.#domains.related(reserved.domain)
    for (const [older, newer] of contradictions(related)) {
      if (newer.id === reserved.id) return older
    }
    return undefined
  }

  /** Whether an ACL rule allows an account no name of the reserved names that it is for. */
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

  /**
   * Whether a name at a place for many names is given already: it is the gateway's own, or has a reservation of
   * its own, at, above or below it. `other` is any other name at that place: domains above both do not count.
   */
  isGiven(name: string, other: string, isExpected: (reserved: ReservedDomain) => boolean): boolean {
    const own = this.#ownNames.map((it) => it.replace(/^\*\./, ''))
    const isOwn = (it: string) => isUnder(it, name) || (isUnder(name, it) && !isUnder(other, it))
    if (own.some(isOwn)) return true
    const shared = new Set(wildcardsAbove(other))
    return this.#domains
      .related(`*.${name}`)
      .some((reserved) => !shared.has(reserved.domain) && !isExpected(reserved))
  }

  /** See `mayAnswer`. Called for each request that a wildcard could answer. */
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

/** Maximum number of log entries of each kind. Beyond that, only the total is logged. */
export const MAX_LISTED = 20

/** Logs overlapping domains that were reserved before overlaps were refused, for the gateway's owner. */
export function tellOfOverlaps(domains: Pick<ReservedDomainStore, 'all'>, log: Logger): void {
  let count = 0
  for (const [older, newer] of contradictions(domains.all())) {
    count += 1
    if (count > MAX_LISTED) continue
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
  if (count > MAX_LISTED) log.warn({ count }, 'more domains overlap than are listed')
}

/** Logs domains of accounts that could not be reserved today, for the gateway's owner. */
export function tellOfRefusedDomains(
  domains: Pick<ReservedDomainStore, 'all'>,
  owners: Pick<NameOwners, 'refusedToday'>,
  log: Logger,
): void {
  let count = 0
  for (const domain of domains.all()) {
    const msg = owners.refusedToday(domain)
    if (msg === undefined) continue
    count += 1
    if (count <= MAX_LISTED) log.warn({ domain: domain.id, owner: domain.ownerId }, msg)
  }
  if (count > MAX_LISTED) log.warn({ count }, 'more domains need a confirmation than are listed')
}

/** Placeholder label for a name directly below another. */
const ANY_LABEL = 'any'

/**
 * Whether the public may register names below this name. True for `com`, `co.uk`, `github.io` and unlisted
 * top-level names. Also true if all names directly below it are public suffixes.
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

/** A reserved domain, as far as ownership of names depends on it. */
export interface Reservation {
  readonly domain: string
  readonly ownerId: Account
  /** Whether it was made by the gateway's owner, who may let domains of several accounts overlap. */
  readonly isGranted: boolean
  readonly createdAt: number
}

/** Finds the reservation of exactly this domain. */
export type FindReservation<R extends Reservation = Reservation> = (domain: string) => R | undefined

/** Why a domain cannot be reserved. */
export type ReservationProblem = 'gateway-name' | 'public-suffix' | 'overlap'

/** Why a name cannot be used. */
export type UseProblem =
  | 'gateway-name'
  | 'not-reserved'
  | 'wildcard-not-reserved'
  | 'wildcard-above'

/** The account that wants to use a name, and its grant. */
export interface NameUse {
  readonly ownerId: Account
  /** Whether the gateway's owner lets the account use this name of the owner's domains. */
  readonly isGranted: boolean
}

/**
 * Returns the reservation that a name belongs to: the most specific reservation that covers it. If two
 * overlapped before overlaps were refused, the older reservation wins, unless the gateway's owner has granted
 * the newer.
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

/** Whether the wider of two reservations keeps its names, because it is older. */
function isContested(narrow: Reservation, wide: Reservation): boolean {
  if (narrow.isGranted || narrow.ownerId === wide.ownerId) return false
  return narrow.ownerId !== null && wide.ownerId !== null && wide.createdAt < narrow.createdAt
}

/** Whether one of two domains covers the other. A wildcard and the name directly above it also overlap. */
export function overlaps(one: string, other: string): boolean {
  return one === other || covers(one, other) || covers(other, one)
}

function covers(wildcard: string, name: string): boolean {
  if (!wildcard.startsWith('*.')) return false
  return isBelow(name, wildcard) || name === wildcard.slice(2)
}

/**
 * Why an account cannot reserve a domain by itself; undefined if it can. `related`: the reservations that
 * overlap with the domain. Requests of the gateway's owner are always granted.
 */
export function reservationProblem(
  { domain, ownerId, isGranted }: Pick<Reservation, 'domain' | 'ownerId' | 'isGranted'>,
  related: Iterable<Reservation>,
  ownNames: readonly string[],
): ReservationProblem | undefined {
  if (isGranted || ownerId === null) return undefined
  if (isPublicSuffix(domain.replace(/^\*\./, ''))) return 'public-suffix'
  // Visitors would take names below the gateway's own names for the gateway.
  if (ownNames.some((own) => overlaps(own, domain) || isBelow(domain, `*.${own}`))) {
    return 'gateway-name'
  }
  return overlapping({ domain, ownerId, isGranted }, related) ? 'overlap' : undefined
}

/**
 * The first overlapping reservation of another account, unless the gateway's owner has allowed the overlap.
 */
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

/** Why an account cannot use a host for an endpoint; undefined if it can. */
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
 * Whether an ACL rule is for reserved names but allows the account no name. Then the account has no domain
 * there, and the rule is outside the domains of the gateway's owner. `related`: the reservations that overlap
 * with the rule's host.
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
 * Whether an ACL rule of the gateway's owner lets an account use a name of the owner's domains. A rule inside
 * such a domain does; `*` (no `ruleHost`) does for all domains. The gateway's own names need a rule for
 * exactly that name.
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
 * Whether a wildcard endpoint may answer for a host. A host with its own reservation, or below a more
 * specific wildcard, belongs to that account. This also holds while the host is offline.
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

/** Whether a name is another name, or below it. */
function isUnder(name: string, top: string): boolean {
  return name === top || isBelow(name, `*.${top}`)
}

function isOneOf(names: readonly string[], host: string): boolean {
  return names.some((name) => name === host || isBelow(host, name))
}

/**
 * Pairs of overlapping domains of different accounts that the gateway's owner has not allowed. Domains below
 * a domain of that owner were always made by that owner.
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
