import { BoundedCache } from '../../base/bounded-cache.ts'
import { Account } from './cost/account.ts'
import { Pattern } from './pattern.ts'

/** Patterns by their source, for as long as there is room: whoever needs a new one pays for it. */
export class PatternCache {
  #account = new Account()
  readonly #patterns = new BoundedCache((source) => Pattern.compile(source, this.#account))

  /** Throws PatternError and EvaluationError. */
  get(source: string, account: Account): Pattern {
    this.#account = account
    return this.#patterns.get(source)
  }
}
