import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database } from '../../store/database.ts'
import type { EventStore, EventType } from '../records/event-store.ts'
import type { ReservedDomain, ReservedDomainStore } from '../records/reserved-domain-store.ts'
import { ownCertificateProblem } from './own-certificate.ts'
import type { CertificateStatus } from './server-certificate.ts'
import { uploadWarnsAt } from './uploaded-certificate.ts'

/** Interval of the checks, in milliseconds. */
const POLL_MS = 60_000

export interface CertificateWatchOptions {
  readonly database: Pick<Database, 'change'>
  readonly domains: ReservedDomainStore
  readonly statusOf: (domain: ReservedDomain) => CertificateStatus
  /**
   * Expiry of the certificate that the gateway's owner has configured; undefined if there is no such
   * certificate.
   */
  readonly ownEndsAt: () => number | undefined
  readonly events: Pick<EventStore, 'append' | 'hasCertificateEvent'>
  readonly clock: Clock
  readonly log: Logger
}

/** A problem of one certificate. */
interface Trouble {
  readonly type: Extract<EventType, 'certificate.expiring' | 'certificate.failed'>
  readonly ownerId: string | null
  /** Start of the problem, if all gateways of the cluster agree on it. */
  readonly since: number | undefined
  readonly details: Readonly<Record<string, unknown>>
}

/**
 * Reports certificates that were not issued or are about to expire. Each problem is reported once, also if
 * another gateway of the cluster reports it.
 */
export class CertificateWatch {
  readonly #options: CertificateWatchOptions
  readonly #stopping = new AbortController()
  /** Reported problems, by certificate and problem. Removed when the problem is over. */
  readonly #told = new Set<string>()
  /** In a cluster, one gateway reports problems of domains. Each gateway reports its own certificate. */
  #isOnDuty = false

  constructor(options: CertificateWatchOptions) {
    this.#options = options
  }

  /** From now on this gateway reports problems of domains. */
  reclaim(): void {
    this.#isOnDuty = true
  }

  release(): void {
    this.#isOnDuty = false
  }

  start(): void {
    void this.#run()
  }

  stop(): void {
    this.#stopping.abort()
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#options
    const { signal } = this.#stopping
    for (;;) {
      await clock.sleep(POLL_MS, signal).catch(() => {})
      if (signal.aborted) return
      try {
        await this.#poll()
      } catch (error) {
        log.warn({ err: error }, 'certificates not checked, will retry')
      }
    }
  }

  async #poll(): Promise<void> {
    const { database, domains, events, clock, log } = this.#options
    const now = clock.now()
    const troubles = new Map<string, Trouble>()
    for (const domain of this.#isOnDuty ? domains.all() : []) {
      for (const trouble of this.#troublesOf(domain, now)) {
        troubles.set(`${trouble.type} ${domain.id}`, trouble)
      }
    }
    const own = this.#ownTrouble(now)
    if (own) troubles.set(own.details.text, own)
    for (const key of this.#told) if (!troubles.has(key)) this.#told.delete(key)
    for (const [key, trouble] of troubles) {
      if (this.#told.has(key)) continue
      const { type, since, ownerId, details } = trouble
      if (trouble === own) log.warn(own.details.text)
      else if (type === 'certificate.expiring')
        log.warn({ domain: details.domain }, String(details.text))
      await database.change(() => {
        const isTold = since !== undefined && events.hasCertificateEvent(type, details)
        if (!isTold) events.append({ type, ownerId, details, at: now })
      })
      this.#told.add(key)
    }
  }

  #troublesOf(domain: ReservedDomain, now: number): Trouble[] {
    const { renewsAt, endsAt, isUploaded, job } = this.#options.statusOf(domain)
    const { id, domain: name, ownerId } = domain
    const about = { domain: { id, name }, ends_at: endsAt === undefined ? null : iso(endsAt) }
    const troubles: Trouble[] = []
    if (job?.error !== undefined) {
      const since = job.failingSince
      const details = {
        ...about,
        ...(since !== undefined && { since: iso(since) }),
        text: job.error,
        retries_at: job.retriesAt ? iso(job.retriesAt) : null,
      }
      troubles.push({ type: 'certificate.failed', ownerId, since, details })
    }
    if (isUploaded && endsAt !== undefined && now >= uploadWarnsAt(endsAt)) {
      const verb = now < endsAt ? 'expires' : 'has expired'
      const text = `The uploaded certificate of ${name} ${verb} on ${iso(endsAt).slice(0, 10)}. Upload a new certificate and assign it to the domain.`
      const since = uploadWarnsAt(endsAt)
      troubles.push({ type: 'certificate.expiring', ownerId, since, details: { ...about, text } })
    }
    // The renewal is overdue, and half of the time until the expiry is over.
    if (renewsAt !== undefined && endsAt !== undefined && now > (renewsAt + endsAt) / 2) {
      const text =
        'The certificate was not renewed in time. Find the cause and retry before it expires.'
      troubles.push({
        type: 'certificate.expiring',
        ...{ ownerId, since: renewsAt, details: { ...about, text } },
      })
    }
    return troubles
  }

  #ownTrouble(now: number) {
    const endsAt = this.#options.ownEndsAt()
    const text = ownCertificateProblem(endsAt, now)
    if (endsAt === undefined || text === undefined) return undefined
    const details = { domain: null, ends_at: iso(endsAt), text }
    return { type: 'certificate.expiring', ownerId: null, since: undefined, details } as const
  }
}

const iso = (ms: number) => new Date(ms).toISOString()
