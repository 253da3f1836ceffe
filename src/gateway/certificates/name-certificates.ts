import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { isOnDemand, type ReservedDomain } from '../records/reserved-domain-store.ts'
import type { AcmeAuthority } from './acme/acme-authority.ts'
import type { EarlierCertificate } from './acme/earlier-certificate.ts'
import type { OrderGates } from './acme/order-gate.ts'
import type { ServedCertificate } from './certificate-file.ts'
import type { CertificateJob, CertificateStatus, ManagedCertificate } from './server-certificate.ts'

/** Maximum number of names with certificates of their own, because devices choose the names. */
export const MAX_NAMES = 1_000
/** The same for one bot user. The gateway's owner has no share. */
export const MAX_NAMES_OF_BOT_USER = MAX_NAMES / 4

/** Maximum number of names that are remembered to have no earlier certificate. */
const MAX_REMEMBERED = 10 * MAX_NAMES

/** Delay before room is searched again for an account without room. */
const REFUSED_MS = 60_000

/** An account that has brought exactly this name online, at any gateway. */
export type HolderOf = (host: string) => { readonly ownerId: string | null } | undefined

export interface NameCertificatesOptions {
  readonly folder: string
  readonly acme: AcmeAuthority
  readonly gates: OrderGates
  readonly holderOf: HolderOf
  /** The reservation that a name belongs to. */
  readonly reservationOf: (host: string) => ReservedDomain | undefined
  /** The reserved wildcard closest above a host. */
  readonly wildcardAbove: (host: string) => ReservedDomain | undefined
  /** Whether a valid certificate for a wildcard covers the name. */
  readonly isCovered: (host: string) => boolean
  readonly clock: Clock
  readonly log: Logger
}

/** Bot user; null for the gateway's owner. */
type Account = string | null

interface Entry {
  /** The wildcard above the name. */
  readonly reserved: ReservedDomain
  readonly account: Account
  /** Undefined if no certificate of the name is ordered under the current policy. */
  readonly certificate: ManagedCertificate | undefined
  /** Certificate of the name under an earlier policy. */
  readonly earlier: EarlierCertificate
}

/** The last name of an account that got no place. */
interface Refusal {
  readonly host: string
  readonly reserved: ReservedDomain
  /** Monotonic. */
  readonly at: number
  readonly job: CertificateJob
}

/**
 * Certificates on demand for names that are online below a reserved wildcard. A name that no device or cloud
 * endpoint has brought online gets none, whatever visitors ask for.
 *
 * INVARIANT: if all places are taken, an account gets places of larger accounts, until it has as many.
 */
export class NameCertificates {
  readonly #options: NameCertificatesOptions
  readonly #entries = new Map<string, Entry>()
  /** The same by reserved wildcard, because anyone may ask for the number of failures. */
  readonly #hostsOf = new Map<string, Set<string>>()
  readonly #hostsOfAccount = new Map<Account, Set<string>>()
  /** By reserved wildcard and account. */
  readonly #refusals = new Map<string, Map<Account, Refusal>>()
  /** Names without an order and without an earlier certificate, until the next sweep. Handshakes look no further. */
  readonly #without = new Set<string>()

  constructor(options: NameCertificatesOptions) {
    this.#options = options
  }

