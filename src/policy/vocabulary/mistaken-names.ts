import { formatNode } from '../expression/comparison.ts'
import type { CallPlace } from '../expression/expression-function.ts'
import { type CallNode, EQUAL, type Node, pathOf, UNEQUAL } from '../expression/expression-tree.ts'
import { LENIENT_MAPS } from './requests.ts'

/** Names from other languages and products, and from guesses, with the name that is meant. */
const VARIABLES_MEANT: ReadonlyMap<string, string> = new Map([
  ['req.path', 'req.url.path'],
  ['req.pathname', 'req.url.path'],
  ['req.url.pathname', 'req.url.path'],
  ['req.uri.path', 'req.url.path'],
  ['path', 'req.url.path'],
  ['req.uri', 'req.url.uri'],
  ['req.hostname', 'req.host'],
  ['req.url.hostname', 'req.url.host'],
  ['host', 'req.host'],
  ['method', 'req.method'],
  ['req.verb', 'req.method'],
  ['headers', 'req.headers'],
  ['req.header', 'req.headers'],
  ['req.cookie', 'req.cookies'],
  ['cookies', 'req.cookies'],
  ['req.query', 'req.url.query_params'],
  ['req.query_params', 'req.url.query_params'],
  ['req.params', 'req.url.query_params'],
  ['req.url.params', 'req.url.query_params'],
  ['req.query_string', 'req.url.query'],
  ['req.url.query_string', 'req.url.query'],
  ['req.scheme', 'req.url.scheme'],
  ['req.protocol', 'req.url.scheme'],
  ['req.url.protocol', 'req.url.scheme'],
  ['req.agent', 'req.user_agent'],
  ['req.tls', 'conn.tls'],
  ['req.sni', 'conn.tls.sni'],
  ['req.geo', 'conn.geo'],
  ['conn.sni', 'conn.tls.sni'],
  ['conn.ip', 'conn.client_ip'],
  ['conn.addr', 'conn.client_ip'],
  ['conn.remote_ip', 'conn.client_ip'],
  ['conn.remote_addr', 'conn.client_ip'],
  ['conn.source_ip', 'conn.client_ip'],
  ['conn.client', 'conn.client_ip'],
  ['req.ip', 'conn.client_ip'],
  ['req.client_ip', 'conn.client_ip'],
  ['req.remote_ip', 'conn.client_ip'],
  ['req.remote_addr', 'conn.client_ip'],
  ['client_ip', 'conn.client_ip'],
  ['client.ip', 'conn.client_ip'],
  ['ip', 'conn.client_ip'],
  ['ip.src', 'conn.client_ip'],
  ['remote_addr', 'conn.client_ip'],
  ['conn.country', 'conn.geo.country_code'],
  ['geo.country', 'conn.geo.country_code'],
  ['res.status', 'res.status_code'],
  ['res.code', 'res.status_code'],
  ['status', 'res.status_code'],
  ['status_code', 'res.status_code'],
  ['res.header', 'res.headers'],
  ['jwt', 'actions.ngrok.jwt_validation'],
  ['req.jwt', 'actions.ngrok.jwt_validation'],
  ['oauth', 'actions.ngrok.oauth'],
  ['actions.ngrok.openid_connect', 'actions.ngrok.oidc'],
  ['actions.ngrok.openid-connect', 'actions.ngrok.oidc'],
  ['True', 'true'],
  ['TRUE', 'true'],
  ['False', 'false'],
  ['FALSE', 'false'],
])
/** First parts of names that other languages use. */
const ROOTS: readonly (readonly [written: RegExp, meant: string])[] = [
  [/^(?:http\.)?request\./, 'req.'],
  [/^(?:http\.)?response\.|^resp\./, 'res.'],
  [/^connection\./, 'conn.'],
]
/** Values that the request has not, and what to do. */
const NO_VALUES: readonly (readonly [written: RegExp, sentence: string])[] = [
  [/^(?:None|nil|undefined|NULL|Null)$/, "a missing text is '', and a missing list has size 0"],
  [/^(?:req|res|request|response)\.body\b/, 'expressions cannot read the body'],
  [/^time\.(?:hour|hours)$/, 'write timestamp(time.now).getHours()'],
  [
    /^(?:env|process\.env)\b|^[A-Z][A-Z\d]*_[A-Z\d_]+$/,
    'there are no environment variables. Use set-vars or secrets',
  ],
  [/^secrets\b/, "use secrets.get('vault', 'name')"],
]

/** A name without the ways to write it: `clientIP`, `client_ip` and `client-ip` are equal. */
const plain = (name: string) => name.toLowerCase().replace(/[_-]/g, '')

/** The name that is meant by an unknown one, or a sentence: a clause that begins with `: `. */
export function meantVariable(
  path: string,
  names: readonly string[],
  isKnown: (name: string) => boolean,
): { readonly name: string } | { readonly sentence: string } | undefined {
  for (const [pattern, sentence] of NO_VALUES) if (pattern.test(path)) return { sentence }
  for (const [pattern, root] of ROOTS) {
    if (!pattern.test(path)) continue
    const name = path.replace(pattern, root)
    return startIn(name, isKnown) ?? meantVariable(name, names, isKnown)
  }
  const steps = path.split('.')
  for (let length = steps.length; length > 0; length -= 1) {
    const start = steps.slice(0, length).join('.')
    const meant = VARIABLES_MEANT.get(start)
    if (meant !== undefined) return { name: meant }
    const same = start.includes('.')
      ? names.find((name) => plain(name) === plain(start))
      : undefined
    if (same !== undefined) return { name: same }
  }
  return undefined
}

