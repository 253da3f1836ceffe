import { isIP } from 'node:net'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { PrivateKeyType } from '../records/private-key.ts'
import type { ReservedDomain } from '../records/reserved-domain-store.ts'
import {
  type CertificateSource,
  type IssuedCertificate,
  type KeptCertificate,
  keep,
  loadCertificate,
  normalName,
  pemOf,
  type ServedCertificate,
  saveCertificate,
  served,
} from './certificate-file.ts'

/** One certificate of an authority, kept valid from `start()` to `stop()`. */
export interface ManagedCertificate {
  readonly served: ServedCertificate | undefined
  readonly status: CertificateStatus
  /** Serves an existing certificate, and starts orders and renewals. */
  start(): void
  /** Retries now if the last attempt failed, unless this was requested too often. */
  retry(): void
  stop(): void
}

export interface ManagedCertificateOptions {
  readonly domain: ReservedDomain
  /** File of the certificate. */
  readonly path: string
  readonly clock: Clock
  readonly log: Logger
}

/** Status of the certificate of a reserved domain. Times are milliseconds since the epoch. */
export interface CertificateStatus {
  readonly renewsAt: number | undefined
  readonly endsAt?: number | undefined
  /** People replace it: the gateway cannot renew it. */
  readonly isUploaded?: boolean | undefined
  /** The current issue, or the last failed issue. */
  readonly job: CertificateJob | undefined
}

export interface CertificateJob {
  readonly startedAt: number
  /** Reason of the failure, for people; undefined while it is under way. */
  readonly error: string | undefined
  readonly retriesAt: number | undefined
  /** Start of an unbroken series of failures, if all gateways of the cluster know it. */
  readonly failingSince?: number | undefined
}

/** A certificate is replaced when a third of its lifetime is left. */
const RENEW_AT_SHARE = 1 / 3
/** How far the clock of an authority may be ahead of this machine's clock. */
const CLOCK_SKEW_MS = 300_000

export interface ServerCertificateOptions {
  /** File of the certificate. Unset: it is lost when the process ends. */
  readonly path?: string
  /** Called each time, because the addresses of a machine change. */
  readonly names: () => readonly string[]
  /**
   * Whether a certificate with another DNS name is replaced. Other addresses may stay: the addresses of a
   * machine come and go.
   */
  readonly hasOnlyOurNames?: boolean
  readonly keyType?: PrivateKeyType
  readonly authority: CertificateSource
  readonly clock: Clock
  readonly log: Logger
}

/** One certificate: issued if it is missing, replaced before it expires. */
export class ServerCertificate {
  readonly #options: ServerCertificateOptions
  #kept: KeptCertificate | undefined
  #served: ServedCertificate | undefined
  #isSaved = true

  constructor(options: ServerCertificateOptions) {
    this.#options = options
  }

  /** Time of its replacement, in milliseconds since the epoch. Undefined before the first issue. */
  get renewsAt(): number | undefined {
    return this.#kept && renewalOf(this.#kept)
  }

  /** Expiry, in milliseconds since the epoch. */
  get endsAt(): number | undefined {
    return this.#kept?.notAfter
  }

  /** The certificate and key to serve; undefined before the first `refresh()`. */
  get kept(): KeptCertificate | undefined {
    return this.#kept
  }

  /** The same for handshakes. */
  get served(): ServedCertificate | undefined {
    return this.#served
  }

  /** Whether there is no valid certificate, or it must be replaced. */
  get isDue(): boolean {
    const kept = this.#kept
    return !kept || !this.#isValid(kept) || this.#options.clock.now() >= renewalOf(kept)
  }

  /** Loads or issues the certificate as needed. Returns true if there is a new certificate to serve. */
  async refresh(): Promise<boolean> {
    const isRestored = this.restore()
    if (!this.isDue) {
      this.save()
      return isRestored
    }
    const { path, keyType, authority } = this.#options
    const names = this.#options.names()
    const issued = keep(await authority.issue(names, keyType))
    if (!this.#isValid(issued)) {
      throw new Error(`the issued certificate is not valid for ${names.join(', ')} now`)
    }
    this.#serve(issued)
    this.#isSaved = path === undefined
    this.save()
    return true
  }

  /**
   * Saves the served certificate if needed. A failure is only logged, because authorities issue the same
   * certificate just a few times a week. The next call tries again.
   */
  save(): void {
    const { path, log } = this.#options
    if (this.#isSaved || path === undefined || !this.#kept) return
    try {
      saveCertificate(path, this.#kept)
      this.#isSaved = true
    } catch (error) {
      log.error({ err: error }, 'certificate not saved, will retry')
    }
  }

  /**
   * Serves a certificate that was issued elsewhere, unless it is invalid here or expires before the current
   * certificate. Returns false if it is not served. Throws if it is not a certificate with its key.
   */
  accept(issued: IssuedCertificate): boolean {
    const kept = keep(issued)
    const own = this.#kept
    if (!this.#isValid(kept)) return false
    if (own && this.#isValid(own) && own.notAfter > kept.notAfter) return false
    if (own && pemOf(own) === pemOf(kept)) return true
    this.#serve(kept)
    this.#isSaved = this.#options.path === undefined
    this.save()
    return true
  }

  /**
   * Serves the saved certificate of an earlier process if it is still valid. Returns whether there was such a
   * certificate.
   */
  restore(): boolean {
    const { path, authority } = this.#options
    if (this.#kept || path === undefined) return false
    const kept = loadCertificate(path, authority)
    if (!kept || !this.#isValid(kept)) return false
    this.#serve(kept)
    return true
  }

  #serve(kept: KeptCertificate): void {
    this.#served = served(kept)
    this.#kept = kept
  }

  #isValid({ names, keyType, notBefore, notAfter }: KeptCertificate): boolean {
    const now = this.#options.clock.now()
    const wanted = this.#options.names().map(normalName)
    const isOurs = (name: string) => isIP(name) !== 0 || wanted.includes(name)
    return (
      notBefore <= now + CLOCK_SKEW_MS &&
      now < notAfter &&
      keyType === (this.#options.keyType ?? 'ecdsa') &&
      wanted.every((name) => names.includes(name)) &&
      (!this.#options.hasOnlyOurNames || names.every(isOurs))
    )
  }
}

function renewalOf({ notBefore, notAfter }: KeptCertificate): number {
  return notAfter - (notAfter - notBefore) * RENEW_AT_SHARE
}
