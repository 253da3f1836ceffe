import { keepFormatted, knownField } from '../syntax/message-fields.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import type { ResponseHead } from '../syntax/response-head.ts'

/** Rewritten fields of heads that recur, and what else they depend on. */
interface RewrittenRequest {
  readonly clientIp: string
  readonly scheme: string
  readonly version: string
  readonly passed: readonly string[]
}

interface RewrittenResponse {
  readonly status: number
  readonly isOfGateway: boolean
  readonly passed: readonly string[]
}

const REQUESTS = new WeakMap<readonly string[], RewrittenRequest>()
const RESPONSES = new WeakMap<readonly string[], RewrittenResponse>()

/** Returns the fields for the device, see `rewriteRequest`. The same array for heads that recur. */
export function requestFields(
  head: RequestHead,
  clientIp: string,
  scheme: 'http' | 'https',
): readonly string[] {
  const { fields, recurs, version } = head
  if (!recurs) return rewriteRequest(head, clientIp, scheme)
  const known = REQUESTS.get(fields)
  if (known?.clientIp === clientIp && known.scheme === scheme && known.version === version) {
    return known.passed
  }
  const passed = rewriteRequest(head, clientIp, scheme)
  keepFormatted(passed)
  REQUESTS.set(fields, { clientIp, scheme, version, passed })
  return passed
}

/** Returns the fields for the client, see `rewriteResponse`. The same array for heads that recur. */
export function responseFields(head: ResponseHead, isOfGateway = false): readonly string[] {
  const { fields, recurs, status } = head
  if (!recurs) return rewriteResponse(head, isOfGateway)
  const known = RESPONSES.get(fields)
  if (known?.status === status && known.isOfGateway === isOfGateway) return known.passed
  const passed = rewriteResponse(head, isOfGateway)
  keepFormatted(passed)
  RESPONSES.set(fields, { status, isOfGateway, passed })
  return passed
}

/**
 * Fields for the device: without those of this hop (RFC 9110 7.6.1), and with the facts of the client. The
 * client's address is appended to an existing `x-forwarded-for`; other statements of the client about itself
 * are replaced. The nesting depth of policy requests is removed. A length is a plain number: some read `010`
 * as 8.
 */
function rewriteRequest(head: RequestHead, clientIp: string, scheme: 'http' | 'https'): string[] {
  const { fields } = head
  const listed = head.connection.fields
  const passed: string[] = []
  let via = ''
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    const value = fields[at + 1] as string
    if (listed.length > 0 && listed.includes(name.toLowerCase())) continue
    switch (knownField(name)) {
      case 'connection':
      case 'keep-alive':
      case 'proxy-connection':
      case 'te':
      case 'upgrade':
      case 'http2-settings':
      case 'x-forwarded-host':
      case 'x-forwarded-proto':
      case 'x-real-ip':
      case 'forwarded':
      case 'x-policy-hops':
        break
      case 'content-length':
        passed.push(name, String(Number(value)))
        break
      case 'x-forwarded-for':
        via += `${value}, `
        break
      default:
        passed.push(name, value)
    }
  }
  passed.push('x-forwarded-for', via + clientIp)
  passed.push('x-forwarded-proto', scheme, 'x-forwarded-host', head.host)
  passed.push('x-real-ip', clientIp, 'forwarded', forwardedElement(clientIp, head.host, scheme))
  // In the usual spelling: servers of some devices know no other.
  if (head.acceptsTrailers) passed.push('TE', 'trailers')
  if (head.upgrade !== undefined) passed.push('Connection', 'Upgrade', 'Upgrade', head.upgrade)
  return passed
}

/**
 * An element of `Forwarded` (RFC 7239 4 and 6): values with a colon are quoted, IPv6 addresses in brackets.
 */
function forwardedElement(clientIp: string, host: string, scheme: string): string {
  const node = clientIp.includes(':') ? `"[${clientIp}]"` : clientIp
  return `for=${node};host=${host.includes(':') ? `"${host}"` : host};proto=${scheme}`
}

/**
 * The fields that go to the client: without those of the hop to the device, and without an error
 * code that only a gateway may set. A switch of protocols keeps its `upgrade`.
 */
function rewriteResponse(
  { status, fields, connection }: ResponseHead,
  isOfGateway: boolean,
): string[] {
  const listed = connection.fields
  // RFC 9110 8.6 and RFC 9112 6.1: these say nothing in a response that cannot have a body.
  const hasFraming = status >= 200 && status !== 204
  const passed: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    if (listed.length > 0 && listed.includes(name.toLowerCase())) continue
    switch (knownField(name)) {
      case 'connection':
      case 'keep-alive':
      case 'proxy-connection':
        break
      case 'ngrok-error-code':
        if (isOfGateway) passed.push(name, fields[at + 1] as string)
        break
      case 'upgrade':
        if (status === 101) passed.push('connection', 'Upgrade', name, fields[at + 1] as string)
        break
      case 'content-length':
      case 'transfer-encoding':
        if (hasFraming) passed.push(name, fields[at + 1] as string)
        break
      default:
        passed.push(name, fields[at + 1] as string)
    }
  }
  return passed
}
