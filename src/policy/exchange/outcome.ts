/** An answer that a policy gives instead of the upstream. */
export interface Reply {
  readonly status: number
  /** Name and value in turn, without `content-length`. */
  readonly headers: readonly string[]
  readonly body: string
  /** `ERR_NGROK_…` when the answer is an error of the service; also in `ngrok-error-code`. */
  readonly errorCode?: string
}

/** What is to happen after a phase has run. */
export type Outcome =
  | { readonly kind: 'continue' }
  /** `runsResponsePhase`: the reply still goes through the rules of `on_http_response`. */
  | { readonly kind: 'respond'; readonly reply: Reply; readonly runsResponsePhase: boolean }
  /** The connection is dropped without an answer. */
  | { readonly kind: 'close' }
  /** The request goes to the endpoint with this URL, whose own policy then runs. */
  | { readonly kind: 'forward'; readonly url: string }

export type MaybePromise<T> = T | Promise<T>

export const CONTINUE: Outcome = { kind: 'continue' }
export const CLOSE: Outcome = { kind: 'close' }

export function respond(reply: Reply, runsResponsePhase = false): Outcome {
  return { kind: 'respond', reply, runsResponsePhase }
}

/** An answer of the service itself: plain text, with the code in the header that clients look at. */
export function refuse(
  status: number,
  errorCode: string,
  message: string,
  headers: readonly string[] = [],
): Outcome {
  const own = ['content-type', 'text/plain; charset=utf-8', 'ngrok-error-code', errorCode]
  const body = `${message} (${errorCode})\n`
  return respond({ status, errorCode, headers: [...own, ...headers], body })
}

/** What `error` of an action's results says: texts that are empty when nothing went wrong. */
export type ResultError = {
  readonly code: string
  readonly message: string
}

export const NO_ERROR: ResultError = { code: '', message: '' }

type TlsVersion = 'TLSv1.2' | 'TLSv1.3'

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
