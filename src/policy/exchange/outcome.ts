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
