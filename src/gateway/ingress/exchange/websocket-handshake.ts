import { createHash } from 'node:crypto'
import type { RequestHead } from '../syntax/request-head.ts'
import { parseResponseHead, type ResponseHead } from '../syntax/response-head.ts'

/** RFC 6455 1.3. */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const VERSION = '13'
/** Sixteen bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{22}==$/

/**
 * The gateway's own answer to the handshake of a WebSocket (RFC 6455 4.2.2); null for what is no
 * handshake. Of the subprotocols the first one that is offered is taken: what is in the messages is
 * between the client and the service.
 */
export function acceptWebSocket(head: RequestHead): ResponseHead | null {
  const { method, upgrade, fields } = head
  const key = fieldValue(fields, 'sec-websocket-key')
  const isHandshake =
    method === 'GET' &&
    upgrade?.toLowerCase() === 'websocket' &&
    fieldValue(fields, 'sec-websocket-version') === VERSION
  if (!isHandshake || key === undefined || !KEY.test(key)) return null
  const accept = createHash('sha1').update(`${key}${GUID}`).digest('base64')
  const [protocol = ''] = (fieldValue(fields, 'sec-websocket-protocol') ?? '').split(',')
  const agreed = protocol.trim() === '' ? [] : ['sec-websocket-protocol', protocol.trim()]
  const line = 'HTTP/1.1 101 Switching Protocols'
  const own = ['connection', 'Upgrade', 'upgrade', 'websocket', 'sec-websocket-accept', accept]
  return parseResponseHead({ line, fields: [...own, ...agreed] }, method)
}

/** Of the only field of that name, or the first of several. */
function fieldValue(fields: readonly string[], wanted: string): string | undefined {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === wanted)
  return at === -1 ? undefined : fields[at + 1]
}
