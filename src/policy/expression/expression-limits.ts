import { ExpressionProblem } from './expression-problem.ts'
import { countNodes, foldDepth, type Node } from './expression-tree.ts'

const MAX_SOURCE = 4_096
const MAX_TOKENS = 600
const MAX_NESTING = 32
const MAX_NODES = 600
const MAX_FOLD_DEPTH = 2

const TOKEN = /[A-Za-z_]\w*|[\d.]+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s\w]/g

/** Keeps sources from the parser that it would take long for. Throws ExpressionProblem. */
export function refuseOversizeSource(source: string): void {
  if (source.length > MAX_SOURCE) {
    throw new ExpressionProblem(`more than ${MAX_SOURCE} characters`)
  }
  let tokens = 0
  let nesting = 0
  for (const [token] of source.matchAll(TOKEN)) {
    tokens += 1
    if (tokens > MAX_TOKENS) throw new ExpressionProblem(`more than ${MAX_TOKENS} tokens`)
    if (token === '(' || token === '[' || token === '{') nesting += 1
    if (token === ')' || token === ']' || token === '}') nesting -= 1
    if (nesting > MAX_NESTING) {
      throw new ExpressionProblem(`brackets are nested more than ${MAX_NESTING} levels deep`)
    }
  }
}

/** Bounds what one evaluation costs at least. Throws ExpressionProblem. */
export function refuseOversizeTree(tree: Node): void {
  if (countNodes(tree) > MAX_NODES) {
    throw new ExpressionProblem(`more than ${MAX_NODES} parts`)
  }
  if (foldDepth(tree) > MAX_FOLD_DEPTH) {
    throw new ExpressionProblem(`macros are nested more than ${MAX_FOLD_DEPTH} levels deep`)
  }
}
