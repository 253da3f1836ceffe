import { plainAuthority } from './host-name.ts'
import { requestOf } from './message-head.ts'
import type { PolicyExchange, PolicyRequest } from './policy-exchange.ts'
import type { PlainTarget } from './request-path.ts'

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
