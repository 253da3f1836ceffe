import { AutoResetEvent } from '../../../base/deferred.ts'
import { type IssuedCertificate, pemOf, type ServedCertificate } from '../certificate-file.ts'
import {
  type CertificateStatus,
  type ManagedCertificate,
  type ManagedCertificateOptions,
  ServerCertificate,
} from '../server-certificate.ts'
import { issueErrorText } from './acme-certificate.ts'
import type { CertificateId, CertificateRecord, OrderBook, SiteOrder } from './order-book.ts'
import type { Gated } from './order-gate.ts'

/** Interval for checking whether a renewal is due, in milliseconds. */
const CHECK_MS = 600_000
/** Delay before the next attempt to reach the order book, in milliseconds. */
const AWAY_MS = 5_000

export interface SharedCertificateOptions extends ManagedCertificateOptions, Gated {
  /** Name of the authority. */
  readonly authority: string
  readonly book: OrderBook
  readonly issue: (
    names: readonly string[],
    isRenewal: boolean,
    order: SiteOrder,
  ) => Promise<IssuedCertificate>
}

/**
 * A certificate that several gateways serve and one gateway orders.
 *
 * INVARIANTS
 * - The certificate in the order book is served here and saved to a file, so it is served even if the order
 *   book is unreachable.
 * - If the local certificate is better than that in the order book, it is stored there without another order.
 * - Every order needs a claim, and the gateway with the claim concludes it.
 */
export class SharedCertificate implements ManagedCertificate {
  readonly #options: SharedCertificateOptions
  readonly #id: CertificateId
  readonly #certificate: ServerCertificate
  readonly #changed = new AutoResetEvent()
  #order: SiteOrder | undefined
  #isStopped = false
  /** Reason why this gateway may not order at the moment, for people. */
  #problem: string | undefined
  #problemEndsAt: number | undefined
  /** No certificate is needed, although none is there. */
  #isUnwanted = false
  #unfollow = () => {}

  constructor(options: SharedCertificateOptions) {
    const { domain, authority, issue } = options
    this.#options = options
    this.#id = { domainId: domain.id, authority, keyType: domain.privateKeyType }
    this.#certificate = new ServerCertificate({
      ...options,
      names: () => [domain.domain],
      keyType: domain.privateKeyType,
      authority: {
        issue: async (names) => {
          if (!this.#order) throw new Error('the order is not claimed')
          const isRenewal = this.#certificate.kept !== undefined
          const issued = await issue(names, isRenewal, this.#order)
          // Orders take a while. The domain may have been released meanwhile, and its files deleted.
          if (this.#isStopped) throw new Error('the certificate is no longer needed')
          return issued
        },
        hasIssued: () => true,
      },
    })
  }

  get served(): ServedCertificate | undefined {
    return this.#certificate.served
  }

  get status(): CertificateStatus {
    const { renewsAt, endsAt } = this.#certificate
    const { startedAt, error, retriesAt, failingSince } = this.#record
    const isWaiting = this.#certificate.isDue || error !== undefined
    if (!isWaiting || this.#isUnwanted) return { renewsAt, endsAt, job: undefined }
    const job = {
      startedAt: startedAt ?? this.#options.clock.now(),
      error: this.#problem ?? error,
      retriesAt: this.#problemEndsAt ?? retriesAt,
      failingSince,
    }
    return { renewsAt, endsAt, job }
  }

  start(): void {
    this.#certificate.restore()
    this.#unfollow = this.#options.book.follow(this.#id, () => this.#changed.set())
    void this.#run()
  }

  retry(): void {
    const { book, log } = this.#options
    if (this.#problemEndsAt !== undefined) this.#changed.set()
    if (this.#record.error === undefined) return
    book.retry(this.#id).catch((err: unknown) => log.warn({ err }, 'certificate order not retried'))
  }

  stop(): void {
    this.#isStopped = true
    this.#unfollow()
    this.#changed.set()
  }

  get #record(): CertificateRecord {
    return this.#options.book.find(this.#id)
  }

  /** Serves the certificate of the order book if it is better. */
  #accept(): void {
    const { pem } = this.#record
    if (pem === undefined) return
    try {
      this.#certificate.accept({ certPem: pem, keyPem: pem })
    } catch (err) {
      this.#options.log.error({ err }, 'the shared certificate cannot be used')
    }
  }

  async #run(): Promise<void> {
    const { clock, log, book } = this.#options
    while (!this.#isStopped) {
      this.#accept()
      this.#certificate.save()
      let waitMs = CHECK_MS
      const refusal = this.#isWanted() ? await this.#refusal() : undefined
      if (refusal) {
        waitMs = refusal.waitMs
      } else if (this.#isWanted()) {
        try {
          const claimed = await book.claim(this.#id, this.#record.number)
          this.#problem = 'order' in claimed ? undefined : claimed.problem
          if ('order' in claimed) await this.#place(claimed.order)
          else waitMs = claimed.waitMs
        } catch (err) {
          log.debug({ err }, 'a certificate order was not claimed')
          waitMs = AWAY_MS
        }
      }
      await this.#changed.wait(clock, waitMs)
    }
  }

  /**
   * What the gate says against an order now. The order book has the delays after failures. Without an order
   * in its record, the delay of the name applies: its domain may have been reserved again.
   */
  async #refusal(): Promise<{ readonly waitMs: number } | undefined> {
    const { gate, clock } = this.#options
    this.#isUnwanted = false
    this.#problemEndsAt = undefined
    // A certificate from a file costs no order.
    if (!gate || !this.#certificate.isDue) return undefined
    const isRenewal = this.#certificate.kept !== undefined
    const isEarly = this.#record.startedAt !== undefined
    const verdict = await gate.check({ isRenewal, isEarly })
    if (verdict.kind === 'go') return undefined
    this.#isUnwanted = verdict.kind === 'unwanted'
    this.#problem = verdict.kind === 'later' ? verdict.reason : undefined
    this.#problemEndsAt = clock.now() + verdict.waitMs
    return verdict
  }

  /** Whether no good certificate exists, or the other gateways do not have it. */
  #isWanted(): boolean {
    const { kept, isDue } = this.#certificate
    return isDue || !kept || this.#record.pem !== pemOf(kept)
  }

  async #place(order: SiteOrder): Promise<void> {
    const { gate, log } = this.#options
    this.#order = order
    try {
      await this.#certificate.refresh()
      await gate?.conclude()
      const { kept } = this.#certificate
      if (!kept) throw new Error('no certificate')
      await order.conclude(this.#isStopped ? {} : { pem: pemOf(kept) })
      log.info('certificate ready')
    } catch (error) {
      await gate?.conclude(issueErrorText(error))
      if (!this.#isStopped) log.warn({ err: error }, 'certificate not issued')
      await order.conclude(this.#isStopped ? {} : { error: issueErrorText(error) })
    } finally {
      this.#order = undefined
    }
  }
}
