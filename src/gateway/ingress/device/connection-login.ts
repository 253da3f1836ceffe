import type {
  LoginAnswer,
  LoginStep,
  ProxyStream,
  StreamClient,
  StreamWaiter,
} from '../../streams/proxy-stream.ts'
import type { DeviceRequest } from '../common/incoming-request.ts'
import type { ResponseHead } from '../syntax/response-head.ts'
import { isIdempotent, type StreamSource } from './forward.ts'

/** Schemes that log a connection in and not a request (RFC 4559 6, MS-NTHT 2.2). */
const SCHEMES = 'ntlm|negotiate|nego2|kerberos'
const CREDENTIALS = new RegExp(`^[ \\t]*(?:${SCHEMES})(?:[ \\t]|$)`, 'i')
/** NTLMSSP of type 3, or a NegTokenResp: the answer to the service's challenge. */
const CONTINUED = /^[ \t]*[a-z0-9]+[ \t]+(?:TlRMTVNTUAAD|o)/i
const CHALLENGE = new RegExp(`(?:^|[ \\t,])(?:${SCHEMES})(?:[ \\t,]|$)`, 'i')
/** The scheme with a token. */
const BEGUN = new RegExp(`(?:^|[ \\t,])(?:${SCHEMES})[ \\t]+[A-Za-z0-9+/]+=*[ \\t]*(?:,|$)`, 'i')

/** Asks for a stream: one of the visitor's own logins if there is one. */
export function acquireFor(
  request: DeviceRequest,
  pool: StreamSource,
  client: StreamClient,
  waiter: StreamWaiter,
): void {
  const { logins } = client
  const own =
    logins && !logins.isEmpty ? logins.takeFor(pool, loginOfRequest(request.fields)) : undefined
  if (own) pool.resume(own, client, waiter)
  else if (isIdempotent(request)) pool.acquire(client, waiter)
  else pool.acquireOnce(client, waiter)
}

/** Returns true if any exchange may use the stream next; else it stays with its visitor. */
export function handBack(
  stream: ProxyStream,
  { fields }: DeviceRequest,
  response: Pick<ResponseHead, 'status' | 'fields'>,
  { logins }: StreamClient,
): boolean {
  const answered = loginOfResponse(response.fields)
  if (!stream.isOfOne && !answered && !loginOfRequest(fields)) return true
  // With another status a token proves the service to the client: the login has ended (RFC 4559 5).
  const isRefused = response.status === 401 || response.status === 407
  if (logins) logins.keep(stream, isRefused && answered?.hasToken === true)
  else stream.retire()
  return false
}

/** Login state of a request by its fields, name and value in turn. */
export function loginOfRequest(fields: readonly string[]): LoginStep | undefined {
  for (const value of valuesOf(fields, 'authorization', 'proxy-authorization')) {
    if (CREDENTIALS.test(value)) return { isContinued: CONTINUED.test(value) }
  }
  return undefined
}

/** Login state of a response by its fields. */
export function loginOfResponse(fields: readonly string[]): LoginAnswer | undefined {
  let answer: LoginAnswer | undefined
  for (const value of valuesOf(fields, 'www-authenticate', 'proxy-authenticate')) {
    if (BEGUN.test(value)) return { hasToken: true }
    if (CHALLENGE.test(value)) answer = { hasToken: false }
  }
  return answer
}

const NONE: readonly string[] = []

/** Values of the fields with one of the two names. Most messages have neither, and cost no memory here. */
function valuesOf(fields: readonly string[], first: string, second: string): readonly string[] {
  let values = NONE
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    if (name.length !== first.length && name.length !== second.length) continue
    const lower = name.toLowerCase()
    if (lower === first || lower === second) values = [...values, fields[at + 1] as string]
  }
  return values
}
