import type { ErrorKind } from '../../error-pages/error-kind.ts'
import type { SyntaxFault } from '../syntax/http-syntax.ts'
import type { VisitorError } from './error-reply.ts'

interface EdgeError {
  readonly status: number
  readonly sentence: string
  /** Page for a browser; default: the page for all other errors. */
  readonly kind?: ErrorKind
  /** When it may be better, in seconds. */
  readonly retryAfterS?: number
  /** Further fields for the client. */
  readonly fields?: readonly string[]
}

/** Responses of the gateway itself, without a response of a device. */
export const EDGE_ERRORS = {
  ERR_GATEWAY_BAD_REQUEST: { status: 400, sentence: 'The request is not valid HTTP.' },
  ERR_NGROK_3206: {
    status: 400,
    sentence: 'This endpoint only accepts WebSocket connections.',
    // RFC 6455 4.4.
    fields: ['sec-websocket-version', '13'],
  },
  ERR_NGROK_3200: {
    status: 404,
    kind: 'unknown',
    sentence: 'No endpoint is online at this address.',
  },
  ERR_GATEWAY_REQUEST_TIMEOUT: { status: 408, sentence: 'The request was not received in time.' },
  ERR_GATEWAY_EXPECTATION: {
    status: 417,
    sentence: 'The expectation of the request is not supported.',
  },
  ERR_GATEWAY_MISDIRECTED: {
    status: 421,
    sentence: 'The host of the request does not match the TLS connection.',
  },
  ERR_GATEWAY_HEAD_TOO_LARGE: { status: 431, sentence: 'The request headers are too large.' },
  ERR_NGROK_2254: { status: 500, sentence: 'The traffic policy failed.' },
  ERR_NGROK_6029: {
    status: 500,
    sentence: 'The traffic policy of this cloud endpoint neither answers nor forwards the request.',
  },
  ERR_GATEWAY_NOT_IMPLEMENTED: {
    status: 501,
    sentence: 'The request method or protocol feature is not supported.',
  },
  ERR_NGROK_3004: {
    status: 502,
    kind: 'upstream_failed',
    sentence: 'The device sent an invalid or incomplete HTTP response.',
  },
  ERR_NGROK_3210: {
    status: 502,
    kind: 'upstream_failed',
    sentence: 'The connection to the device was lost.',
  },
  ERR_NGROK_8012: {
    status: 502,
    kind: 'upstream_failed',
    sentence:
      'The device is online, but its local service cannot be reached. Is the service running?',
  },
  ERR_GATEWAY_UNTRUSTED: {
    status: 502,
    kind: 'upstream_failed',
    sentence: 'The device is online, but does not trust the certificate of its local service.',
  },
  ERR_GATEWAY_OLD_TLS: {
    status: 502,
    kind: 'upstream_failed',
    sentence: 'The device is online, but its local service only offers an old version of TLS.',
  },
  ERR_GATEWAY_STALE_CONNECTION: {
    status: 502,
    kind: 'upstream_failed',
    sentence:
      'The local service closed the connection while it was being reused. Send the request again.',
  },
  ERR_GATEWAY_AWAY: {
    status: 503,
    kind: 'offline',
    sentence: 'The device is offline. Try again in a moment.',
    retryAfterS: 5,
  },
  ERR_GATEWAY_SATURATED: {
    status: 503,
    kind: 'busy',
    sentence: 'The device is at its limit of concurrent requests. Try again in a moment.',
    retryAfterS: 1,
  },
  ERR_GATEWAY_BUSY: {
    status: 503,
    kind: 'busy',
    sentence:
      'The local service of the device is at its limit of connections. Try again in a moment.',
    retryAfterS: 5,
  },
  ERR_GATEWAY_LINK_FULL: {
    status: 503,
    kind: 'busy',
    sentence:
      'The connection between two gateways is at its limit of concurrent requests. Try again in a moment.',
    retryAfterS: 1,
  },
  ERR_NGROK_3005: {
    status: 504,
    kind: 'upstream_failed',
    sentence: 'The device is online, but its local service did not answer in time.',
  },
} as const satisfies Record<string, EdgeError>

/** Counted when a response is aborted because its client does not read it. */
export const TOO_SLOW = 'ERR_GATEWAY_TOO_SLOW'

export type EdgeErrorCode = keyof typeof EDGE_ERRORS

/** Responses to invalid requests. */
export const FAULT_CODES: Record<SyntaxFault, EdgeErrorCode> = {
  malformed: 'ERR_GATEWAY_BAD_REQUEST',
  'too-large': 'ERR_GATEWAY_HEAD_TOO_LARGE',
  'unmet-expectation': 'ERR_GATEWAY_EXPECTATION',
  'not-implemented': 'ERR_GATEWAY_NOT_IMPLEMENTED',
}

/** The error of a code. `detail` says more in a sentence and is shown as it is. */
export function edgeError(code: EdgeErrorCode, detail?: string): VisitorError {
  const {
    status,
    sentence,
    kind = 'default',
    retryAfterS,
    fields = [],
  }: EdgeError = EDGE_ERRORS[code]
  const text = detail === undefined ? sentence : `${sentence} ${detail}`
  const after = retryAfterS === undefined ? [] : ['retry-after', String(retryAfterS)]
  return {
    status,
    kind,
    code,
    sentence: text,
    text: `${text} (${code})\n`,
    fields: ['cache-control', 'no-store', 'ngrok-error-code', code, ...fields, ...after],
    retryAfterS,
  }
}
