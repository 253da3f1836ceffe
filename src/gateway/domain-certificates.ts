import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { SecureContext } from 'node:tls'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { CertificateAuthority } from './certificate-authority.ts'
import type { ReservedDomain, ReservedDomainStore } from './reserved-domain-store.ts'
import { ServerCertificate } from './server-certificate.ts'

/** How often certificates are looked at; they are renewed a month before they end. */
export const CERTIFICATE_CHECK_MS = 600_000
/** Certificates for deeper names that are kept at once; devices choose those names. */
const MAX_DEEPER = 1_000

/** Where the certificate of a reserved domain stands. Times are milliseconds since the epoch. */
export interface CertificateStatus {
  readonly renewsAt: number | undefined
  /** The issue that is under way, or that failed last. */
  readonly job: CertificateJob | undefined
}

export interface CertificateJob {
  readonly startedAt: number
  /** What went wrong, for people; undefined while it is under way. */
  readonly error: string | undefined
  readonly retriesAt: number | undefined
}

export interface DomainCertificatesDeps {
  /** Holds one file per reserved domain; made when missing. */
  readonly folder: string
  readonly authority: CertificateAuthority
  readonly domains: ReservedDomainStore
  readonly clock: Clock
  readonly log: Logger
}

interface Entry {
  readonly certificate: ServerCertificate
  job: CertificateJob | undefined
}

/** The ingress certificates of the own CA: one per reserved domain, found by server name. */
export class DomainCertificates {
  readonly #deps: DomainCertificatesDeps
  readonly #entries = new Map<string, Entry>()
  /** For names further below a reserved wildcard than a certificate's star reaches; in memory. */
  readonly #deeper = new Map<string, ServerCertificate>()
  #queue = Promise.resolve()

  constructor(deps: DomainCertificatesDeps) {
    this.#deps = deps
  }

  /** Issues what is missing and renews what is due; a failure is kept for `statusOf`. */
  refresh(): Promise<void> {
    return this.#enqueue(async () => {
      mkdirSync(this.#deps.folder, { recursive: true, mode: 0o700 })
      for (const domain of this.#deps.domains.all()) await this.#refreshOne(domain)
      for (const certificate of this.#deeper.values()) await certificate.refresh()
    })
  }

  /** After a domain was reserved or given up. Never rejects. */
  follow(domain: ReservedDomain): Promise<void> {
    if (this.#deps.domains.get(domain.id)) {
      const startedAt = this.#deps.clock.now()
      this.#entryOf(domain).job = { startedAt, error: undefined, retriesAt: undefined }
      return this.#enqueue(() => this.#refreshOne(domain))
    }
    this.#forget(domain)
    return Promise.resolve()
  }

  /** Makes sure that a name which is about to go online has a certificate. */
  async cover(host: string): Promise<void> {
    // Its domain may have been reserved a moment ago.
    await this.#queue
    if (this.context(host.replace(/^\*\./, 'any.'))) return
    const parent = `*${host.slice(host.indexOf('.'))}`
    const { authority, clock } = this.#deps
    const certificate = new ServerCertificate({ names: [parent], authority, clock })
    await certificate.refresh()
    for (const oldest of this.#deeper.keys()) {
      if (this.#deeper.size < MAX_DEEPER) break
      this.#deeper.delete(oldest)
    }
    this.#deeper.set(parent, certificate)
  }

  /** The certificate for a lower-case server name. */
  context(serverName: string): SecureContext | undefined {
    const parent = `*${serverName.slice(serverName.indexOf('.'))}`
    return (
      this.#entries.get(serverName)?.certificate.context ??
      this.#entries.get(parent)?.certificate.context ??
      this.#entries.get(`*.${serverName}`)?.certificate.context ??
      this.#deeper.get(parent)?.context
    )
  }

  statusOf({ domain }: ReservedDomain): CertificateStatus {
    const entry = this.#entries.get(domain)
    return { renewsAt: entry?.certificate.renewsAt, job: entry?.job }
  }

  async #refreshOne(domain: ReservedDomain): Promise<void> {
    const entry = this.#entryOf(domain)
    const startedAt = this.#deps.clock.now()
    try {
      const isNew = await entry.certificate.refresh()
      entry.job = undefined
      if (isNew) this.#deps.log.info({ domain: domain.domain }, 'certificate ready')
    } catch (error) {
      this.#deps.log.error({ err: error, domain: domain.domain }, 'certificate not issued')
      entry.job = {
        startedAt,
        error: 'The certificate could not be issued; the log of the gateway says why.',
        retriesAt: startedAt + CERTIFICATE_CHECK_MS,
      }
    }
  }

  #entryOf(domain: ReservedDomain): Entry {
    let entry = this.#entries.get(domain.domain)
    if (!entry) {
      const { authority, clock } = this.#deps
      const names = domain.domain.startsWith('*.')
        ? [domain.domain, domain.domain.slice(2)]
        : [domain.domain]
      const path = this.#pathOf(domain)
      entry = {
        certificate: new ServerCertificate({ path, names, authority, clock }),
        job: undefined,
      }
      this.#entries.set(domain.domain, entry)
    }
    return entry
  }

  #forget(domain: ReservedDomain): void {
    this.#entries.delete(domain.domain)
    try {
      rmSync(this.#pathOf(domain), { force: true })
    } catch (error) {
      this.#deps.log.warn({ err: error, domain: domain.domain }, 'certificate file not removed')
    }
  }

  #pathOf({ id }: ReservedDomain): string {
    return join(this.#deps.folder, `${id}.pem`)
  }

  /** One after the other: issuing is work for the processor, and the files must not race. */
  #enqueue(task: () => Promise<void>): Promise<void> {
    const done = this.#queue.then(task)
    this.#queue = done.catch(() => {})
    return done
  }
}
