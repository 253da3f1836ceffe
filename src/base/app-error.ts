/**
 * Every error that people or programs see: stable code, HTTP status, title.
 * The detail is written where the error is made, because only that place knows what to do.
 */
export const ERRORS = {
  'invalid-json': { status: 400, title: 'The body is not valid JSON' },
  'invalid-request': { status: 400, title: 'The request has fields that cannot be accepted' },
  'malformed-request': { status: 400, title: 'The request is not valid HTTP' },
  unauthenticated: { status: 401, title: 'A bearer token is needed' },
  forbidden: { status: 403, title: 'This is not allowed' },
  'insufficient-scope': { status: 403, title: 'The token may only read' },
  'not-found': { status: 404, title: 'There is nothing here' },
  'tunnel-not-found': { status: 404, title: 'There is no such tunnel' },
  'token-not-found': { status: 404, title: 'There is no such token' },
  'exchange-not-found': { status: 404, title: 'There is no such exchange' },
  'method-not-allowed': { status: 405, title: 'This path does not take that method' },
  'request-timeout': { status: 408, title: 'The request did not arrive in time' },
  'domain-taken': { status: 409, title: 'The domain has a tunnel already' },
  'ambiguous-tunnel': { status: 409, title: 'More than one tunnel has that name' },
  'domain-online-elsewhere': { status: 409, title: 'The domain is online somewhere else' },
  'too-many-tunnels': { status: 409, title: 'The device holds as many tunnels as it may' },
  'token-name-taken': { status: 409, title: 'A token has that name already' },
  'too-many-tokens': { status: 409, title: 'There are as many tokens as there may be' },
  'token-given': { status: 409, title: 'The token is a setting' },
  'too-many-inspections': { status: 409, title: 'As many tunnels are inspected as may be' },
  'not-inspectable': { status: 409, title: 'The tunnel cannot be inspected' },
  'not-replayable': { status: 409, title: 'The request cannot be sent again' },
  'precondition-failed': { status: 412, title: 'It is not as the caller has seen it' },
  'body-too-large': { status: 413, title: 'The body is too large' },
  'not-json': { status: 415, title: 'The body must be application/json' },
  'misdirected-host': { status: 421, title: 'This host name is not served here' },
  'policy-invalid': { status: 422, title: 'The policy cannot be used' },
  'forwards-to-not-allowed': { status: 422, title: 'The device may not forward there' },
  'service-refused': { status: 422, title: 'The service refused the tunnel' },
  'too-many-requests': { status: 429, title: 'Too many requests' },
  'headers-too-large': { status: 431, title: 'The headers are too large' },
  internal: { status: 500, title: 'The agent made a mistake' },
  'policy-not-checked': { status: 503, title: 'The policy was not checked in time' },
  starting: { status: 503, title: 'The agent is starting' },
  'shutting-down': { status: 503, title: 'The agent is stopping' },
  'storage-unavailable': { status: 503, title: 'The storage cannot be written' },
  'storage-full': { status: 507, title: 'The storage is full' },
} as const satisfies Record<string, { status: number; title: string }>

export type ErrorCode = keyof typeof ERRORS

/** One bad field: where it stands (RFC 6901 JSON pointer) and what is wrong with it. */
export interface FieldError {
  readonly pointer: string
  readonly detail: string
  readonly code?: string
}

export interface AppErrorOptions {
  readonly errors?: readonly FieldError[]
  /** The connectivity service's own code, such as `ERR_NGROK_334` or `ERR_GATEWAY_KEY_SCOPE`. */
  readonly serviceCode?: string | undefined
  readonly retryAfterS?: number
  readonly cause?: unknown
}

/** An error whose text may be shown: no stack, path or secret belongs into `detail`. */
export class AppError extends Error {
  override readonly name = 'AppError'
  readonly code: ErrorCode
  readonly errors: readonly FieldError[]
  readonly serviceCode: string | undefined
  readonly retryAfterS: number | undefined

  constructor(code: ErrorCode, detail: string, options: AppErrorOptions = {}) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.errors = options.errors ?? []
    this.serviceCode = options.serviceCode
    this.retryAfterS = options.retryAfterS
  }

  get status(): number {
    return ERRORS[this.code].status
  }

  get title(): string {
    return ERRORS[this.code].title
  }
}

/** The one sentence that stops a start or a command: it names the cause and the way out. */
export class StartError extends Error {
  override readonly name = 'StartError'
}
