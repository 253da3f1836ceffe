import type { Price } from './account.ts'
import { EvaluationError } from './expression-problem.ts'
import type { Node } from './expression-tree.ts'
import type { Type } from './expression-type.ts'
import { closingQuote } from './parsed-source.ts'
import { toText, type Value } from './value.ts'

const TEXT_PRICE: Price = { call: 2, kib: 30 }
/** Lists and maps become JSON. */
const JSON_PRICE: Price = { call: 2, kib: 120, item: 8, isDeep: true }

/** A tree that can run, and the type of its result. */
export interface TypedForm {
  readonly form: Node
  readonly type: Type
}

interface ExpressionParts<Subject> extends TypedForm {
  readonly source: string
  readonly leastSteps: number
  readonly run: (subject: Subject) => Value
  /** Does the work of the first run now. */
  readonly prepare: () => void
  /** Pays for later work on the value. */
  readonly pay: (subject: Subject, price: Price, value: Value) => void
}

/** A checked expression, ready to run. */
export class CompiledExpression<Subject> {
  readonly source: string
  /** The tree that runs. Callers may have a faster way for simple trees. */
  readonly form: Node
  readonly type: Type
  /** Steps in the best case. */
  readonly leastSteps: number
  /** Does the slow work of the first run now. */
  readonly prepare: () => void
  readonly #run: (subject: Subject) => Value
  readonly #pay: ExpressionParts<Subject>['pay']

  constructor({ source, form, type, leastSteps, run, pay, prepare }: ExpressionParts<Subject>) {
    this.source = source
    this.form = form
    this.type = type
    this.leastSteps = leastSteps
    this.#run = run
    this.prepare = prepare
    this.#pay = pay
  }

  /** True for a condition that is written as `true`. */
  get isAlwaysTrue(): boolean {
    const { form } = this
    return form.kind === 'constant' && form.value.case === 'boolValue' && form.value.value
  }

  /** Throws EvaluationError. */
  evaluate(subject: Subject): Value {
    return this.#run(subject)
  }

  /** The value as it stands in a text. Throws EvaluationError. */
  text(subject: Subject): string {
    const value = this.#run(subject)
    this.#pay(subject, typeof value === 'string' ? TEXT_PRICE : JSON_PRICE, value)
    return toText(value)
  }

  /** Evaluates a condition. Throws EvaluationError, also when the value is not a boolean. */
  isTrue(subject: Subject): boolean {
    const value = this.#run(subject)
    if (typeof value !== 'boolean') throw new EvaluationError('the expression is not a boolean')
    return value
  }
}

/** A piece of a text: as it stands, or the source of an expression and where it starts. */
type TemplatePiece =
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

  /** The text before the first expression; undefined for a template that cannot run. */
  get start(): string | undefined {
    const [first] = this.#pieces
    if (this.#pieces.includes(undefined)) return undefined
    return typeof first === 'string' ? first : ''
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
interface SplitText {
  readonly pieces: readonly TemplatePiece[]
  /** Start of an interpolation without an end. The pieces stop there. */
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

/** Position of the brace that closes the one before `from`. Braces nest, and strings hide them. */
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