function startIn(path: string, isKnown: (name: string) => boolean) {
  const steps = path.split('.')
  for (let length = steps.length; length > 1; length -= 1) {
    const name = steps.slice(0, length).join('.')
    if (isKnown(name)) return { name }
  }
  return undefined
}

/** A variable that is called: `req.headers('x')`, `req.method()`. */
function variableForm(node: CallNode, variable: string, parent: Node | undefined): string {
  const [first, ...others] = node.args
  const key = first && formatNode(first)
  if (key === undefined || others.length > 0 || !LENIENT_MAPS.has(variable)) {
    return `write ${variable}`
  }
  const values = `${variable}[${key}]`
  const isEqual = parent?.kind === 'call' && (parent.name === EQUAL || parent.name === UNEQUAL)
  const other = isEqual ? parent.args.find(({ id }) => id !== node.id) : undefined
  const shown = other && formatNode(other)
  if (!isEqual || shown === undefined) return `write ${values}, which is a list`
  const found = variable.endsWith('cookies')
    ? `${values}.exists(c, c.value == ${shown})`
    : `${shown} in ${values}`
  if (parent.name === EQUAL) return `write ${found}`
  return variable.endsWith('cookies') ? `write !${found}` : `write !(${found})`
}

/** Methods of other languages, in small letters, with the method that is meant. */
const METHODS_MEANT: ReadonlyMap<string, string> = new Map([
  ['includes', 'contains'],
  ['contain', 'contains'],
  ['has', 'contains'],
  ['tolowercase', 'lower'],
  ['tolower', 'lower'],
  ['lowercase', 'lower'],
  ['downcase', 'lower'],
  ['touppercase', 'upper'],
  ['toupper', 'upper'],
  ['uppercase', 'upper'],
  ['match', 'matches'],
  ['test', 'matches'],
  ['regex', 'matches'],
  ['regexmatch', 'matches'],
  ['beginswith', 'startsWith'],
  ['hasprefix', 'startsWith'],
  ['hassuffix', 'endsWith'],
  ['replaceall', 'replace'],
  ['strip', 'trim'],
  ['substr', 'substring'],
])
/** Macros of other languages. */
const MACROS_MEANT: ReadonlyMap<string, string> = new Map([
  ['any', 'exists'],
  ['some', 'exists'],
  ['every', 'all'],
  ['find', 'filter'],
  ['foreach', 'all'],
])
const SIZES: ReadonlySet<string> = new Set(['length', 'len', 'count'])
const RANGES: ReadonlySet<string> = new Set([
  ...['incidr', 'cidr', 'cidrmatch', 'ipinrange', 'iprange', 'inrange', 'insubnet', 'ipmatch'],
])
const GETTERS: ReadonlySet<string> = new Set(['get', 'getall', 'value', 'values'])
const TESTS: ReadonlySet<string> = new Set(['has', 'contains', 'includes', 'containskey', 'haskey'])
const OF_HEADERS = /^(has|get)(?:http|request|req)?headers?$/

/** The right form of a call of an unknown function. */
export function meantCall(node: CallNode, place: CallPlace): string | undefined {
  const { name, target, args } = node
  const { isList, parent, variable } = place
  if (variable !== undefined) return variableForm(node, variable, parent)
  const key = plain(name)
  const owner = target && formatNode(target)
  const [first] = args
  const arg = first && formatNode(first)
  const map = target && pathOf(target)
  if (map !== undefined && LENIENT_MAPS.has(map) && arg !== undefined) {
    if (GETTERS.has(key)) return `write ${map}[${arg}]`
    if (TESTS.has(key)) return `write ${arg} in ${map}`
  }
  const [, verb] = OF_HEADERS.exec(key) ?? []
  if (verb !== undefined && arg !== undefined) {
    const side = map?.startsWith('res') ? 'Res' : 'Req'
    return `write ${verb}${side}Header(${arg})`
  }
  if (SIZES.has(key)) {
    const value = owner ?? arg
    return value && `write size(${value})`
  }
  if (RANGES.has(key)) return 'did you mean inCidrRange()?'
  if (key === 'now') return 'write timestamp(time.now)'
  if (/^(?:rand|random)$/.test(key)) return 'write rand.double()'
  if (owner === undefined) return undefined
  if (/^equals?$|^eq$|^is$/.test(key)) {
    return arg && (isList ? `write ${arg} in ${owner}` : `write ${owner} == ${arg}`)
  }
  const macro = node.args.length === 2 ? MACROS_MEANT.get(key) : undefined
  if (macro !== undefined) return `did you mean ${macro}()?`
  const method = METHODS_MEANT.get(key)
  if (method === undefined) return undefined
  if (method === 'contains' && isList) return arg && `write ${arg} in ${owner}`
  const call = formatNode({
    ...node,
    target: { kind: 'name', id: node.id, name: 'v' },
    name: method,
  })
  if (isList)
    return call && method !== 'lower' && method !== 'upper'
      ? `write ${owner}.exists(v, ${call})`
      : `write ${owner}.map(v, v.${method}())`
  const whole = formatNode({ ...node, name: method })
  return whole === undefined ? `did you mean ${method}()?` : `write ${whole}`
}