  /** Starts the certificate of a name that an account has online, or is about to. */
  cover(host: string, account: Account, known?: ServedCertificate): void {
    if (this.#entries.has(host) || host.startsWith('*.')) return
    const place = this.#placeOf(host)
    if (!place) return
    const { reserved, isOrdered } = place
    const { acme, clock } = this.#options
    const refused = this.#refusals.get(reserved.id)?.get(account)
    if (refused && clock.monotonic() - refused.at < REFUSED_MS) return
    const { domain, path } = this.#fileOf(host, reserved)
    const earlier = acme.earlierFor({ domain, path, known, clock })
    if (!isOrdered && !earlier.served) {
      if (this.#without.size < MAX_REMEMBERED) this.#without.add(host)
      return
    }
    if (!this.#makeRoom(account)) {
      if (isOrdered) this.#refuse(host, reserved, account)
      return
    }
    remove(this.#refusals, reserved.id, account)
    this.#without.delete(host)
    const certificate = isOrdered ? this.#certificateFor(host, reserved) : undefined
    this.#entries.set(host, { reserved, account, certificate, earlier })
    this.#hostsOf.set(reserved.id, (this.#hostsOf.get(reserved.id) ?? new Set()).add(host))
    const own = this.#hostsOfAccount.get(account) ?? new Set()
    this.#hostsOfAccount.set(account, own.add(host))
    certificate?.start()
  }

  #certificateFor(host: string, reserved: ReservedDomain): ManagedCertificate {
    const { acme, gates, holderOf, isCovered, clock, log } = this.#options
    const account = () => (isCovered(host) ? undefined : holderOf(host))
    return acme.certificateFor({
      ...this.#fileOf(host, reserved),
      gate: gates.gateFor({ name: host, account }),
      clock,
      log: log.child({ domain: host }),
    })
  }

  #fileOf(host: string, reserved: ReservedDomain) {
    const { acme, folder } = this.#options
    // File names are shorter than the longest host names.
    const label = createHash('sha256').update(host).digest('hex').slice(0, 32)
    return {
      domain: { ...reserved, id: `${reserved.id}:${host}`, domain: host },
      path: join(folder, `${reserved.id}.${label}.${acme.name}.pem`),
    }
  }

  /**
   * The wildcard below which a name may have a certificate of its own. Without an order, the name keeps the
   * certificate of an earlier policy until the new policy has led to another.
   */
  #placeOf(host: string): { reserved: ReservedDomain; isOrdered: boolean } | undefined {
    const { reservationOf, wildcardAbove, isCovered } = this.#options
    const reservation = reservationOf(host)
    if (!reservation || reservation.authority === 'gateway') return undefined
    const isWildcard = reservation.domain.startsWith('*.')
    const reserved = isWildcard ? reservation : wildcardAbove(host)
    const isOrdered = isWildcard && isOnDemand(reservation)
    return reserved && (isOrdered || !isCovered(host)) ? { reserved, isOrdered } : undefined
  }

  /** Certificate of exactly this name. */
  served(host: string): ServedCertificate | undefined {
    // The name may be online at another gateway, which has ordered its certificate.
    const isKnown = this.#entries.has(host) || this.#without.has(host)
    const holder = isKnown ? undefined : this.#options.holderOf(host)
    if (holder) this.cover(host, holder.ownerId)
    return this.#servedBy(this.#entries.get(host))
  }

