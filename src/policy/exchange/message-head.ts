import { EvaluationError } from '../expression/expression-problem.ts'
import type { Phase } from '../phase.ts'
import type { HeaderList } from './header-list.ts'
import type { PolicyExchange, PolicyRequest, PolicyResponse } from './policy-exchange.ts'
import { type PlainTarget, plainAuthority } from './request-path.ts'

/** Throws EvaluationError if it does not exist. */
export const requestOf = (exchange: PolicyExchange): PolicyRequest => {
  if (!exchange.request) throw new EvaluationError('there is no request yet')
  return exchange.request
}

/** Throws EvaluationError if it does not exist. */
export const responseOf = (exchange: PolicyExchange): PolicyResponse => {
  if (!exchange.response) throw new EvaluationError('there is no response yet')
  return exchange.response
}

/**
 * The value of a field that may occur once. Several values count as none: the service might read another
 * value than the policy.
 */
export function onlyValue(headers: HeaderList, name: string): string | undefined {
  const [value, ...more] = headers.all(name)
  return more.length === 0 ? value : undefined
}

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

/**
 * Whether the response has a complete body: not after HEAD, 1xx, 204 or 304 (RFC 9112 6.3), and not in 206,
 * whose ranges count bytes of the whole.
 */
export function hasWholeBody(exchange: PolicyExchange): boolean {
  const { status } = responseOf(exchange)
  const hasNone = status < 200 || status === 204 || status === 206 || status === 304
  return !hasNone && requestOf(exchange).method !== 'HEAD'
}

/** The message that an action of the phase works on. */
export function headOf(exchange: PolicyExchange, phase: Phase): { readonly headers: HeaderList } {
  return phase === 'on_http_response' ? responseOf(exchange) : requestOf(exchange)
}

/** The URL of a request as it came, or as actions have left it: signatures are made over it. */
export function rawUrl({ scheme, headers, host, target }: PolicyRequest): string {
  return `${scheme}://${headers.get('host') ?? host}${target}`
}

/** Path and query of a request in the spelling that rules are compared with. Throws EvaluationError. */
export function targetOf(exchange: PolicyExchange): PlainTarget {
  return exchange.parsed.target(requestOf(exchange).target, exchange.account)
}

/** The host in the same spelling, with the port of the Host field. */
export function authorityOf({ headers, host, scheme }: PolicyRequest): string {
  return plainAuthority(headers.get('host') ?? host, scheme)
}

/** The whole URL in the same spelling. Throws EvaluationError. */
export function plainUrl(exchange: PolicyExchange): string {
  const request = requestOf(exchange)
  return `${request.scheme}://${authorityOf(request)}${targetOf(exchange).text}`
}
