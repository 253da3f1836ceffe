import type { Exchange } from './exchange.ts'
import { requestOf, responseOf } from './functions/requests.ts'
import type { HeaderList } from './header-list.ts'
import type { Phase } from './phase.ts'

/**
 * Fields that belong to one connection (RFC 9110 7.6.1) or frame the message (RFC 9112 6): the
 * gateway writes them, and a policy that did could smuggle a second message.
 */
const GATEWAY_HEADERS = new Set([
  'connection',
  'content-length',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

export const isGatewayHeader = (name: string): boolean => GATEWAY_HEADERS.has(name.toLowerCase())

/** The message that an action of the phase works on. */
export function headOf(exchange: Exchange, phase: Phase): { readonly headers: HeaderList } {
  return phase === 'on_http_response' ? responseOf(exchange) : requestOf(exchange)
}
