// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies

import type { Expr, ParsedExpr } from '@bufbuild/cel-spec/cel/expr/syntax_pb.js'
import { ExpressionProblem } from './expression-problem.ts'
import { mapChildren, type Node, readTree } from './expression-tree.ts'

/**
 * Position of the last quote of a CEL string whose first quote is at `open`; -1 if it is not closed. Quotes
 * are single or triple. Backslashes escape, except in raw strings.
 */
export function closingQuote(text: string, open: number): number {
  const char = text.charAt(open)
  const quote = text.startsWith(char.repeat(3), open) ? char.repeat(3) : char
  const isRaw = /(?:^|[^\w])[bB]?[rR][bB]?$/.test(text.slice(Math.max(0, open - 3), open))
  for (let at = open + quote.length; at < text.length; at += 1) {
    if (text.charAt(at) === '\\' && !isRaw) at += 1
    else if (text.startsWith(quote, at)) return at + quote.length - 1
  }
  return -1
}

/** Characters of a source that are shown to say where it cannot be read. */
const MAX_SHOWN = 40
const BRACKETS: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' }

/** Syntax of other languages, and its form in CEL. */
const MISTAKEN: readonly (readonly [pattern: RegExp, meant: string])[] = [
  [/^={3}/, '=='],
  [/^!==/, '!='],
  [/^eq\b/i, '=='],
  [/^(?:ne|neq)\b/i, '!='],
  [/^=(?![=~>])/, '=='],
  [/^and\b/i, '&&'],
  [/^or\b/i, '||'],
  [/^&(?!&)/, '&&'],
  [/^\|(?!\|)/, '||'],
  [/^<>/, '!='],
]

/** Says in words why a source cannot be parsed; `offset` is where the parser gave up. */
function syntaxProblem(source: string, offset: number): ExpressionProblem {
  if (source.trim() === '') return new ExpressionProblem('it is empty', { offset: 0 })
  const sentence = syntaxAdvice(source, offset)
  if (sentence) return sentence
  if (source.includes('${')) {
    const message = 'write the expression without ${ and }'
    return new ExpressionProblem(message, { offset: source.indexOf('${') })
  }
  const arrow = source.indexOf('=>')
  if (arrow !== -1 && arrow >= offset) {
    const message = '=> is not an operator: use list.exists(v, test) or list.all(v, test)'
    return new ExpressionProblem(message, { offset: arrow })
  }
  const unpaired = unpairedIn(source)
  if (unpaired) return unpaired
  const rest = source.slice(offset)
  for (const [pattern, meant] of MISTAKEN) {
    const [written] = pattern.exec(rest) ?? []
    if (written === undefined) continue
    return new ExpressionProblem(`${written} is not an operator: did you mean ${meant}?`, {
      offset,
    })
  }
  if (/\bnot\s+$/.test(source.slice(0, offset))) {
    return new ExpressionProblem('not is not an operator: did you mean !?', { offset })
  }
  if (/^\W*$/.test(rest)) return new ExpressionProblem('the end is missing', { offset })
  const shown = rest.length > MAX_SHOWN ? `${rest.slice(0, MAX_SHOWN)}…` : rest
  return new ExpressionProblem(`unexpected \`${shown}\``, { offset })
}

/** Strings, as they are left out where a sign outside of strings is looked for. */
const STRINGS = /"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/g

