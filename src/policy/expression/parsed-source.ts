import type { Expr, ParsedExpr } from '@bufbuild/cel-spec/cel/expr/syntax_pb.js'
import { ExpressionProblem } from './expression-problem.ts'
import { type Node, readTree } from './expression-tree.ts'
import { syntaxProblem } from './syntax-problem.ts'

/** The library's parser: throws Error with line and column. */
type Parse = (source: string) => Pick<ParsedExpr, 'sourceInfo'> & { expr: Expr }

/** The source of an expression as a tree, whose nodes know where they stand. */
export class ParsedSource {
  readonly tree: Node
  readonly #source: string
  readonly #positions: Readonly<Record<string, number>>

  /** Throws ExpressionProblem. */
  constructor(source: string, parse: Parse) {
    this.#source = source
    try {
      const { expr, sourceInfo } = parse(source)
      this.tree = readTree(expr)
      this.#positions = sourceInfo?.positions ?? {}
    } catch (error) {
      throw problemOf(error, source)
    }
  }

  /** The problem, and those that come with it, with places instead of nodes. */
  placed({ message, node, isForeign, further }: ExpressionProblem): ExpressionProblem {
    const offset = node === undefined ? undefined : this.#offsetOf(node)
    const others = further.map((other) => this.placed(other))
    return new ExpressionProblem(message, { offset, isForeign, further: others })
  }

  /** The parser counts the blanks before some operators to them. */
  #offsetOf(node: bigint): number | undefined {
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
