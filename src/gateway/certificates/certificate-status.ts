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
