import type { Pace, ProxyStream, StreamClient, StreamWaiter } from '../../streams/proxy-stream.ts'
import type { RefusalKind } from '../../streams/service-connections.ts'
import type { EdgeErrorCode } from '../common/edge-error.ts'
import type { DeviceRequest } from '../common/incoming-request.ts'
import type { HeadScanner } from '../syntax/head-scanner.ts'
import type { ResponseHead } from '../syntax/response-head.ts'

const BODY_START = 'failed to dial backend: '
/** Longer than any text of the system behind the start above. */
const MAX_BODY_BYTES = 1_024
/** The names that the SDK's own answer has, all of them and in this order. */
const FIELD_NAMES = ['connection', 'content-length', 'date']

/**
 * Whether a response has the form of the SDK's response for a failed connection to the service. Only the
 * first response on a stream can be that, and its body has to be checked: a service may also answer 502.
 */
export function resemblesDialFailure({ status, fields, framing }: ResponseHead): boolean {
  return (
    status === 502 &&
    framing <= MAX_BODY_BYTES &&
    fields.length === 2 * FIELD_NAMES.length &&
    FIELD_NAMES.every((name, index) => fields[2 * index] === name)
  )
}

/** Why a device did not reach its service. `broken`: it took the connection, and reset it at once. */
export type DialFailure = 'unreachable' | 'untrusted' | 'old-tls' | 'broken'

/**
 * Texts of our agent and the SDK's TLS library, and of Linux and Windows. The leading space excludes names of
 * services. A port without a listener refuses; only an accepted connection is reset.
 */
const TOLD: readonly (readonly [RegExp, DialFailure])[] = [
  [/ certificate/i, 'untrusted'],
  [/ speaks a TLS that is too old$/, 'old-tls'],
  [/ connection reset|os error 10054/i, 'broken'],
]

/**
 * Meaning of such a response's body; undefined if it is not from the SDK. A response to HEAD has no body, so
 * it cannot be told from that of a service.
 */
export function dialFailureIn(body: Buffer, method: string): DialFailure | undefined {
  const text = body.toString('latin1')
  if (!text.startsWith(BODY_START)) return method === 'HEAD' ? 'unreachable' : undefined
  return TOLD.find(([pattern]) => pattern.test(text))?.[1] ?? 'unreachable'
}

/** Whether the body may become one with further data. */
export function mayBeDialFailure(body: Buffer): boolean {
  return BODY_START.startsWith(body.toString('latin1', 0, BODY_START.length))
}

/**
 * Reason for an incomplete response.
 * - `saturated`: the device has no free stream in time.
 * - `silent`: the device does not answer.
 * - `busy`: its service accepts no more connections in time.
 * - `link-full`: the link to its serving node has no free stream.
 * - `lost`: the session ended.
 * - `unreachable`: the SDK could not connect to the service.
 * - `untrusted`: the SDK does not trust the certificate of the service.
 * - `invalid`: the data is not HTTP.
 * - `broken`: it ended too early.
 * - `stale`: the service closed a kept connection during the request, which may not be repeated.
 */
export type ForwardFailure =
  | 'saturated'
  | 'silent'
  | 'busy'
  | 'link-full'
  | 'lost'
  | DialFailure
  | 'invalid'
  | 'stale'

/** Code for the visitor. */
export const FAILURE_CODES: Record<ForwardFailure, EdgeErrorCode> = {
  saturated: 'ERR_GATEWAY_SATURATED',
  silent: 'ERR_GATEWAY_AWAY',
  busy: 'ERR_GATEWAY_BUSY',
  'link-full': 'ERR_GATEWAY_LINK_FULL',
  lost: 'ERR_NGROK_3210',
  unreachable: 'ERR_NGROK_8012',
  untrusted: 'ERR_GATEWAY_UNTRUSTED',
  'old-tls': 'ERR_GATEWAY_OLD_TLS',
  invalid: 'ERR_NGROK_3004',
  broken: 'ERR_NGROK_3004',
  stale: 'ERR_GATEWAY_STALE_CONNECTION',
}

