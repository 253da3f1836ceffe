import { Composer, type Document, Lexer, LineCounter, Parser } from 'yaml'
import type { Parts } from './parts.ts'

/** Collections inside each other: the library puts them together by recursion. */
const MAX_NESTING = 100

/** A place in a text, both counted from 1. */
export interface SourcePosition {
  readonly line: number
  readonly column: number
}

/** A YAML text (JSON is YAML too) whose parts remember where they stand. */
export class YamlText {
  readonly text: string
  readonly document: Document.Parsed
  /** Where a second document starts, in characters; undefined when there is one alone. */
  readonly second: number | undefined
  readonly #lines: LineCounter

  private constructor(text: string, documents: readonly Document.Parsed[], lines: LineCounter) {
    const [document, second] = documents
    this.text = text
    this.document = document as Document.Parsed
    this.second = second?.range[0]
    this.#lines = lines
  }

  /** Undefined for a text nested so deep that to compose it could end the process. */
  static *read(text: string): Parts<YamlText | undefined> {
    const lines = new LineCounter()
    lines.addNewLine(0)
    const parser = new Parser(lines.addNewLine)
    const tokens = []
    for (const lexeme of new Lexer().lex(text)) {
      for (const token of parser.next(lexeme)) tokens.push(token)
      if (parser.stack.length > MAX_NESTING) return undefined
      yield lexeme.length
    }
    for (const token of parser.end()) tokens.push(token)
    // An excerpt for each error takes long, and repeated keys are named by who knows their pointer.
    const composer = new Composer({ uniqueKeys: false, prettyErrors: false, logLevel: 'silent' })
    const documents = Array.from(composer.compose(tokens, true, text.length))
    return new YamlText(text, documents, lines)
  }

  /** The place of a character, counted from 0. */
  position(offset: number): SourcePosition {
    const { line, col } = this.#lines.linePos(offset)
    return { line: Math.max(1, line), column: Math.max(1, col) }
  }
}
