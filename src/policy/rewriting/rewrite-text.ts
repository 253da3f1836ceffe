import { Account } from '../expression/account.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { PatternCache, PatternError } from '../expression/pattern.ts'

/** Bytes of a body, plain, before and after. */
export const MAX_REPLACED_BODY = 1_048_576

/** A replacement of a list: an RE2 expression, and the text for each match. */
export interface Replacement {
  readonly from: string
  readonly to: string
}

/** Result of one replacement: its index in the list, and the first match. */
export type ReplacementResult = {
  readonly replacement_index: bigint
  readonly matched_content: string
}

export interface ReplacedText {
  readonly text: string
  /** One for each replacement that matched. */
  readonly results: readonly ReplacementResult[]
}

/** Compiled patterns of recent texts, with a budget for each text. */
export class TextRewriter {
  readonly #patterns = new PatternCache()
  readonly #maxSteps: number

  constructor(maxSteps: number) {
    this.#maxSteps = maxSteps
  }

  /** Replaces one after another. Throws EvaluationError, also when it would take too long. */
  rewrite(text: string, replacements: readonly Replacement[]): ReplacedText {
    const account = new Account(this.#maxSteps, 'the body is too long for the pattern')
    const results: ReplacementResult[] = []
    let rewritten = text
    for (const [index, { from, to }] of replacements.entries()) {
      try {
        const pattern = this.#patterns.get(from, account)
        if (!pattern.test(rewritten, account)) continue
        account.spend(pattern.steps(rewritten.length))
        const replaced = pattern.replaceAll(rewritten, to, MAX_REPLACED_BODY, account)
        rewritten = replaced.text
        const [first] = replaced.matches
        if (first !== undefined) {
          results.push({ replacement_index: BigInt(index), matched_content: first })
        }
      } catch (error) {
        if (!(error instanceof PatternError)) throw error
        throw new EvaluationError(`the pattern ${error.message}`)
      }
    }
    return { text: rewritten, results }
  }
}