/** Source of streams; see `StreamPool`. */
export interface StreamSource {
  acquire(client: StreamClient, waiter: StreamWaiter): void
  /**
   * For a request that may be sent only once: reuses a stream only if the service does not close streams
   * unasked.
   */
  acquireOnce(client: StreamClient, waiter: StreamWaiter): void
  acquireFresh(client: StreamClient, waiter: StreamWaiter): void
  resume(stream: ProxyStream, client: StreamClient, waiter: StreamWaiter): void
  cancel(waiter: StreamWaiter): void
  noteRefused(stream: ProxyStream, kind: RefusalKind): boolean
  noteClosed(isBusy: boolean): void
}

/**
 * Answer of another node in place of a response. `closed`: a policy closed the connection. `elsewhere`: the
 * endpoint is not there, and the request was not used.
 */
export type PeerVerdict = 'closed' | 'elsewhere'

/** Receiver of the response. After `onSwitch`, `onComplete` or `onFailure`, no more calls follow. */
export interface ForwardOwner {
  /** A response with a 1xx status; the final one follows. */
  onInterim(head: ResponseHead): void
  /** `isMore`: body or end follow before this call stack ends. */
  onResponse(head: ResponseHead, isMore: boolean): void
  /**
   * A part of the body, as framed. False: it waits here, and `onRoom()` is called when it went on. `isLent`:
   * the bytes are valid only during the call.
   */
  onBody(chunk: Buffer, isLent: boolean): boolean
  /** The held bytes have changed. */
  onHeld(): void
  onComplete(): void
  /** A 101: from `rest` on, the stream speaks another protocol and belongs to the owner. */
  onSwitch(head: ResponseHead, rest: Buffer, stream: ProxyStream): void
  onFailure(failure: ForwardFailure): void
  /** In place of these three, from another node alone. */
  onVerdict(verdict: PeerVerdict): void
  /** See `StreamWaiter`. */
  readonly pace: Pace
  readonly isLasting: boolean
  evict(): void
}

export interface ForwardOptions {
  readonly pool: StreamSource
  readonly client: StreamClient
  readonly request: DeviceRequest
  /** The 101 to it, where the service speaks no HTTP: nothing of the request is sent. */
  readonly accepted?: ResponseHead | undefined
  /** Not in the middle of a head. */
  readonly scanner: HeadScanner
  readonly owner: ForwardOwner
  /** Whether no other exchange uses the stream, before or after this one. */
  readonly isAlone: boolean
}

/** One request on its way to the device, and the response to it. */
export interface Forward {
  readonly request: DeviceRequest
  /** Whether the other side is a gateway: its errors are not errors of a device. */
  readonly isToPeer: boolean
  /** Whether the owner gets no more events: the response is complete, failed or not wanted. */
  readonly isOver: boolean
  /** It has been on a stream: the device may have seen it. */
  readonly wasSent: boolean
  /** Bytes of the response that arrived and no longer wait. */
  readonly passedOn: number
  /** Bytes that have come and wait here. */
  readonly heldBytes: number
  /** Asks for a stream. */
  start(): void
  /** The owner's waiting data has gone on: the device may send as much again. */
  onRoom(): void
  /** The owner has lost interest. */
  abort(): void
}

/** Limit of 1xx responses to a request: they are not held back while a client does not read. */
export const MAX_INTERIMS = 32

/** Bytes of a body that are kept for a repetition, until the service has begun to answer. */
export const MAX_REPEATED_BYTES = 65_536

/** Idempotent methods (RFC 9110 9.2.2): PUT, DELETE and safe methods, also those of WebDAV. */
const IDEMPOTENT: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'OPTIONS',
  'PUT',
  'DELETE',
  'PROPFIND',
  'REPORT',
  'SEARCH',
])

/** True for a request that may go out twice, as long as its body can be sent from the start. */
export function isIdempotent({ method }: DeviceRequest): boolean {
  return IDEMPOTENT.has(method)
}

/** How often a request asks again for a connection that its service has refused. */
const MAX_REFUSALS = 20
/** The same where the service took it first and closed it: it may be the request that it closes it for. */
const MAX_CLOSES = 3

/** How often the service has refused the connections of one request. */
export class Refusals {
  #refusals = 0
  #closes = 0

  /** The service took a connection for it and closed it. */
  get wasClosed(): boolean {
    return this.#closes > 0
  }

  /** Whether the request asks again, once the service is known to be busy. */
  note(kind: RefusalKind): boolean {
    if (kind === 'closed') this.#closes += 1
    else this.#refusals += 1
    return this.#refusals <= MAX_REFUSALS && this.#closes <= MAX_CLOSES
  }
}
