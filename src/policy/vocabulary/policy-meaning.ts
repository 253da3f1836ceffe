import { type Dialect, IS_KNOWN } from '../expression/expression-function.ts'
import {
  type CallNode,
  call,
  type FoldNode,
  IN,
  INDEX,
  mapChildren,
  type Node,
  pathOf,
  text,
} from '../expression/expression-tree.ts'
import { SORT_BY } from './lists.ts'
import { meantCall } from './mistaken-names.ts'
import { contains, LENIENT_MAPS, lookUp } from './requests.ts'

/** Differences between policies and the language. */
export const POLICY_MEANING: Dialect = {
  macros: ['sortBy'],
  rewrite: (tree, isVariable) => rewriteMeaning(withNewNames(tree), isVariable),
  meantCall,
}

/** Names from before 2024-10, which policies of old agents still use, with today's names. */
const OLD_NAMES: ReadonlyMap<string, string> = new Map([
  ['conn.ClientIP', 'conn.client_ip'],
  ['conn.ServerIP', 'conn.server_ip'],
  ['conn.Geo.City', 'conn.geo.city'],
  ['conn.Geo.Country', 'conn.geo.country'],
  ['conn.Geo.CountryCode', 'conn.geo.country_code'],
  ['conn.Geo.Latitude', 'conn.geo.latitude'],
  ['conn.Geo.Longitude', 'conn.geo.longitude'],
  ['conn.Geo.Radius', 'conn.geo.radius'],
  ['conn.Geo.Subdivision', 'conn.geo.subdivision'],
  ['req.Method', 'req.method'],
  ['req.Path', 'req.url.path'],
  ['req.URL', 'req.url'],
  ['req.Host', 'req.host'],
  ['req.Headers', 'req.headers'],
  ['req.Params', 'req.url.query_params'],
  ['req.ContentLength', 'req.content_length'],
  ['res.Headers', 'res.headers'],
  ['res.StatusCode', 'res.status_code'],
])

/** In policies of before 2024-10 the status is a text: `res.StatusCode == '200'`. Both forms are found. */
const OLD_STATUS = 'res.StatusCode'
const EQUALITIES: ReadonlySet<string> = new Set(['_==_', '_!=_', IN])

/** A status becomes a text when it is compared with text, as in old policies. */
function withTextStatus(node: CallNode): Node {
  const { target, args } = node
  if (target && pathOf(target) === OLD_STATUS) {
    return { ...node, target: call(target.id, 'string', [target]) }
  }
  const isWithText = EQUALITIES.has(node.name) && args.some(isText)
  if (!isWithText) return node
  const asText = (arg: Node) => (pathOf(arg) === OLD_STATUS ? call(arg.id, 'string', [arg]) : arg)
  return { ...node, args: args.map(asText) }
}

function isText(node: Node): boolean {
  if (node.kind === 'list') return node.items.length > 0 && node.items.every(isText)
  return node.kind === 'constant' && node.value.case === 'stringValue'
}

function withNewNames(node: Node): Node {
  if (node.kind === 'call') return mapChildren(withTextStatus(node), withNewNames)
  const name = node.kind === 'select' ? OLD_NAMES.get(pathOf(node) ?? '') : undefined
  if (name === undefined) return mapChildren(node, withNewNames)
  const [root = '', ...fields] = name.split('.')
  const { id } = node
  return fields.reduce<Node>(
    (operand, field) => ({ kind: 'select', id, operand, field, isTest: false }),
    { kind: 'name', id, name: root },
  )
}

/**
 * Gives the expression the meaning that policies have beyond the language: lenient maps, `has()`
 * of an index, `sortBy`, and `actions.svc` for `actions.ngrok`. Throws Error with a sentence.
 */
function rewriteMeaning(node: Node, isVariable: (path: string) => boolean): Node {
  const again = (child: Node) => rewriteMeaning(child, isVariable)
  const { id } = node
  switch (node.kind) {
    case 'select': {
      const map = pathOf(node.operand)?.replace(/^actions\.svc\b/, 'actions.ngrok')
      if (map !== undefined && LENIENT_MAPS.has(map)) {
        return call(id, node.isTest ? contains(map) : lookUp(map), [text(id, node.field)])
      }
      if (node.isTest && isVariable(`${map}.${node.field}`)) {
        return call(id, IS_KNOWN, [text(id, `${map}.${node.field}`)])
      }
      if (map === 'actions' && node.field === 'svc') {
        return { ...node, field: 'ngrok' }
      }
      return mapChildren(node, again)
    }
    case 'call':
      return rewriteCall(node, again)
    default:
      return mapChildren(node, again)
  }
}

function rewriteCall(node: CallNode, again: (child: Node) => Node): Node {
  const { id, name, args } = node
  const [first, second] = args
  if (name === INDEX && first && second) {
    const map = pathOf(first)
    if (map !== undefined && LENIENT_MAPS.has(map)) return call(id, lookUp(map), [again(second)])
  }
  if (name === IN && first && second) {
    const map = pathOf(second)
    if (map !== undefined && LENIENT_MAPS.has(map)) return call(id, contains(map), [again(first)])
  }
  if (name === 'has' && !node.target && args.length === 1) {
    if (first?.kind === 'select') return again({ ...first, isTest: true })
    if (first?.kind === 'call' && first.name === INDEX && first.args[0] && first.args[1]) {
      return again(call(id, IN, [first.args[1], first.args[0]]))
    }
    throw new Error('has() accepts a field or a key, such as has(vars.tier)')
  }
  if (name === 'sortBy' && node.target && second && first?.kind === 'name') {
    const target = again(node.target)
    return call(id, SORT_BY, [target, mapOver(id, target, first.name, again(second))])
  }
  return mapChildren(node, again)
}

/** The tree of `range.map(variable, value)`. */
function mapOver(id: bigint, range: Node, variable: string, value: Node): FoldNode {
  const accumulator = '@result'
  const result: Node = { kind: 'name', id, name: accumulator }
  return {
    kind: 'fold',
    id,
    variable,
    accumulator,
    range,
    init: { kind: 'list', id, items: [] },
    condition: { kind: 'constant', id, value: { case: 'boolValue', value: true } },
    step: call(id, '_+_', [result, { kind: 'list', id, items: [value] }]),
    result,
  }
}