/** Other languages' syntax that no single operator replaces. */
function syntaxAdvice(source: string, offset: number): ExpressionProblem | undefined {
  const code = source.replace(STRINGS, (text) => `'${'_'.repeat(text.length - 2)}'`)
  const problem = (at: number, message: string) => new ExpressionProblem(message, { offset: at })
  const curly = code.search(/[\u2018\u2019\u201c\u201d]/)
  if (curly !== -1) return problem(curly, `${source.charAt(curly)} is not a quote: write ' or "`)
  const braces = code.indexOf('{{')
  if (braces !== -1) {
    return problem(Math.max(0, braces - 1), 'write the expression without {{ and }}')
  }
  const rest = code.slice(offset)
  if (/^=?~/.test(rest)) {
    const before = source.slice(0, offset).trim()
    const [, pattern = "'^a'"] = /^=?~\s*('[^']*'|"[^"]*")/.exec(source.slice(offset)) ?? []
    return problem(offset, `=~ is not an operator: write ${before}.matches(${pattern})`)
  }
  const slash = /(?:^|\()\s*\/(?!\/)/.exec(code)
  if (slash) {
    const at = code.indexOf('/', slash.index)
    return problem(at, "a pattern is a text in quotes, such as req.url.path.matches('^/a')")
  }
  const tuple = /\bin\s*\(\s*'[^)]*,[^)]*\)/.exec(code)
  if (tuple) return problem(tuple.index, "a list has square brackets: write in ['a', 'b']")
  const [, verb] = /^(contains|startsWith|endsWith|matches)\s+['"]/i.exec(rest) ?? []
  if (verb !== undefined) {
    const [, text = ''] = /^\w+\s+('[^']*'|"[^"]*")/.exec(source.slice(offset)) ?? []
    const before = source.slice(0, offset).trim()
    return problem(offset, `${verb} is a function: write ${before}.${verb}(${text})`)
  }
  if (/^(?:exists|present)\b/.test(rest)) {
    const before = source.slice(0, offset).trim()
    return problem(offset, `write size(${before}) > 0`)
  }
  const [, twice] = /(&&|\|\|)\s*(?:&&|\|\|)/.exec(code) ?? []
  if (twice !== undefined)
    return problem(code.search(/(?:&&|\|\|)\s*(?:&&|\|\|)/), `${twice} stands twice`)
  if (/^\?/.test(rest) && !rest.includes(':')) {
    return problem(offset, 'a choice needs both values: condition ? a : b')
  }
  return undefined
}

/** The first quote or bracket that has no other. */
function unpairedIn(source: string): ExpressionProblem | undefined {
  const open: { readonly at: number; readonly closes: string }[] = []
  for (let at = 0; at < source.length; at += 1) {
    const char = source.charAt(at)
    const closes = BRACKETS[char]
    if (source.startsWith('//', at)) {
      const end = source.indexOf('\n', at)
      at = end === -1 ? source.length : end
    } else if (char === '"' || char === "'") {
      const end = closingQuote(source, at)
      if (end === -1) return new ExpressionProblem('a string is not closed', { offset: at })
      at = end
    } else if (closes) {
      open.push({ at, closes })
    } else if (')]}'.includes(char) && open.pop()?.closes !== char) {
      return new ExpressionProblem(`${char} has no matching bracket`, { offset: at })
    }
  }
  const last = open.pop()
  return (
    last && new ExpressionProblem(`${source.charAt(last.at)} is not closed`, { offset: last.at })
  )
}

/** The library's parser: throws Error with line and column. */
type Parse = (source: string) => Pick<ParsedExpr, 'sourceInfo'> & { expr: Expr }

/** Words that cannot be names of variables, but may be names of methods. */
const RESERVED =
  'as|break|const|continue|else|for|function|if|import|let|loop|namespace|package|return|var|void|while'
/** Most names of one length in an expression. */
const MAX_NAMES = 1_000
/** Texts and comments as a whole, and names behind a dot that the library's parser does not read. */
const TOKENS = new RegExp(
  [
    /[rR][bB]?(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"[^"\n]*"|'[^'\n]*')/.source,
    /[bB][rR](?:"""[\s\S]*?"""|'''[\s\S]*?'''|"[^"\n]*"|'[^'\n]*')/.source,
    /"""(?:\\[\s\S]|[^\\])*?"""|'''(?:\\[\s\S]|[^\\])*?'''/.source,
    /"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/.source,
    /\/\/[^\n]*/.source,
    /(?<dot>\.\s*)`(?<field>[\w./ -]+)`/.source,
    `(?<before>\\.\\s*)(?<method>${RESERVED})(?=\\s*\\()`,
  ].join('|'),
  'g',
)

/** The source of an expression as a tree with positions. */
export class ParsedSource {
  readonly tree: Node
  readonly #source: string
  readonly #positions: Readonly<Record<string, number>>

  /** Throws ExpressionProblem. */
  constructor(source: string, parse: Parse) {
    this.#source = source
    try {
      const { text, names } = withPlainNames(source)
      // The parser takes a comment to be over at the end of its line.
      const { expr, sourceInfo } = parse(text.includes('//') ? `${text}\n` : text)
      const tree = readTree(expr)
      this.tree = names.size > 0 ? withOwnNames(tree, names) : tree
      this.#positions = sourceInfo?.positions ?? {}
    } catch (error) {
      throw problemOf(error, source)
    }
  }

  /** The problem and its further problems, with positions in place of nodes. */
  placed({ message, node, isForeign, further }: ExpressionProblem): ExpressionProblem {
    const offset = node === undefined ? undefined : this.offsetOf(node)
    const others = further.map((other) => this.placed(other))
    return new ExpressionProblem(message, { offset, isForeign, further: others })
  }

  /** Position of a node in the source. The parser counts the blanks before some operators to them. */
  offsetOf(node: bigint): number | undefined {
    const start = this.#positions[node.toString()]
    if (start === undefined) return undefined
    const blanks = /^\s*/.exec(this.#source.slice(start)) ?? ['']
    return start + blanks[0].length
  }
}

/** The parser says the line and the column, and a list of all that it would have taken there. */
function problemOf(error: unknown, source: string): ExpressionProblem {
  const message = error instanceof Error ? error.message : String(error)
  const [, line, column, text = ''] = /^<input>:(\d+):(\d+): (.*)$/s.exec(message) ?? []
  if (line === undefined) return new ExpressionProblem(message)
  const before = source.split('\n').slice(0, Number(line) - 1)
  const offset = before.reduce((sum, row) => sum + row.length + 1, Number(column) - 1)
  if (text.startsWith('found ')) return syntaxProblem(source, offset)
  const [word = ''] = /^\w*/.exec(source.slice(offset)) ?? []
  return new ExpressionProblem(`${word} is a ${text}`.trim(), { offset })
}

/**
 * Replaces names in backquotes, and reserved words that name methods, by names of the same length. So
 * positions stay valid.
 */
function withPlainNames(source: string): { text: string; names: ReadonlyMap<string, string> } {
  const names = new Map<string, string>()
  if (!/`|\.\s*[a-z]+\s*\(/.test(source)) return { text: source, names }
  const stand = (name: string, length: number) => {
    const free = unusedName(
      length,
      (candidate) => !names.has(candidate) && !source.includes(candidate),
    )
    if (free !== undefined) names.set(free, name)
    return free
  }
  const text = source.replace(TOKENS, (token: string, ...rest: unknown[]) => {
    const { dot, field, before, method } = rest.at(-1) as Record<string, string | undefined>
    if (field !== undefined) {
      const free = stand(field, field.length + 2)
      return free === undefined ? token : `${dot}${free}`
    }
    if (method === undefined) return token
    const free = stand(method, method.length)
    return free === undefined ? token : `${before}${free}`
  })
  return { text, names }
}

/** A name of so many letters; undefined when all that are tried are taken. */
function unusedName(length: number, isFree: (name: string) => boolean): string | undefined {
  for (let index = 0; index < MAX_NAMES; index += 1) {
    const digits = index.toString(36)
    const name = `q${digits.padStart(length - 1, '_')}`
    if (name.length === length && isFree(name)) return name
  }
  return undefined
}

function withOwnNames(node: Node, names: ReadonlyMap<string, string>): Node {
  const inner = mapChildren(node, (child) => withOwnNames(child, names))
  if (inner.kind === 'select') {
    const field = names.get(inner.field)
    return field === undefined ? inner : { ...inner, field, isIndex: !inner.isTest }
  }
  if (inner.kind !== 'call') return inner
  const name = names.get(inner.name)
  return name === undefined ? inner : { ...inner, name }
}
