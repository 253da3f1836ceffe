import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { ReservedDomain } from '../records/reserved-domain-store.ts'
import type { AcmeAuthority } from './acme/acme-authority.ts'
import type { ManagedCertificate } from './acme/managed-certificate.ts'
import type { CertificateSource, ServedCertificate } from './certificate-file.ts'
import type { CertificateJob, CertificateStatus } from './certificate-status.ts'
import { ServerCertificate } from './server-certificate.ts'

/** How often certificates are looked at; they are renewed a month before they end. */
export const CERTIFICATE_CHECK_MS = 600_000

export interface DomainCertificateDeps {
  readonly domain: ReservedDomain
  readonly folder: string
  /** The own CA. */
  readonly authority: CertificateSource
  readonly acme: AcmeAuthority | undefined
  /** Served until there is a certificate: what the domain had under its earlier policy. */
  readonly earlier?: ServedCertificate | undefined
  readonly clock: Clock
  readonly log: Logger
}

/**
 * What HTTPS clients of one reserved domain are shown. The own CA issues at once; when the domain
 * asks for an ACME authority, that one's certificate takes over as soon as it is there.
 */
export class DomainCertificate {
  readonly domain: ReservedDomain
  readonly #deps: DomainCertificateDeps
  readonly #own: ServerCertificate
  readonly #managed: ManagedCertificate | undefined
  #isStopped = false
  #job: CertificateJob | undefined

  constructor(deps: DomainCertificateDeps) {
    const { domain, folder, authority, acme, clock } = deps
    const log = deps.log.child({ domain: domain.domain })
    const path = join(folder, `${domain.id}.pem`)
    const names = domain.domain.startsWith('*.')
      ? [domain.domain, domain.domain.slice(2)]
      : [domain.domain]
    const isManaged = domain.authority !== 'gateway'
    // The key type is a matter of the certificate that was asked for.
    const keyType = isManaged ? 'ecdsa' : domain.privateKeyType
    this.domain = domain
    this.#deps = { ...deps, log }
    this.#own = new ServerCertificate({ path, names: () => names, keyType, authority, clock, log })
    if (!isManaged || !acme) return
    this.#managed = acme.certificateFor({
      ...{ domain, clock, log },
      path: join(folder, `${domain.id}.${acme.name}.pem`),
    })
  }

  get served(): ServedCertificate | undefined {
    return this.#managed?.served ?? this.#own.served ?? this.#deps.earlier
  }

  get status(): CertificateStatus {
    const { renewsAt, endsAt } = this.#own
    return this.#managed?.status ?? { renewsAt, endsAt, job: this.#job }
  }

  /** Marks the first issue as under way, and starts what goes on by itself until `stop()`. */
  start(): void {
    this.#job = { startedAt: this.#deps.clock.now(), error: undefined, retriesAt: undefined }
    this.#managed?.start()
  }

  /** Issues or renews what the own CA has to. A failure is kept for `status`. */
  async refresh(): Promise<void> {
    if (this.#isStopped) return
    const { domain, clock, log } = this.#deps
    const startedAt = clock.now()
    try {
      const isNew = await this.#own.refresh()
      if (isNew) log.info('certificate of the local ca ready')
      this.#job = undefined
      if (domain.authority === 'gateway' || this.#managed) return
      const error = 'No ACME authority is configured. Set GATEWAY_ACME_DIRECTORY.'
      this.#job = { startedAt, error, retriesAt: undefined }
    } catch (error) {
      log.error({ err: error }, 'certificate not issued')
      this.#job = {
        startedAt,
        error: 'The certificate could not be issued. See the log of the gateway.',
        retriesAt: startedAt + CERTIFICATE_CHECK_MS,
      }
    }
  }

  /** Tries a failed order again now. */
  retry(): void {
    this.#managed?.retry()
  }

  /** Nothing is issued from now on but what is under way. */
  stop(): void {
    this.#isStopped = true
    this.#managed?.stop()
  }

  /** Takes the files away, those of earlier policies too, and what the gateways of a site share. */
  remove(): void {
    const { domain, folder, acme, log } = this.#deps
    acme
      ?.forget(domain)
      .catch((err: unknown) => log.warn({ err }, 'certificate record not removed'))
    try {
      const files = readdirSync(folder).filter((name) => name.startsWith(`${domain.id}.`))
      for (const name of files) rmSync(join(folder, name), { force: true })
    } catch (error) {
      log.warn({ err: error }, 'certificate file not removed')
    }
  }
}
