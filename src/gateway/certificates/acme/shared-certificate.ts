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

const CHECK_MS = 600_000
/** How soon it is tried again to reach the book. */
const AWAY_MS = 5_000

export interface SharedCertificateOptions extends ManagedCertificateOptions {
  /** Names the authority. */
  readonly authority: string
  readonly book: OrderBook
  readonly issue: (names: readonly string[], order: SiteOrder) => Promise<IssuedCertificate>
}

/**
 * A certificate that several gateways serve and one of them orders.
 *
 * INVARIANTS
 * - What the book has is served here, and kept in a file: without the book it goes on being served.
 * - What is served here and is better than what the book has comes into the book, without another order.
 * - Nothing is ordered without a claim; whoever has one concludes it.
 */
export class SharedCertificate implements ManagedCertificate {
  readonly #options: SharedCertificateOptions
  readonly #id: CertificateId
  readonly #certificate: ServerCertificate
  readonly #changed = new AutoResetEvent()
  #order: SiteOrder | undefined
  #isStopped = false
  /** Why this gateway may not order at the moment, for people. */
  #problem: string | undefined
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
          const issued = await issue(names, this.#order)
          // Orders take a while; the domain may have been given up meanwhile, with its files.
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
    if (!isWaiting) return { renewsAt, endsAt, job: undefined }
    const job = {
      startedAt: startedAt ?? this.#options.clock.now(),
      error: error ?? this.#problem,
      retriesAt,
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

  /** Serves what the book has, where that is the better one. */
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
      if (this.#isWanted()) {
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

  /** There is none that is good, or the others have not got this one. */
  #isWanted(): boolean {
    const { kept, isDue } = this.#certificate
    return isDue || !kept || this.#record.pem !== pemOf(kept)
  }

  async #place(order: SiteOrder): Promise<void> {
    const { log } = this.#options
    this.#order = order
    try {
      await this.#certificate.refresh()
      const { kept } = this.#certificate
      if (!kept) throw new Error('no certificate')
      await order.conclude(this.#isStopped ? {} : { pem: pemOf(kept) })
      log.info('certificate ready')
    } catch (error) {
      if (!this.#isStopped) log.warn({ err: error }, 'certificate not issued')
      await order.conclude(this.#isStopped ? {} : { error: issueErrorText(error) })
    } finally {
      this.#order = undefined
    }
  }
}
