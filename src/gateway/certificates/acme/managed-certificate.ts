import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import type { ReservedDomain } from '../../records/reserved-domain-store.ts'
import type { ServedCertificate } from '../certificate-file.ts'
import type { CertificateStatus } from '../certificate-status.ts'

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
