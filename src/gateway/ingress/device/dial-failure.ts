import type { ResponseHead } from '../syntax/response-head.ts'

const BODY_START = 'failed to dial backend: '
/** Longer than any text of the system behind the start above. */
const MAX_BODY_BYTES = 1_024
/** The names that the SDK's own answer has, all of them and in this order. */
const FIELD_NAMES = ['connection', 'content-length', 'date']

/**
 * True when a response has the shape of the one that the SDK makes when it cannot connect to the
 * device's service. Only the first response on a stream can be that, and its body has to be looked
 * at: a service may answer 502 by itself.
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
 * As our agent says it and the TLS library of the SDK, and as Linux and Windows do; no name of a
 * service has a space before it. A port without a listener refuses; only a connection that was taken
 * is reset.
 */
const TOLD: readonly (readonly [RegExp, DialFailure])[] = [
  [/ certificate/i, 'untrusted'],
  [/ speaks a TLS that is too old$/, 'old-tls'],
  [/ connection reset|os error 10054/i, 'broken'],
]

/**
 * What the body of such a response says; undefined when it is not the SDK's. A response of the SDK to
 * HEAD has none to tell by, and one of a service looks the same.
 */
export function dialFailureIn(body: Buffer, method: string): DialFailure | undefined {
  const text = body.toString('latin1')
  if (!text.startsWith(BODY_START)) return method === 'HEAD' ? 'unreachable' : undefined
  return TOLD.find(([pattern]) => pattern.test(text))?.[1] ?? 'unreachable'
}

/** Whether the body may become one, with what follows. */
export function mayBeDialFailure(body: Buffer): boolean {
  return BODY_START.startsWith(body.toString('latin1', 0, BODY_START.length))
}
