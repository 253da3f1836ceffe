/** An answer that a policy gives instead of the upstream. */
export interface Reply {
  readonly status: number
  /** Name and value in turn, without `content-length`. */
  readonly headers: readonly string[]
  readonly body: string
  /** `ERR_NGROK_…` when the answer is an error of the service; also in `ngrok-error-code`. */
  readonly errorCode?: string
  /** Set on errors of the service, which browsers get as a page: what happened. */
  readonly sentence?: string
}

/** Next step after a phase. */
export type Outcome =
  | { readonly kind: 'continue' }
  /** `runsResponsePhase`: the reply still goes through the rules of `on_http_response`. */
  | { readonly kind: 'respond'; readonly reply: Reply; readonly runsResponsePhase: boolean }
  /** The connection is dropped without an answer. */
  | { readonly kind: 'close' }
  /** The request goes to the endpoint with this URL, whose policy runs next. */
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
  return respond({ status, errorCode, headers: [...own, ...headers], body, sentence: message })
}

/** The `error` of an action's result. Its texts are empty without an error. */
export type ResultError = {
  readonly code: string
  readonly message: string
}

export const NO_ERROR: ResultError = { code: '', message: '' }

type TlsVersion = 'TLSv1.2' | 'TLSv1.3'

/**
 * Whether a client is asked for a certificate, must present one, or must present one that an authority
 * signed.
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
  /** PEM of the authorities that sign client certificates. */
  readonly authorities: readonly string[]
}

/**
 * Result of ending TLS. `ended`: with the requested terms. `failed`: client and terms did not agree.
 * `otherwise`: it had already ended with other terms.
 */
export type TlsEnding = 'ended' | 'failed' | 'otherwise'

/** Ends TLS of a connection that a policy judges. */
export type EndTls = (terms: TlsTerms) => MaybePromise<TlsEnding>
