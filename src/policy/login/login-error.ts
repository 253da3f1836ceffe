import { type Outcome, type ResultError, refuse } from '../exchange/outcome.ts'

interface LoginFault {
  readonly status: number
  /** The service's own code for `openid-connect`, then for `oauth`, where it has one. */
  readonly codes: readonly [oidc: string, oauth: string]
  readonly sentence: string
}

/** Reasons of failed sign-ins. */
export const LOGIN_FAULTS = {
  'sign-in-needed': {
    status: 401,
    codes: ['ERR_GATEWAY_SIGN_IN', 'ERR_GATEWAY_SIGN_IN'],
    sentence: 'Sign-in required.',
  },
  'bad-state': {
    status: 400,
    codes: ['ERR_NGROK_5200', 'ERR_NGROK_3120'],
    sentence: 'The sign-in was not started at this endpoint.',
  },
  'no-nonce': {
    status: 400,
    codes: ['ERR_NGROK_3121', 'ERR_NGROK_3121'],
    sentence: 'The sign-in was started in another browser, or its cookie is missing.',
  },
  late: {
    status: 400,
    codes: ['ERR_NGROK_5209', 'ERR_NGROK_3122'],
    sentence: 'The sign-in was not completed in time.',
  },
  refused: {
    status: 403,
    codes: ['ERR_NGROK_5211', 'ERR_NGROK_3164'],
    sentence: 'The identity provider refused the sign-in.',
  },
  'no-metadata': {
    status: 502,
    codes: ['ERR_NGROK_5208', 'ERR_NGROK_3166'],
    sentence: 'The metadata of the identity provider could not be read.',
  },
  unreachable: {
    status: 502,
    codes: ['ERR_NGROK_5202', 'ERR_NGROK_3166'],
    sentence: 'The identity provider did not answer, or sent an invalid answer.',
  },
  'bad-token': {
    status: 502,
    codes: ['ERR_NGROK_5204', 'ERR_NGROK_3166'],
    sentence: 'The token of the identity provider could not be verified.',
  },
  'session-too-large': {
    status: 502,
    codes: ['ERR_GATEWAY_SESSION_TOO_LARGE', 'ERR_GATEWAY_SESSION_TOO_LARGE'],
    sentence:
      'The user details from the identity provider are too large for the session cookies. Request fewer scopes or claims.',
  },
  busy: {
    status: 503,
    codes: ['ERR_GATEWAY_SIGN_IN_BUSY', 'ERR_GATEWAY_SIGN_IN_BUSY'],
    sentence: 'Too many visitors are signing in at once.',
  },
} as const satisfies Record<string, LoginFault>

export type LoginFaultName = keyof typeof LOGIN_FAULTS

/** Which of the two actions it is for. */
export type LoginKind = 'oidc' | 'oauth'

/** Ends a sign-in, or a session. The cause is for the log; `detail` is shown to the visitor. */
export class LoginError extends Error {
  override readonly name = 'LoginError'
  readonly fault: LoginFaultName
  readonly detail: string | undefined

  constructor(
    fault: LoginFaultName,
    options: { readonly detail?: string; readonly cause?: unknown } = {},
  ) {
    super(LOGIN_FAULTS[fault].sentence, { cause: options.cause })
    this.fault = fault
    this.detail = options.detail
  }
}

/** Code and sentence, as later rules and the log have them. */
export function resultErrorOf({ fault, detail }: LoginError, kind: LoginKind): ResultError {
  const { codes, sentence } = LOGIN_FAULTS[fault]
  const message = detail === undefined ? sentence : `${sentence} Its answer: ${detail}.`
  return { code: codes[kind === 'oidc' ? 0 : 1], message }
}

/** The response to a visitor, who can sign in at `loginUrl`. Extra fields are names and values in turn. */
export function refuseLogin(
  error: LoginError,
  { kind, loginUrl }: { readonly kind: LoginKind; readonly loginUrl: string },
  fields: readonly string[],
): Outcome {
  const { status } = LOGIN_FAULTS[error.fault]
  const { code, message } = resultErrorOf(error, kind)
  const own = ['cache-control', 'no-store']
  // RFC 9110 15.5.2 wants to know how to do better, and there is no scheme for it but this draft's.
  const challenge = status === 401 ? ['www-authenticate', 'Cookie'] : []
  return refuse(status, code, `${message} Sign in at ${loginUrl}.`, [
    ...own,
    ...challenge,
    ...fields,
  ])
}
