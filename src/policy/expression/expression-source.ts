import { INDEX, type Node } from './expression-tree.ts'

/** Longer ones do not help in a sentence. */
const MAX_LENGTH = 80

/** A node as its author may have written it; undefined for what is long or has operators. */
export function formatNode(node: Node): string | undefined {
  const source = format(node)
  return source !== undefined && source.length <= MAX_LENGTH ? source : undefined
}

function format(node: Node): string | undefined {
  switch (node.kind) {
    case 'constant':
      return formatConstant(node.value)
    case 'name':
      return node.name
    case 'select': {
      const operand = format(node.operand)
      if (operand === undefined || node.isTest) return undefined
      return node.isIndex ? `${operand}[${quote(node.field)}]` : `${operand}.${node.field}`
    }
    case 'list': {
      const items = formatAll(node.items)
      return items && `[${items}]`
    }
    case 'call': {
      if (node.name === INDEX) {
        const [operand, index] = node.args.map(format)
        return operand && index && `${operand}[${index}]`
      }
      const args = formatAll(node.args)
      if (args === undefined) return undefined
      if (!/^\w+$/.test(node.name) || node.name.startsWith('_')) return undefined
      if (!node.target) return `${node.name}(${args})`
      const target = format(node.target)
      return target && `${target}.${node.name}(${args})`
    }
    default:
      return undefined
  }
}

function formatAll(nodes: readonly Node[]): string | undefined {
  const parts = nodes.map(format)
  return parts.includes(undefined) ? undefined : parts.join(', ')
}

function formatConstant(value: Extract<Node, { kind: 'constant' }>['value']): string | undefined {
  switch (value.case) {
    case 'stringValue':
      return quote(value.value)
    case 'uint64Value':
      return `${value.value}u`
    case 'doubleValue':
      return Number.isInteger(value.value) ? value.value.toFixed(1) : String(value.value)
    case 'nullValue':
      return 'null'
    case 'int64Value':
    case 'boolValue':
      return String(value.value)
    default:
      return undefined
  }
}

function quote(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&').replace(/\n/g, '\\n')}'`
}
