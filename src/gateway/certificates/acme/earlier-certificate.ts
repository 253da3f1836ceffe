import { X509Certificate } from 'node:crypto'
import type { Clock } from '../../../base/clock.ts'
import { PRIVATE_KEY_TYPES } from '../../records/private-key.ts'
import type { ReservedDomain } from '../../records/reserved-domain-store.ts'
import {
  type IssuedCertificate,
  loadCertificate,
  type ServedCertificate,
  served,
} from '../certificate-file.ts'
import type { OrderBook } from './order-book.ts'

export interface EarlierCertificateOptions {
  readonly domain: Pick<ReservedDomain, 'id' | 'domain'>
  /** File of the certificate. */
  readonly path: string
  /** The same certificate in memory, if this process has served it. */
  readonly known?: ServedCertificate | undefined
  readonly clock: Clock
}

interface SharedOptions {
  /** Name of the authority. */
  readonly authority: string
  readonly book: OrderBook | undefined
}

/**
 * Certificate that an authority issued under an earlier certificate policy. It is served while it is valid,
 * and never renewed. It is read when it is first needed.
 */
export class EarlierCertificate {
  readonly #options: EarlierCertificateOptions & SharedOptions
  #isRead = false
  #found: { readonly served: ServedCertificate; readonly endsAt: number } | undefined
  /** Numbers of the last records of the cluster, by key type. */
  readonly #seen = new Map<string, number>()

  constructor(options: EarlierCertificateOptions & SharedOptions) {
    this.#options = options
  }

  /** Undefined if there is no such certificate, or it is not valid now. */
  get served(): ServedCertificate | undefined {
    if (!this.#isRead) this.#read()
    if (!this.#found) this.#readRecords()
    const { clock } = this.#options
    if (this.#found && this.#found.endsAt <= clock.now()) this.#found = undefined
    return this.#found?.served
  }

  #read(): void {
    this.#isRead = true
    const { path, known } = this.#options
    const found = known ?? loadCertificate(path, { hasIssued: () => true })
    if (found) this.#use(found, known)
  }

  /** Other gateways may have ordered it. */
  #readRecords(): void {
    const { domain, authority, book } = this.#options
    for (const keyType of book ? PRIVATE_KEY_TYPES : []) {
      const record = book?.find({ domainId: domain.id, authority, keyType })
      if (!record?.pem || this.#seen.get(keyType) === record.number) continue
      this.#seen.set(keyType, record.number)
      this.#use({ certPem: record.pem, keyPem: record.pem })
    }
  }

  #use(issued: IssuedCertificate, known?: ServedCertificate): void {
    try {
      const leaf = new X509Certificate(issued.certPem)
      const endsAt = Date.parse(leaf.validTo)
      const { domain, clock } = this.#options
      const isForName = leaf.checkHost(domain.domain.replace(/^\*/, 'any')) !== undefined
      if (!isForName || endsAt <= clock.now()) return
      this.#found = { served: known ?? served(issued), endsAt }
    } catch {
      // A damaged certificate is none.
    }
  }
}
