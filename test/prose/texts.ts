import { type ParserPlugin, parse } from '@babel/parser'
import type { Passage } from './measure.ts'

interface Node {
  readonly type: string
  readonly loc?: { readonly start: { readonly line: number } } | null
  readonly [field: string]: unknown
}

const SQL =
  /^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|BEGIN|CASE|FUNCTION|LOCK|PRAGMA)\b|\b(?:WHERE|NOT NULL|PRIMARY KEY)\b/
const PLAIN_WORD = /^["'(]*(?!CODE)\p{L}[\p{L}'’-]*[.,:;!?)"']*$/u
const MIN_WORDS = 4

/**
 * The string literals of a module that are text for people: four words or more, no SQL, no code. Literals
 * that are joined with `+` are one text. A computed part of a template counts as a word.
 */
export function textsOf(source: string, where: string): Passage[] {
  const plugins: ParserPlugin[] = where.endsWith('.ts') ? ['typescript'] : []
  const { program } = parse(source, { sourceType: 'module', plugins })
  const texts: Passage[] = []
  const visit = (node: Node) => {
    const text = textOf(node)
    if (text === undefined) {
      for (const child of childrenOf(node)) visit(child)
      return
    }
    const line = node.loc?.start.line ?? 0
    for (const paragraph of text.split(/\n\s*\n/)) {
      if (isProse(paragraph)) texts.push({ text: paragraph.trim(), where: `${where}:${line}` })
    }
    for (const child of computedIn(node)) visit(child)
  }
  visit(program as unknown as Node)
  return texts
}

/** The text of a literal, or of literals that are joined; undefined for any other node. */
function textOf(node: Node): string | undefined {
  if (node.type === 'StringLiteral') return node.value as string
  if (node.type === 'TemplateLiteral') {
    const parts = node.quasis as { value: { cooked?: string | null } }[]
    return parts.map(({ value }) => value.cooked ?? '').join('CODE')
  }
  if (node.type !== 'BinaryExpression' || node.operator !== '+') return undefined
  const sides = [textOf(node.left as Node), textOf(node.right as Node)]
  if (sides.every((side) => side === undefined)) return undefined
  return sides.map((side) => side ?? 'CODE').join('')
}

/** The nodes inside a text that are not text. */
function computedIn(node: Node): Node[] {
  if (node.type === 'TemplateLiteral') return node.expressions as Node[]
  if (node.type !== 'BinaryExpression') return []
  return [node.left as Node, node.right as Node].flatMap((side) =>
    textOf(side) === undefined ? [side] : computedIn(side),
  )
}

function childrenOf(node: Node): Node[] {
  if (/^(?:Import|TSLiteralType|ExportAll)/.test(node.type)) return []
  return Object.entries(node)
    .filter(([field]) => !field.endsWith('omments') && field !== 'loc')
    .flatMap(([, value]) => (Array.isArray(value) ? value : [value]))
    .filter((value): value is Node => typeof (value as Node | null)?.type === 'string')
}

function isProse(text: string): boolean {
  if (SQL.test(text)) return false
  const tokens = text.split(/\s+/).filter((token) => token !== '')
  const words = tokens.filter((token) => PLAIN_WORD.test(token))
  return words.length >= MIN_WORDS && words.length * 2 >= tokens.length
}
