import type { MaybePromise } from './outcome.ts'

export type TlsVersion = 'TLSv1.2' | 'TLSv1.3'

/**
 * Whether a client is asked for a certificate, has to have one, and has to have one that an authority
 * has signed.
 */
export type ClientCertificates = 'none' | 'request' | 'require-any' | 'require-and-verify'

/** How TLS ends at the gateway. */
export interface TlsTerms {
  /** Equal for equal terms. */
  readonly id: string
  readonly minVersion: TlsVersion
  readonly maxVersion: TlsVersion
  /** PEM; unless given, the certificate of the domain. */
  readonly own: { readonly certPem: string; readonly keyPem: string } | undefined
  readonly clientCertificates: ClientCertificates
  /** PEM of those that sign certificates of clients. */
  readonly authorities: readonly string[]
}

/**
 * What becomes of TLS: it has ended as it was asked for, the client and the terms did not come to an
 * agreement, or it had ended in another way before.
 */
export type TlsEnding = 'ended' | 'failed' | 'otherwise'

/** Ends TLS of a connection that a policy judges. */
export type EndTls = (terms: TlsTerms) => MaybePromise<TlsEnding>
