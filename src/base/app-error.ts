/**
 * Errors shown to people and programs: stable code, HTTP status, title. The detail is written where the error
 * is created, because only that code knows the fix.
 */
export const ERRORS = {
  'invalid-json': { status: 400, title: 'Invalid JSON' },
  'invalid-request': { status: 400, title: 'Invalid request fields' },
  'malformed-request': { status: 400, title: 'Invalid HTTP request' },
  unauthenticated: { status: 401, title: 'Bearer token required' },
  forbidden: { status: 403, title: 'Not allowed' },
  'insufficient-scope': { status: 403, title: 'Token lacks the scope "write"' },
  'not-found': { status: 404, title: 'Not found' },
  'tunnel-not-found': { status: 404, title: 'Tunnel not found' },
  'token-not-found': { status: 404, title: 'Token not found' },
  'exchange-not-found': { status: 404, title: 'Exchange not found' },
  'method-not-allowed': { status: 405, title: 'Method not allowed' },
  'request-timeout': { status: 408, title: 'Request timed out' },
  'domain-taken': { status: 409, title: 'Domain already has a tunnel' },
  'ambiguous-tunnel': { status: 409, title: 'Tunnel name is ambiguous' },
  'domain-online-elsewhere': { status: 409, title: 'Domain is online elsewhere' },
  'too-many-tunnels': { status: 409, title: 'Tunnel limit reached' },
  'token-name-taken': { status: 409, title: 'Token name already in use' },
  'too-many-tokens': { status: 409, title: 'Token limit reached' },
  'token-given': { status: 409, title: 'Token is set by AGENT_API_TOKEN' },
  'too-many-inspections': { status: 409, title: 'Inspection limit reached' },
  'not-inspectable': { status: 409, title: 'Tunnel cannot be inspected' },
  'not-replayable': { status: 409, title: 'Request cannot be sent again' },
  'precondition-failed': { status: 412, title: 'Precondition failed (If-Match or If-None-Match)' },
  'body-too-large': { status: 413, title: 'Request body too large' },
  'not-json': { status: 415, title: 'Content-Type must be application/json' },
  'misdirected-host': { status: 421, title: 'Unknown host name' },
  'policy-invalid': { status: 422, title: 'Invalid policy' },
  'forwards-to-not-allowed': { status: 422, title: 'Forwarding target not allowed' },
  'service-refused': { status: 422, title: 'Tunnel refused by the gateway' },
  'too-many-requests': { status: 429, title: 'Too many requests' },
  'headers-too-large': { status: 431, title: 'Request headers too large' },
  internal: { status: 500, title: 'Internal error of the agent' },
  'policy-not-checked': { status: 503, title: 'Policy check timed out' },
  starting: { status: 503, title: 'Agent is starting' },
  'shutting-down': { status: 503, title: 'Agent is stopping' },
  'storage-unavailable': { status: 503, title: 'Storage is not writable' },
  'storage-full': { status: 507, title: 'Storage is full' },
} as const satisfies Record<string, { status: number; title: string }>

export type ErrorCode = keyof typeof ERRORS

/** An invalid field: its position (RFC 6901 JSON pointer) and the problem. */
export interface FieldError {
  readonly pointer: string
  readonly detail: string
  readonly code?: string
}

export interface AppErrorOptions {
  readonly errors?: readonly FieldError[]
  /** Error code of the connectivity service, such as `ERR_NGROK_334` or `ERR_GATEWAY_KEY_SCOPE`. */
  readonly serviceCode?: string | undefined
  readonly retryAfterS?: number
  readonly cause?: unknown
}

/** An error with text for users. `detail` must not contain a stack, a path or a secret. */
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

/** Stops a start or a command. Its one sentence names the cause and the fix. */
export class StartError extends Error {
  override readonly name = 'StartError'
}
