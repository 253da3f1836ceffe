import type { HeaderList } from '../exchange/header-list.ts'
import { requestOf, responseOf } from '../exchange/message-head.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { plainValues } from '../exchange/request-path.ts'
import type { Evaluation } from '../expression/evaluation.ts'
import { type ExpressionFunction, fnWithin } from '../expression/expression-function.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { childrenOf, type Node, pathOf } from '../expression/expression-tree.ts'
import type { ValueInput } from '../expression/value.ts'
import { HTTP_PHASES, type Phase, RESPONSE_PHASE } from '../phase.ts'

/** The maps of a request or response in which a missing key is an empty list. */
export const LENIENT_MAPS: ReadonlySet<string> = new Set([
  'req.headers',
  'req.trailers',
  'req.cookies',
  'req.url.query_params',
  'res.headers',
  'res.trailers',
  'res.cookies',
])

const URL_NAME = 'req.url'
/** Names with the path of a request in them. */
const PATH_NAMES: ReadonlySet<string> = new Set([
  URL_NAME,
  ...['path', 'raw_path', 'raw', 'uri'].map((field) => `${URL_NAME}.${field}`),
])

/** Whether an expression looks at the path of a request. */
export function readsPath(node: Node): boolean {
  const name = pathOf(node)
  // A field of the URL is read without all of it.
  if (name === URL_NAME || name?.startsWith(`${URL_NAME}.`)) return PATH_NAMES.has(name)
  return childrenOf(node).some(readsPath)
}

export const requestCookies = (exchange: PolicyExchange) =>
  exchange.parsed.cookies(requestOf(exchange).headers.all('cookie'), exchange.account)
export const queryParameters = (exchange: PolicyExchange) =>
  exchange.parsed.query(requestOf(exchange).target, exchange.account)
export const responseCookies = (exchange: PolicyExchange) =>
  exchange.parsed.setCookies(responseOf(exchange).headers.all('set-cookie'), exchange.account)

/** `req.headers[key]` and `key in req.headers` are rewritten to functions with these names. */
export const lookUp = (map: string): string => `@at:${map}`
export const contains = (map: string): string => `@in:${map}`

/** To look at the name of a field. */
const FIELD_STEPS = 0.4

type Find = (exchange: PolicyExchange, key: string) => readonly ValueInput[]

const inRequestHeaders: Find = (exchange, name) =>
  plainValues(name, fieldsOf(requestOf(exchange).headers, exchange, name))
const inRequestCookies: Find = (exchange, name) => requestCookies(exchange).get(name) ?? []
const inQuery: Find = (exchange, name) => queryParameters(exchange).get(name) ?? []
const inResponseHeaders: Find = (exchange, name) =>
  fieldsOf(responseOf(exchange).headers, exchange, name)
const inResponseCookies: Find = (exchange, name) => responseCookies(exchange).get(name) ?? []
/** Trailers arrive after all decisions of a policy. */
const nowhere: Find = () => []

function fieldsOf(headers: HeaderList, { account }: PolicyExchange, name: string): string[] {
  account.spend(FIELD_STEPS * headers.size)
  return headers.all(name)
}

const TEXTS = 'list(string)'
const COOKIES = 'list(cookie)'
const SET_COOKIES = 'list(set_cookie)'

/** Functions on the heads of request and response. Header names are case-insensitive. */
export const REQUEST_FUNCTIONS: readonly ExpressionFunction<PolicyExchange>[] = [
  ...lenientMap('req.headers', TEXTS, HTTP_PHASES, inRequestHeaders),
  ...lenientMap('req.trailers', TEXTS, HTTP_PHASES, nowhere),
  ...lenientMap('req.cookies', COOKIES, HTTP_PHASES, inRequestCookies),
  ...lenientMap('req.url.query_params', TEXTS, HTTP_PHASES, inQuery),
  ...lenientMap('res.headers', TEXTS, RESPONSE_PHASE, inResponseHeaders),
  ...lenientMap('res.trailers', TEXTS, RESPONSE_PHASE, nowhere),
  ...lenientMap('res.cookies', SET_COOKIES, RESPONSE_PHASE, inResponseCookies),

  getter('getReqHeader', TEXTS, HTTP_PHASES, inRequestHeaders),
  tester('hasReqHeader', HTTP_PHASES, inRequestHeaders),
  getter('getQueryParam', TEXTS, HTTP_PHASES, inQuery),
  tester('hasQueryParam', HTTP_PHASES, inQuery),
  getter('getReqCookie', 'cookie', HTTP_PHASES, first(inRequestCookies)),
  tester('hasReqCookie', HTTP_PHASES, inRequestCookies),
  getter('getResHeader', TEXTS, RESPONSE_PHASE, inResponseHeaders),
  tester('hasResHeader', RESPONSE_PHASE, inResponseHeaders),
  getter('getResCookie', 'set_cookie', RESPONSE_PHASE, longestPath(inResponseCookies)),
  tester('hasResCookie', RESPONSE_PHASE, inResponseCookies),
]

function lenientMap(
  map: string,
  result: string,
  phases: readonly Phase[],
  find: Find,
): ExpressionFunction<PolicyExchange>[] {
  return [getter(lookUp(map), result, phases, find), tester(contains(map), phases, find)]
}

function getter(
  name: string,
  result: string,
  phases: readonly Phase[],
  find: (exchange: PolicyExchange, key: string) => ValueInput,
): ExpressionFunction<PolicyExchange> {
  const run = (evaluation: Evaluation<PolicyExchange>, key: string) => find(evaluation.subject, key)
  return fnWithin(name, ['string'], result, run, phases)
}

function tester(
  name: string,
  phases: readonly Phase[],
  find: Find,
): ExpressionFunction<PolicyExchange> {
  const run = (evaluation: Evaluation<PolicyExchange>, key: string) =>
    find(evaluation.subject, key).length > 0
  return fnWithin(name, ['string'], 'bool', run, phases)
}

function first(find: Find): (exchange: PolicyExchange, name: string) => ValueInput {
  return (exchange, name) => {
    const [cookie] = find(exchange, name)
    if (cookie === undefined) throw new EvaluationError(`the request has no cookie ${name}`)
    return cookie
  }
}

function longestPath(find: Find): (exchange: PolicyExchange, name: string) => ValueInput {
  const pathOf = (cookie: ValueInput) => (cookie as { path: string }).path.length
  return (exchange, name) => {
    const found = find(exchange, name)
    exchange.account.spend(found.length)
    const cookies = [...found].sort((a, b) => pathOf(b) - pathOf(a))
    return first(() => cookies)(exchange, name)
  }
}
