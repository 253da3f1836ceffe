import { X509Certificate } from 'node:crypto'
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import { makeFolder } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import { wildcardsAbove } from '../records/domain-name.ts'
import {
  isOnDemand,
  type ReservedDomain,
  type ReservedDomainStore,
} from '../records/reserved-domain-store.ts'
import { isResourceId } from '../records/resource-id.ts'
import type { TlsCertificateStore } from '../records/tls-certificate-store.ts'
import type { AcmeAuthority } from './acme/acme-authority.ts'
import type { EarlierCertificate } from './acme/earlier-certificate.ts'
import type { OrderGate, OrderGates } from './acme/order-gate.ts'
import { type CertificateSource, type ServedCertificate, served } from './certificate-file.ts'
import { type HolderOf, NameCertificates } from './name-certificates.ts'
import {
  type CertificateJob,
  type CertificateStatus,
  type ManagedCertificate,
  ServerCertificate,
} from './server-certificate.ts'
import { uploadWarnsAt } from './uploaded-certificate.ts'

/** Interval for checking certificates. They are renewed a month before they expire. */
export const CERTIFICATE_CHECK_MS = 600_000

/** Certificates that were uploaded for domains. */
type Uploads = Pick<TlsCertificateStore, 'get'>
/** Opens their private keys. */
interface Seal {
  open(sealed: string, place: { readonly certificateId: string }): string | undefined
}

interface DomainCertificateDeps {
  readonly domain: ReservedDomain
  readonly folder: string
  /** The gateway's own CA. */
  readonly authority: CertificateSource
  readonly acme: AcmeAuthority | undefined
  readonly uploads: Uploads
  readonly seal: Seal
  /** Admits orders for a domain whose certificate is ordered on demand. */
  readonly gate: OrderGate | undefined
  /** Certificates under the earlier certificate policy, served until there is a new certificate. */
  readonly before?: Pick<DomainCertificate, 'served' | 'issued'> | undefined
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Certificate for HTTPS clients of one reserved domain. The gateway's CA issues at once. If the domain uses
 * an ACME authority, its certificate takes over once it is issued.
 */
class DomainCertificate {
  readonly domain: ReservedDomain
  readonly #deps: DomainCertificateDeps
  readonly #own: ServerCertificate
  readonly #managed: ManagedCertificate | undefined
  /** Certificate of the authority under an earlier policy. */
  readonly #earlier: EarlierCertificate | undefined
  #uploaded: { readonly served: ServedCertificate; readonly endsAt: number } | undefined
  #isStopped = false
  #job: CertificateJob | undefined

  constructor(deps: DomainCertificateDeps) {
    const { domain, folder, authority, acme, before, clock } = deps
    const log = deps.log.child({ domain: domain.domain })
    const path = join(folder, `${domain.id}.pem`)
    const names = domain.domain.startsWith('*.')
      ? [domain.domain, domain.domain.slice(2)]
      : [domain.domain]
    const isManaged = domain.authority !== 'gateway'
    // Below such a wildcard, each name has a certificate of its own.
    const isOfNames = isOnDemand(domain) && domain.domain.startsWith('*.')
    // The key type applies to the requested certificate, not to the temporary certificate of the gateway's
    // CA.
    const keyType = isManaged ? 'ecdsa' : domain.privateKeyType
    this.domain = domain
    this.#deps = { ...deps, log }
    this.#own = new ServerCertificate({ path, names: () => names, keyType, authority, clock, log })
    if (!isManaged || !acme) return
    const file = join(folder, `${domain.id}.${acme.name}.pem`)
    this.#earlier = acme.earlierFor({ domain, path: file, known: before?.issued, clock })
    if (isOfNames) return
    this.#managed = acme.certificateFor({ ...{ domain, gate: deps.gate, clock, log }, path: file })
  }

  get served(): ServedCertificate | undefined {
    const uploaded = this.#upload?.served
    return (
      this.issued ??
      uploaded ??
      this.#managed?.served ??
      this.#own.served ??
      this.#deps.before?.served
    )
  }