  /** A valid certificate goes first. */
  #servedBy(entry: Entry | undefined): ServedCertificate | undefined {
    const { served, status } = entry?.certificate ?? {}
    const isValid = (status?.endsAt ?? 0) > this.#options.clock.now()
    return isValid ? served : (entry?.earlier.served ?? served)
  }

  /**
   * Stops the certificates of names whose reservation or account has changed, and of names that are offline
   * without a certificate. Names without a place try again.
   */
  sweep(): void {
    const { holderOf, reservationOf } = this.#options
    this.#without.clear()
    for (const [host, entry] of this.#entries) {
      const { reserved, account, certificate } = entry
      const holder = holderOf(host)
      const served = this.#servedBy(entry)
      const isKept = holder ? holder.ownerId === account : served !== undefined
      const place = this.#placeOf(host)
      const isSame = place?.isOrdered === (certificate !== undefined)
      if (isKept && isSame && hasSameKey(place?.reserved, reserved)) continue
      this.#remove(host)
      const next = holder ? holder.ownerId : account
      const isBelowSame = place?.reserved.id === reserved.id
      if (holder || isKept) this.cover(host, next, isBelowSame ? served : undefined)
    }
    for (const { host, reserved, account } of [...this.#refused()]) {
      const holder = holderOf(host)
      const now = reservationOf(host)
      if (holder?.ownerId === account && hasSameKey(now, reserved) && now && isOnDemand(now)) {
        this.cover(host, account)
      } else remove(this.#refusals, reserved.id, account)
    }
  }

  retry(reserved: ReservedDomain): void {
    for (const { certificate } of this.#below(reserved)) certificate.retry()
  }

  stop(): void {
    for (const { certificate } of this.#entries.values()) certificate?.stop()
    this.#entries.clear()
    this.#hostsOf.clear()
    this.#hostsOfAccount.clear()
    this.#refusals.clear()
    this.#without.clear()
  }

  /** Status of all names below a reserved wildcard: the first name with a problem, else the next renewal. */
  statusOf(reserved: ReservedDomain): CertificateStatus {
    let renewsAt: number | undefined
    let endsAt: number | undefined
    let job: CertificateStatus['job']
    for (const { host, certificate } of this.#below(reserved)) {
      const { status } = certificate
      renewsAt = earlier(renewsAt, status.renewsAt)
      endsAt = earlier(endsAt, status.endsAt)
      const isWorse = job === undefined || (job.error === undefined && status.job?.error)
      if (!status.job || !isWorse) continue
      const error = status.job.error && `${host}: ${status.job.error}`
      job = { ...status.job, error }
    }
    const [refusal] = this.#refusals.get(reserved.id)?.values() ?? []
    return { renewsAt, endsAt, job: job?.error === undefined ? (refusal?.job ?? job) : job }
  }

  *#below({ id }: ReservedDomain) {
    for (const host of this.#hostsOf.get(id) ?? []) {
      const entry = this.#entries.get(host)
      if (entry?.certificate) yield { host, certificate: entry.certificate }
    }
  }

  *#refused() {
    for (const refusals of this.#refusals.values()) {
      for (const [account, refusal] of refusals) yield { ...refusal, account }
    }
  }

  /** Whether there is room for another name of an account, after a name has left if needed. */
  #makeRoom(account: Account): boolean {
    const own = this.#hostsOfAccount.get(account)?.size ?? 0
    const hasShare = own < maxOf(account)
    if (hasShare && this.#entries.size < MAX_NAMES) return true
    const accounts = [...this.#hostsOfAccount].sort(([, a], [, b]) => b.size - a.size)
    for (const [other, hosts] of accounts) {
      const isLarger = hasShare && hosts.size > own + 1
      if (other !== account && !isLarger) continue
      const host = this.#leaver(hosts, isLarger)
      if (host === undefined) continue
      this.#evict(host)
      return true
    }
    return false
  }

  /** The name that needs its place least. A name that is online with a certificate keeps it. */
  #leaver(hosts: ReadonlySet<string>, isOnlineToo: boolean): string | undefined {
    let found: string | undefined
    let best = 3
    for (const host of hosts) {
      const isOnline = this.#options.holderOf(host) !== undefined
      const hasCertificate = this.#servedBy(this.#entries.get(host)) !== undefined
      if (isOnline && (hasCertificate || !isOnlineToo)) continue
      // Its file stays, and serves the name again when it is back.
      const rank = hasCertificate ? 2 : Number(isOnline)
      if (rank >= best) continue
      found = host
      best = rank
    }
    return found
  }

  #evict(host: string): void {
    const { reserved, account } = this.#entries.get(host) ?? {}
    this.#remove(host)
    const isOnline = this.#options.holderOf(host) !== undefined
    if (reserved && account !== undefined && isOnline) this.#refuse(host, reserved, account)
  }

  #remove(host: string): void {
    const entry = this.#entries.get(host)
    if (!entry) return
    entry.certificate?.stop()
    this.#entries.delete(host)
    remove(this.#hostsOf, entry.reserved.id, host)
    remove(this.#hostsOfAccount, entry.account, host)
  }

  #refuse(host: string, reserved: ReservedDomain, account: Account): void {
    const { clock } = this.#options
    const startedAt = clock.now()
    const isShare = (this.#hostsOfAccount.get(account)?.size ?? 0) >= maxOf(account)
    const places =
      isShare && account !== null
        ? `${MAX_NAMES_OF_BOT_USER} places of the account`
        : `${MAX_NAMES} places`
    const job = {
      startedAt,
      error: `${host}: All ${places} for certificates of names are taken. Close other names, or use a wildcard certificate.`,
      retriesAt: startedAt + REFUSED_MS,
    }
    const refusals = this.#refusals.get(reserved.id) ?? new Map<Account, Refusal>()
    refusals.set(account, { host, reserved, at: clock.monotonic(), job })
    this.#refusals.set(reserved.id, refusals)
  }
}

function maxOf(account: Account): number {
  return account === null ? MAX_NAMES : MAX_NAMES_OF_BOT_USER
}

/** Removes one item of a group, and the group when it is empty. */
function remove<Group, Item>(
  groups: Map<Group, { delete(item: Item): boolean; readonly size: number }>,
  group: Group,
  item: Item,
): void {
  const items = groups.get(group)
  items?.delete(item)
  if (items?.size === 0) groups.delete(group)
}

function hasSameKey(now: ReservedDomain | undefined, before: ReservedDomain): boolean {
  return now?.id === before.id && now.privateKeyType === before.privateKeyType
}

function earlier(one: number | undefined, other: number | undefined): number | undefined {
  return other === undefined || (one !== undefined && one < other) ? one : other
}
