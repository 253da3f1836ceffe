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

/** One certificate that an authority issues, kept good from `start()` to `stop()`. */
export interface ManagedCertificate {
  readonly served: ServedCertificate | undefined
  readonly status: CertificateStatus
  /** Serves what is there and sees to the rest. */
  start(): void
  /** Tries again now when the last try failed, unless that was asked for too often. */
  retry(): void
  stop(): void
}

export interface ManagedCertificateOptions {
  readonly domain: ReservedDomain
  /** Where it outlives the process. */
  readonly path: string
  readonly clock: Clock
  readonly log: Logger
}

/** Where the certificate of a reserved domain stands. Times are milliseconds since the epoch. */
export interface CertificateStatus {
  readonly renewsAt: number | undefined
  readonly endsAt?: number | undefined
  /** The issue that is under way, or that failed last. */
  readonly job: CertificateJob | undefined
}

export interface CertificateJob {
  readonly startedAt: number
  /** What went wrong, for people; undefined while it is under way. */
  readonly error: string | undefined
  readonly retriesAt: number | undefined
  /** Since when one issue after the other has failed, where all gateways of a site know that. */
  readonly failingSince?: number | undefined
}

/** A certificate is replaced when a third of its life is left. */
const RENEW_AT_SHARE = 1 / 3
/** How far the clock of an authority may be ahead of ours. */
const CLOCK_SKEW_MS = 300_000

export interface ServerCertificateOptions {
  /** Where the certificate outlives the process; without it, it does not. */
  readonly path?: string
  /** Asked each time: the addresses of a machine change. */
  readonly names: () => readonly string[]
  readonly keyType?: PrivateKeyType
  readonly authority: CertificateSource
  readonly clock: Clock
  readonly log: Logger
}

/** One certificate: issued when it is missing, replaced before it ends. */
export class ServerCertificate {
  readonly #options: ServerCertificateOptions
  #kept: KeptCertificate | undefined
  #served: ServedCertificate | undefined
  #isSaved = true

  constructor(options: ServerCertificateOptions) {
    this.#options = options
  }

  /** When it will be replaced, in milliseconds since the epoch; undefined before the first issue. */
  get renewsAt(): number | undefined {
    return this.#kept && renewalOf(this.#kept)
  }

  /** When it is no good any more. */
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

  /** True when there is none to serve, or one that has to be replaced. */
  get isDue(): boolean {
    const kept = this.#kept
    return !kept || !this.#isValid(kept) || this.#options.clock.now() >= renewalOf(kept)
  }

  /** Loads or issues what is needed. True when there is something new to serve. */
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
   * Puts what is served on the disk, unless it is there. A failure is logged and no reason to throw
   * the certificate away: authorities issue the same few times a week. The next call tries again.
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
   * Serves what was issued elsewhere, unless it is not valid here or ends before what is served. False
   * when it is not served. Throws when it is no certificate with its key.
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

  /** Serves what an earlier process kept, if it is still valid. True when there is such a thing. */
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
    return (
      notBefore <= now + CLOCK_SKEW_MS &&
      now < notAfter &&
      keyType === (this.#options.keyType ?? 'ecdsa') &&
      this.#options.names().every((name) => names.includes(normalName(name)))
    )
  }
}

function renewalOf({ notBefore, notAfter }: KeptCertificate): number {
  return notAfter - (notAfter - notBefore) * RENEW_AT_SHARE
}