  /** Valid certificate of the authority, under the current or an earlier certificate policy. */
  get issued(): ServedCertificate | undefined {
    return this.ofAuthority ?? this.#earlier?.served
  }

  /** Certificate of the authority under the current certificate policy, while it is valid. */
  get ofAuthority(): ServedCertificate | undefined {
    const uploaded = this.#upload
    if (uploaded && uploaded.endsAt > this.#deps.clock.now()) return uploaded.served
    const { served, status } = this.#managed ?? {}
    return (status?.endsAt ?? 0) > this.#deps.clock.now() ? served : undefined
  }

  get status(): CertificateStatus {
    const uploaded = this.#upload
    if (uploaded) {
      const { endsAt } = uploaded
      return { renewsAt: undefined, endsAt, isUploaded: true, job: undefined }
    }
    const { renewsAt, endsAt } = this.#own
    return this.#managed?.status ?? { renewsAt, endsAt, job: this.#job }
  }

  /** Read when it is first needed: at another gateway, its record may come later than the domain. */
  get #upload() {
    const { domain, uploads, seal } = this.#deps
    const { certificateId } = domain
    if (this.#uploaded || certificateId === null) return this.#uploaded
    const found = uploads.get(certificateId)
    const keyPem = found && seal.open(found.sealedKey, { certificateId })
    if (!found || keyPem === undefined) return undefined
    try {
      const endsAt = Date.parse(new X509Certificate(found.certPem).validTo)
      this.#uploaded = { served: served({ certPem: found.certPem, keyPem }), endsAt }
    } catch (error) {
      this.#deps.log.error({ err: error }, 'the uploaded certificate cannot be used')
    }
    return this.#uploaded
  }

  /** Marks the first issue as under way, and starts the ACME certificate until `stop()`. */
  start(): void {
    this.#job = { startedAt: this.#deps.clock.now(), error: undefined, retriesAt: undefined }
    this.#managed?.start()
  }

  /** Issues or renews the certificate of the gateway's CA. A failure is shown in `status`. */
  async refresh(): Promise<void> {
    if (this.#isStopped) return
    const { domain, clock, log } = this.#deps
    const startedAt = clock.now()
    try {
      const isNew = await this.#own.refresh()
      if (isNew) log.info('certificate of the gateway CA ready')
      this.#job = undefined
      if (domain.authority === 'gateway' || this.#deps.acme) return
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

  /** Retries a failed order now. */
  retry(): void {
    this.#managed?.retry()
  }

  /** Stops further issues. An issue under way continues. */
  stop(): void {
    this.#isStopped = true
    this.#managed?.stop()
  }

  /** Removes its files, including files of earlier policies, and the record that the cluster shares. */
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

/** Maximum number of certificates for deeper names, because devices choose these names. */
const MAX_DEEPER = 1_000

/** Needs of certificates on demand. */
export interface OnDemand {
  readonly gates: OrderGates
  readonly holderOf: HolderOf
  readonly reservationOf: (host: string) => ReservedDomain | undefined
}

export interface DomainCertificatesDeps {
  /** Directory of the files of reserved domains; created if missing. */
  readonly folder: string
  /** The gateway's own CA. */
  readonly authority: CertificateSource
  /** Unset: the gateway's CA issues all certificates. */
  readonly acme: AcmeAuthority | undefined
  /** Unset: no certificates on demand. */
  readonly onDemand?: OnDemand | undefined
  readonly domains: ReservedDomainStore
  readonly uploads: Uploads
  readonly seal: Seal
  readonly clock: Clock
  readonly log: Logger
}

/** The ingress certificates: one per reserved domain, found by server name. */
export class DomainCertificates {
  readonly #deps: DomainCertificatesDeps
  readonly #entries = new Map<string, DomainCertificate>()
  /** Certificates for names that are too deep for the star of a reserved wildcard. Kept in memory. */
  readonly #deeper = new Map<string, ServerCertificate>()
  /** Issues of such certificates under way, by the same name. Visitors of one name wait for one issue. */
  readonly #issuing = new Map<string, Promise<void>>()
  readonly #names: NameCertificates | undefined
  #queue = Promise.resolve()

  constructor(deps: DomainCertificatesDeps) {
    const { acme, onDemand } = deps
    this.#deps = deps
    if (!acme || !onDemand) return
    const isCovered = (host: string) => this.#wildcardCertificate(host) !== undefined
    const wildcardAbove = (host: string) => {
      for (const wildcard of wildcardsAbove(host)) {
        const entry = this.#entries.get(wildcard)
        if (entry) return entry.domain
      }
      return undefined
    }
    this.#names = new NameCertificates({ ...deps, ...onDemand, acme, isCovered, wildcardAbove })
  }

  /** Issues missing certificates and renews due certificates. Failures are shown in `statusOf`. */
  refresh(): Promise<void> {
    return this.#enqueue(async () => {
      makeFolder(this.#deps.folder)
      this.#removeLeftovers()
      for (const { id } of this.#deps.domains.all()) {
        // Read again, because it may have changed or been deleted while earlier certificates were issued.
        const domain = this.#deps.domains.get(id)
        if (domain) await this.#entryOf(domain).refresh()
      }
      for (const certificate of this.#deeper.values()) await certificate.refresh()
      this.#names?.sweep()
    })
  }

  /**
   * Updates the certificate after a domain or its certificate policy was added, changed or removed. Never
   * rejects.
   */
  follow(domain: ReservedDomain): Promise<void> {
    if (!this.#deps.domains.get(domain.id)) {
      const forgotten = this.#forget(domain)
      this.#names?.sweep()
      return forgotten
    }
    const entry = this.#entryOf(domain)
    this.#names?.sweep()
    return this.#enqueue(() => entry.refresh())
  }

  /** Retries a failed order of a domain now, for example after its DNS records were corrected. */
  retry(domain: ReservedDomain): void {
    this.#entries.get(domain.domain)?.retry()
    this.#names?.retry(domain)
  }

  stop(): void {
    for (const entry of this.#entries.values()) entry.stop()
    this.#names?.stop()
  }

  /** Makes sure that a name which an account is about to bring online has a certificate. */
  async cover(host: string, ownerId: string | null): Promise<void> {
    // Its domain may have been reserved a moment ago.
    await this.#queue
    // An order takes longer than an agent waits: until then another certificate is served.
    this.#names?.cover(host, ownerId)
    if (this.isCovered(host)) return
    const parent = wildcardOf(host)
    const known = this.#issuing.get(parent)
    if (known) return known
    const issuing = this.#issueDeeper(parent).finally(() => this.#issuing.delete(parent))
    this.#issuing.set(parent, issuing)
    return issuing
  }

  /** Whether clients of a host, or of the names directly below a wildcard, get a certificate. */
  isCovered(host: string): boolean {
    return this.served(host.replace(/^\*\./, 'any.')) !== undefined
  }

  async #issueDeeper(parent: string): Promise<void> {
    const { authority, clock, log } = this.#deps
    const names = () => [parent]
    const certificate = new ServerCertificate({ names, authority, clock, log })
    await certificate.refresh()
    for (const oldest of this.#deeper.keys()) {
      if (this.#deeper.size < MAX_DEEPER) break
      this.#deeper.delete(oldest)
    }
    this.#deeper.set(parent, certificate)
  }

  /**
   * The certificate for a lower-case server name. Valid certificates of the authority go first: those of the
   * current policies, then those of earlier policies.
   */
  served(serverName: string): ServedCertificate | undefined {
    const exact = this.#entries.get(serverName)
    if (exact?.domain.authority === 'gateway') return exact.served
    const parent = this.#entries.get(wildcardOf(serverName))
    return (
      exact?.issued ??
      parent?.ofAuthority ??
      this.#names?.served(serverName) ??
      (exact && parent?.issued) ??
      exact?.served ??
      parent?.served ??
      this.#entries.get(`*.${serverName}`)?.served ??
      this.#deeper.get(wildcardOf(serverName))?.served
    )
  }

  /** Certificate of an authority for the wildcard directly above a name. */
  #wildcardCertificate(name: string): ServedCertificate | undefined {
    return this.#entries.get(wildcardOf(name))?.ofAuthority
  }

  statusOf(domain: ReservedDomain): CertificateStatus {
    const entry = this.#entries.get(domain.domain)
    if (!entry) return { renewsAt: undefined, job: undefined }
    const { status } = entry
    const isOwnAlone = status.job !== undefined || !isOnDemand(domain)
    if (isOwnAlone || !this.#names) return status
    if (domain.domain.startsWith('*.')) return this.#names.statusOf(domain)
    // Covered by a wildcard, the name needs no certificate.
    const parent = this.#entries.get(wildcardOf(domain.domain))
    return status.renewsAt === undefined && parent?.ofAuthority ? parent.status : status
  }

  /** Number of domains whose uploaded certificate expires soon or has expired. */
  get expiring(): number {
    const now = this.#deps.clock.now()
    return [...this.#entries.values()].filter(({ status: { isUploaded, endsAt } }) => {
      return isUploaded && endsAt !== undefined && now >= uploadWarnsAt(endsAt)
    }).length
  }

  /** Number of domains with a failed issue. Reads no records, because the number is public. */
  get failed(): number {
    return [...this.#entries.values()].filter(
      ({ domain }) => this.statusOf(domain).job?.error !== undefined,
    ).length
  }

  /** Removes keys of released domains and incomplete files, which a power failure may leave. */
  #removeLeftovers(): void {
    const { folder, domains, log } = this.#deps
    try {
      for (const name of readdirSync(folder)) {
        const id = name.slice(0, name.indexOf('.'))
        const isNeeded = domains.get(id) !== undefined && !name.endsWith('.tmp')
        if (isResourceId(id, 'rd') && !isNeeded) rmSync(join(folder, name), { force: true })
      }
    } catch (error) {
      log.warn({ err: error }, 'old certificate files not removed')
    }
  }

  #forget({ domain }: ReservedDomain): Promise<void> {
    const entry = this.#entries.get(domain)
    entry?.stop()
    this.#entries.delete(domain)
    // Queued, because a certificate that is being issued now is still saved to the directory.
    return this.#enqueue(async () => entry?.remove())
  }

  #entryOf(domain: ReservedDomain): DomainCertificate {
    const known = this.#entries.get(domain.domain)
    if (known && hasSamePolicy(known.domain, domain)) return known
    known?.stop()
    const gate = this.#gateFor(domain)
    const before = known?.domain.id === domain.id ? known : undefined
    const entry = new DomainCertificate({
      ...{ ...this.#deps, domain, gate },
      before: before && { served: before.served, issued: before.issued },
    })
    this.#entries.set(domain.domain, entry)
    entry.start()
    return entry
  }

  #gateFor({ id, domain, ...policy }: ReservedDomain): OrderGate | undefined {
    const { onDemand, domains } = this.#deps
    if (!isOnDemand(policy)) return undefined
    return onDemand?.gates.gateFor({
      name: domain,
      account: () => (this.#wildcardCertificate(domain) ? undefined : domains.get(id)),
    })
  }

  /** Runs tasks one at a time, because issuing uses the CPU and writes of the same files must not race. */
  #enqueue(task: () => Promise<void>): Promise<void> {
    const done = this.#queue.then(task)
    this.#queue = done.catch(() => {})
    return done
  }
}

/** The wildcard directly above a name. */
function wildcardOf(name: string): string {
  return `*${name.slice(name.indexOf('.'))}`
}

function hasSamePolicy(a: ReservedDomain, b: ReservedDomain): boolean {
  return (
    a.id === b.id &&
    a.authority === b.authority &&
    a.privateKeyType === b.privateKeyType &&
    a.challenge === b.challenge &&
    a.certificateId === b.certificateId
  )
}
