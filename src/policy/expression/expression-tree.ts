import type { Constant, Expr } from '@bufbuild/cel-spec/cel/expr/syntax_pb.js'

/** A parsed expression, in the few shapes that CEL has. `id` leads to the place in the source. */
export type Node =
  | { readonly kind: 'constant'; readonly id: bigint; readonly value: Constant['constantKind'] }
  | { readonly kind: 'name'; readonly id: bigint; readonly name: string }
  | SelectNode
  | CallNode
  | { readonly kind: 'list'; readonly id: bigint; readonly items: readonly Node[] }
  | {
      readonly kind: 'map'
      readonly id: bigint
      readonly entries: readonly (readonly [Node, Node])[]
    }
  | FoldNode

/** `operand.field` or `operand['field']`; with `isTest` it asks whether the field is there. */
export interface SelectNode {
  readonly kind: 'select'
  readonly id: bigint
  readonly operand: Node
  readonly field: string
  readonly isTest: boolean
  /** Written with brackets. */
  readonly isIndex?: boolean
}

/** Operators are calls too: `_==_`, `_&&_`, `_[_]`, `@in`, … */
export interface CallNode {
  readonly kind: 'call'
  readonly id: bigint
  readonly name: string
  readonly target: Node | undefined
  readonly args: readonly Node[]
}

/** A macro such as `exists`: `step` runs for each item of `range` while `condition` holds. */
export interface FoldNode {
  readonly kind: 'fold'
  readonly id: bigint
  readonly variable: string
  readonly accumulator: string
  readonly range: Node
  readonly init: Node
  readonly condition: Node
  readonly step: Node
  readonly result: Node
}

export const INDEX = '_[_]'
export const CONDITIONAL = '_?_:_'
export const AND = '_&&_'
export const OR = '_||_'
export const IN = '@in'
export const EQUAL = '_==_'
export const UNEQUAL = '_!=_'
export const NOT = '!_'

export function call(id: bigint, name: string, args: readonly Node[], target?: Node): CallNode {
  return { kind: 'call', id, name, target, args }
}

export function text(id: bigint, value: string): Node {
  return { kind: 'constant', id, value: { case: 'stringValue', value } }
}

export function integer(id: bigint, value: number): Node {
  return { kind: 'constant', id, value: { case: 'int64Value', value: BigInt(value) } }
}

/** The string that a node stands for, when it is a string constant. */
export function textOf(node: Node | undefined): string | undefined {
  return node?.kind === 'constant' && node.value.case === 'stringValue'
    ? node.value.value
    : undefined
}

/** The dotted name that a node spells: `req.headers` or `vars.tier`. */
export function pathOf(node: Node): string | undefined {
  if (node.kind === 'name') return node.name
  if (node.kind !== 'select' || node.isTest) return undefined
  const path = pathOf(node.operand)
  return path === undefined ? undefined : `${path}.${node.field}`
}

/** Start of a dotted name. */
export function startOf(node: Node): Node {
  return node.kind === 'select' ? startOf(node.operand) : node
}

export function childrenOf(node: Node): readonly Node[] {
  switch (node.kind) {
    case 'constant':
    case 'name':
      return []
    case 'select':
      return [node.operand]
    case 'call':
      return node.target ? [node.target, ...node.args] : node.args
    case 'list':
      return node.items
    case 'map':
      return node.entries.flat()
    case 'fold':
      return [node.range, node.init, node.condition, node.step, node.result]
  }
}

/** The node that has an id, here or below. */
export function findNode(node: Node, id: bigint): Node | undefined {
  if (node.id === id) return node
  for (const child of childrenOf(node)) {
    const found = findNode(child, id)
    if (found) return found
  }
  return undefined
}

/** A copy of the node with changed children. */
export function mapChildren(node: Node, change: (child: Node) => Node): Node {
  switch (node.kind) {
    case 'constant':
    case 'name':
      return node
    case 'select':
      return { ...node, operand: change(node.operand) }
    case 'call':
      return { ...node, target: node.target && change(node.target), args: node.args.map(change) }
    case 'list':
      return { ...node, items: node.items.map(change) }
    case 'map':
      return { ...node, entries: node.entries.map(([key, value]) => [change(key), change(value)]) }
    case 'fold':
      return {
        ...node,
        range: change(node.range),
        init: change(node.init),
        condition: change(node.condition),
        step: change(node.step),
        result: change(node.result),
      }
  }
}

/** How many nodes a tree has. */
export function countNodes(node: Node): number {
  return childrenOf(node).reduce((sum, child) => sum + countNodes(child), 1)
}

