import type { CompiledExpression } from './compiled-expression.ts'
import { closingQuote } from './quoted-text.ts'

/** A piece of a text: as it stands, or the source of an expression and where it starts. */
export type TemplatePiece =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'expression'; readonly source: string; readonly offset: number }

/** A piece that could not be compiled is undefined: such a template is checked, and never runs. */
type Piece<Subject> = string | CompiledExpression<Subject> | undefined

/** A text with `${expressions}` in it. */
export class Template<Subject> {
  readonly #pieces: readonly Piece<Subject>[]

  constructor(pieces: readonly Piece<Subject>[]) {
    this.#pieces = pieces
  }

  /** The text when there is nothing to compute. */
  get constant(): string | undefined {
    return this.#pieces.every((piece) => typeof piece === 'string')
      ? this.#pieces.join('')
      : undefined
  }

  /** The expression when there is nothing but one: its value keeps its type. */
  get only(): CompiledExpression<Subject> | undefined {
    const [first, second] = this.#pieces
    return typeof first === 'object' && second === undefined ? first : undefined
  }

  /** Throws EvaluationError. */
  render(subject: Subject): string {
    let result = ''
    for (const piece of this.#pieces) {
      result += typeof piece === 'string' ? piece : (piece?.text(subject) ?? '')
    }
    return result
  }
}

/** A text in pieces. */
export interface SplitText {
  readonly pieces: readonly TemplatePiece[]
  /** Where an interpolation starts that does not end; nothing from there on is in a piece. */
  readonly unclosed: number | undefined
}

/** Splits a text at its `${…}`. */
export function splitTemplate(text: string): SplitText {
  const pieces: TemplatePiece[] = []
  let from = 0
  for (let at = text.indexOf('${'); at !== -1; at = text.indexOf('${', from)) {
    const end = closingBrace(text, at + 2)
    if (end === -1) return { pieces, unclosed: at }
    if (at > from) pieces.push({ kind: 'text', text: text.slice(from, at) })
    pieces.push({ kind: 'expression', source: text.slice(at + 2, end), offset: at + 2 })
    from = end + 1
  }
  if (from < text.length) pieces.push({ kind: 'text', text: text.slice(from) })
  return { pieces, unclosed: undefined }
}

/** Where the brace that opened before `from` closes: braces nest, and strings hide them. */
function closingBrace(text: string, from: number): number {
  let depth = 1
  for (let at = from; at < text.length; at += 1) {
    const char = text.charAt(at)
    if (char === '{') depth += 1
    if (char === '}') depth -= 1
    if (depth === 0) return at
    if (char === '"' || char === "'") {
      at = closingQuote(text, at)
      if (at === -1) return -1
    }
  }
  return -1
}
