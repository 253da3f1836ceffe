import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { isOnDemand, type ReservedDomain } from '../records/reserved-domain-store.ts'
import type { AcmeAuthority } from './acme/acme-authority.ts'
import type { OrderGates } from './acme/order-gate.ts'
import type { ServedCertificate } from './certificate-file.ts'
import type { CertificateStatus, ManagedCertificate } from './server-certificate.ts'

/** Maximum number of names with certificates of their own, because devices choose the names. */
export const MAX_NAMES = 1_000

/** Shortest time between two searches for names that have left, while there is no room. */
const SWEEP_MS = 60_000

/** An account that has brought exactly this name online, at any gateway. */
export type HolderOf = (host: string) => { readonly ownerId: string | null } | undefined

export interface NameCertificatesOptions {
  readonly folder: string
  readonly acme: AcmeAuthority
  readonly gates: OrderGates
  readonly holderOf: HolderOf
  /** The reservation that a name belongs to. */
  readonly reservationOf: (host: string) => ReservedDomain | undefined
  /** Whether a valid certificate for a wildcard covers the name. */
  readonly isCovered: (host: string) => boolean
  readonly clock: Clock
  readonly log: Logger
}

interface Entry {
  readonly reserved: ReservedDomain
  readonly certificate: ManagedCertificate
}

/**
 * Certificates on demand for names that are online below a reserved wildcard. A name that no device or cloud
 * endpoint has brought online gets none, whatever visitors ask for.
 */
export class NameCertificates {
  readonly #options: NameCertificatesOptions
  readonly #entries = new Map<string, Entry>()
  /** The same by reserved wildcard, because anyone may ask for the number of failures. */
  readonly #hostsOf = new Map<string, Set<string>>()
  #sweptAt = Number.NEGATIVE_INFINITY

  constructor(options: NameCertificatesOptions) {
    this.#options = options
  }

  /** Starts the certificate of a name that is online, or about to be. */
  cover(host: string): void {
    const { acme, gates, folder, holderOf, reservationOf, isCovered, clock } = this.#options
    if (this.#entries.has(host) || host.startsWith('*.')) return
    const reserved = reservationOf(host)
    if (!reserved?.domain.startsWith('*.') || !isOnDemand(reserved)) return
    if (!this.#makeRoom()) return
    // File names are shorter than the longest host names.
    const label = createHash('sha256').update(host).digest('hex').slice(0, 32)
    const certificate = acme.certificateFor({
      domain: { ...reserved, id: `${reserved.id}:${host}`, domain: host },
      path: join(folder, `${reserved.id}.${label}.${acme.name}.pem`),
      gate: gates.gateFor({
        name: host,
        account: () => (isCovered(host) ? undefined : holderOf(host)),
      }),
      clock,
      log: this.#options.log.child({ domain: host }),
    })
    this.#entries.set(host, { reserved, certificate })
    const hosts = this.#hostsOf.get(reserved.id) ?? new Set()
    this.#hostsOf.set(reserved.id, hosts.add(host))
    certificate.start()
  }

  /** Certificate of exactly this name. */
  served(host: string): ServedCertificate | undefined {
    // The name may be online at another gateway, which has ordered its certificate.
    const isNew = !this.#entries.has(host) && this.#options.holderOf(host) !== undefined
    if (isNew) this.cover(host)
    return this.#entries.get(host)?.certificate.served
  }

  /**
   * Stops the certificates of names whose reservation has changed, and of names that are offline without a
   * certificate. `isFull`: of all names that are offline.
   */
  sweep({ isFull = false } = {}): void {
    const { holderOf, reservationOf } = this.#options
    for (const [host, { reserved, certificate }] of this.#entries) {
      const isOnline = holderOf(host) !== undefined
      const isKept = isOnline || (certificate.served !== undefined && !isFull)
      const isSame = hasSamePolicy(reservationOf(host), reserved)
      if (isSame && isKept) continue
      certificate.stop()
      this.#entries.delete(host)
      this.#hostsOf.get(reserved.id)?.delete(host)
      if (this.#hostsOf.get(reserved.id)?.size === 0) this.#hostsOf.delete(reserved.id)
      if (isOnline) this.cover(host)
    }
  }

  retry(reserved: ReservedDomain): void {
    for (const { certificate } of this.#below(reserved)) certificate.retry()
  }

  stop(): void {
    for (const { certificate } of this.#entries.values()) certificate.stop()
    this.#entries.clear()
    this.#hostsOf.clear()
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
    return { renewsAt, endsAt, job }
  }

  *#below({ id }: ReservedDomain) {
    for (const host of this.#hostsOf.get(id) ?? []) {
      const entry = this.#entries.get(host)
      if (entry) yield { host, certificate: entry.certificate }
    }
  }

  /** Whether there is room for another name, after names that are offline have left. */
  #makeRoom(): boolean {
    const now = this.#options.clock.monotonic()
    if (this.#entries.size >= MAX_NAMES && now - this.#sweptAt >= SWEEP_MS) {
      this.#sweptAt = now
      this.sweep({ isFull: true })
    }
    return this.#entries.size < MAX_NAMES
  }
}

function hasSamePolicy(now: ReservedDomain | undefined, before: ReservedDomain): boolean {
  return now?.id === before.id && isOnDemand(now) && now.privateKeyType === before.privateKeyType
}

function earlier(one: number | undefined, other: number | undefined): number | undefined {
  return other === undefined || (one !== undefined && one < other) ? one : other
}