/** Nesting depth of macros. A range is evaluated outside of its own loop. */
export function foldDepth(node: Node): number {
  if (node.kind !== 'fold') return Math.max(0, ...childrenOf(node).map(foldDepth))
  const inside = Math.max(...[node.condition, node.step].map(foldDepth))
  return Math.max(foldDepth(node.range), 1 + inside)
}

/** Reads the parser's tree. Throws for message literals, which policies have no types for. */
export function readTree(expr: Expr): Node {
  const { id, exprKind } = expr
  switch (exprKind.case) {
    case 'constExpr':
      return { kind: 'constant', id, value: exprKind.value.constantKind }
    case 'identExpr':
      // A dot in front says that a name is absolute, and here all are.
      return { kind: 'name', id, name: exprKind.value.name.replace(/^\./, '') }
    case 'selectExpr': {
      const { operand, field, testOnly } = exprKind.value
      return { kind: 'select', id, operand: read(operand), field, isTest: testOnly }
    }
    case 'callExpr': {
      const { function: name, target, args } = exprKind.value
      const nodes = args.map(readTree)
      const field = name === INDEX ? textOf(nodes[1]) : undefined
      if (field !== undefined && nodes[0]) {
        return { kind: 'select', id, operand: nodes[0], field, isTest: false, isIndex: true }
      }
      return { kind: 'call', id, name, target: target && readTree(target), args: nodes }
    }
    case 'listExpr':
      return { kind: 'list', id, items: exprKind.value.elements.map(readTree) }
    case 'structExpr': {
      if (exprKind.value.messageName !== '')
        throw new Error('message construction is not supported')
      const entries = exprKind.value.entries.map(({ keyKind, value }) => {
        if (keyKind.case !== 'mapKey') throw new Error('message construction is not supported')
        return [readTree(keyKind.value), read(value)] as const
      })
      return { kind: 'map', id, entries }
    }
    case 'comprehensionExpr': {
      const { iterVar, iterRange, accuVar, accuInit, loopCondition, loopStep, result } =
        exprKind.value
      return {
        kind: 'fold',
        id,
        variable: iterVar,
        accumulator: accuVar,
        range: read(iterRange),
        init: read(accuInit),
        condition: read(loopCondition),
        step: read(loopStep),
        result: read(result),
      }
    }
    default:
      throw new Error('the expression is empty')
  }
}

function read(expr: Expr | undefined): Node {
  if (!expr) throw new Error('a part of the expression is missing')
  return readTree(expr)
}

/** The tree as the planner wants it. */
export function writeTree(node: Node): Expr {
  return { $typeName: 'cel.expr.Expr', id: node.id, exprKind: writeKind(node) }
}

function writeKind(node: Node): Expr['exprKind'] {
  switch (node.kind) {
    case 'constant': {
      const value = { $typeName: 'cel.expr.Constant', constantKind: node.value } as const
      return { case: 'constExpr', value }
    }
    case 'name':
      return { case: 'identExpr', value: { $typeName: 'cel.expr.Expr.Ident', name: node.name } }
    case 'select': {
      const { field, isTest: testOnly } = node
      const operand = writeTree(node.operand)
      return {
        case: 'selectExpr',
        value: { $typeName: 'cel.expr.Expr.Select', operand, field, testOnly },
      }
    }
    case 'call': {
      const target = node.target && { target: writeTree(node.target) }
      const args = node.args.map(writeTree)
      return {
        case: 'callExpr',
        value: { $typeName: 'cel.expr.Expr.Call', function: node.name, args, ...target },
      }
    }
    case 'list': {
      const elements = node.items.map(writeTree)
      return {
        case: 'listExpr',
        value: { $typeName: 'cel.expr.Expr.CreateList', elements, optionalIndices: [] },
      }
    }
    case 'map': {
      const entries = node.entries.map(
        ([key, value]) =>
          ({
            $typeName: 'cel.expr.Expr.CreateStruct.Entry',
            id: key.id,
            keyKind: { case: 'mapKey', value: writeTree(key) },
            value: writeTree(value),
            optionalEntry: false,
          }) as const,
      )
      return {
        case: 'structExpr',
        value: { $typeName: 'cel.expr.Expr.CreateStruct', messageName: '', entries },
      }
    }
    case 'fold':
      return {
        case: 'comprehensionExpr',
        value: {
          $typeName: 'cel.expr.Expr.Comprehension',
          iterVar: node.variable,
          iterVar2: '',
          iterRange: writeTree(node.range),
          accuVar: node.accumulator,
          accuInit: writeTree(node.init),
          loopCondition: writeTree(node.condition),
          loopStep: writeTree(node.step),
          result: writeTree(node.result),
        },
      }
  }
}
