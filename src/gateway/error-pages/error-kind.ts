/** What went wrong, as a visitor sees it. `default`: everything else. */
export const ERROR_KINDS = [
  'unknown',
  'offline',
  'busy',
  'too_many_requests',
  'upstream_failed',
  'default',
] as const

export type ErrorKind = (typeof ERROR_KINDS)[number]

interface KindTexts {
  readonly title: string
  /** Replaces the sentence of the error, which may say more about the device than a visitor needs. */
  readonly message?: string
  readonly hints: readonly string[]
}

const OWNER_HINT = 'If the problem continues, tell the owner of this site the request ID.'

/** Texts for visitors. `default` has the sentence of the error. */
export const KIND_TEXTS: Readonly<Record<ErrorKind, KindTexts>> = {
  unknown: {
    title: 'Address not found',
    message: 'No site is online at this address.',
    hints: [
      'Check the address for typing errors.',
      'If the address is correct, tell the owner of this site the request ID.',
    ],
  },
  offline: {
    title: 'Device offline',
    message: 'The device behind this address is not connected at the moment.',
    hints: [OWNER_HINT],
  },
  busy: {
    title: 'Too busy',
    message: 'The device behind this address has too many requests at the moment.',
    hints: [OWNER_HINT],
  },
  too_many_requests: {
    title: 'Too many requests',
    message: 'You have sent too many requests in a short time.',
    hints: [],
  },
  upstream_failed: {
    title: 'Service not available',
    message: 'The device is online, but its service did not answer correctly.',
    hints: [OWNER_HINT],
  },
  default: { title: 'Request failed', hints: [OWNER_HINT] },
}

/** Values of one error, for a page. */
export interface ErrorValues {
  readonly status: number
  readonly title: string
  readonly message: string
  readonly host: string
  readonly requestId: string
  /** `ERR_…`; not every answer of a policy has a code. */
  readonly code: string | undefined
  readonly retryAfterS: number | undefined
}

/** Escapes a text for HTML content and for quoted attributes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}
