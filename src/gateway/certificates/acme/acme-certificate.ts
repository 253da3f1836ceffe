import { Backoff } from '../../../base/backoff.ts'
import type { Clock } from '../../../base/clock.ts'
import { AutoResetEvent } from '../../../base/deferred.ts'
import { SlidingLog } from '../../../base/limiter.ts'
import type { Logger } from '../../../base/logger.ts'
import type { ServedCertificate } from '../certificate-file.ts'
import {
  type CertificateJob,
  type CertificateStatus,
  type ManagedCertificate,
  ServerCertificate,
  type ServerCertificateOptions,
} from '../server-certificate.ts'
import type { Gated, OrderGate } from './order-gate.ts'

const MAX_MESSAGE = 1_000

/** Reason why an authority did not issue, for people: one line without control characters. */
export function issueErrorText(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  // PostgreSQL accepts no NUL, and control characters could affect a terminal.
  const line = message.replace(/\p{Cc}+/gu, ' ')
  return `The authority did not issue the certificate: ${line.slice(0, MAX_MESSAGE)}`
}

/** Authorities limit failed orders, often to five per hour and name. */
const RETRY_BASE_MS = 300_000
const RETRY_FLOOR_MS = 60_000
const RETRY_CAP_MS = 43_200_000
/** Delay before the gate is asked for its delay. */
const AT_ONCE_MS = 1
/** Interval for checking whether a renewal is due, in milliseconds. */
const CHECK_MS = 600_000
/** Manual retries per hour. */
const EARLY_RETRIES = 3
const HOUR_MS = 3_600_000

/** Orders, retries and renews one certificate until `stop()`. */
export class AcmeCertificate implements ManagedCertificate {
  readonly #certificate: ServerCertificate
  readonly #gate: OrderGate | undefined
  readonly #clock: Clock
  readonly #log: Logger
  readonly #backoff = new Backoff({ baseMs: RETRY_BASE_MS, capMs: RETRY_CAP_MS })
  readonly #early: SlidingLog
  readonly #changed = new AutoResetEvent()
  #isStopped = false
  /** A person asked for a retry, so the delay after a failure is skipped. */
  #isEarly = false
  #job: CertificateJob | undefined

  constructor(options: ServerCertificateOptions & Gated) {
    const { authority, gate, clock, log } = options
    this.#gate = gate
    this.#certificate = new ServerCertificate({
      ...options,
      authority: {
        issue: async (names, keyType) => {
          const issued = await authority.issue(names, keyType)
          // Orders take a while. The domain may have been released meanwhile, and its files deleted.
          if (this.#isStopped) throw new Error('the certificate is no longer needed')
          return issued
        },
        hasIssued: (certificate) => authority.hasIssued(certificate),
      },
    })
    this.#early = new SlidingLog({ capacity: EARLY_RETRIES, windowMs: HOUR_MS, clock })
    this.#clock = clock
    this.#log = log
  }

  get served(): ServedCertificate | undefined {
    return this.#certificate.served
  }

  get status(): CertificateStatus {
    const { renewsAt, endsAt } = this.#certificate
    return { renewsAt, endsAt, job: this.#job }
  }

  start(): void {
    this.#certificate.restore()
    void this.#run()
  }

  retry(): void {
    if (this.#job?.error === undefined || this.#early.tryCount('') > 0) return
    this.#isEarly = true
    this.#changed.set()
  }

  stop(): void {
    this.#isStopped = true
    this.#changed.set()
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      this.#certificate.save()
      const waitMs = this.#certificate.isDue ? await this.#order() : CHECK_MS
      await this.#changed.wait(this.#clock, waitMs)
    }
  }

  /** Returns the milliseconds until the next step. */
  async #order(): Promise<number> {
    const startedAt = this.#clock.now()
    try {
      const refusal = await this.#refusal()
      if (refusal) {
        const { waitMs, reason } = refusal
        const retriesAt = this.#clock.now() + waitMs
        this.#job = reason === undefined ? undefined : { startedAt, error: reason, retriesAt }
        return waitMs
      }
      this.#job = { startedAt, error: undefined, retriesAt: undefined }
      await this.#certificate.refresh()
      await this.#gate?.conclude()
      this.#job = undefined
      this.#backoff.reset()
      this.#log.info('certificate ready')
      return CHECK_MS
    } catch (error) {
      const isCounted = (await this.#gate?.conclude(issueErrorText(error))) === true
      // The gate has the delay after an order that it counted, and says it at the next step.
      const waitMs = isCounted ? AT_ONCE_MS : Math.max(RETRY_FLOOR_MS, this.#backoff.next())
      this.#log.warn({ err: error }, 'certificate not issued, will retry')
      if (!isCounted) {
        const retriesAt = this.#clock.now() + waitMs
        this.#job = { startedAt, error: issueErrorText(error), retriesAt }
      }
      return waitMs
    }
  }

  /** Why no order may be placed now. Without a reason, none is needed. */
  async #refusal(): Promise<{ waitMs: number; reason?: string } | undefined> {
    const isEarly = this.#isEarly
    this.#isEarly = false
    const isRenewal = this.#certificate.kept !== undefined
    const verdict = await this.#gate?.check({ isRenewal, isEarly })
    return verdict === undefined || verdict.kind === 'go' ? undefined : verdict
  }
}
