import type { ProblemKind } from '../../document/problem.ts'
import type { PolicyExchange } from '../../exchange/policy-exchange.ts'
import { Account } from '../../expression/cost/account.ts'
import { EvaluationError } from '../../expression/evaluation-error.ts'
import { PatternCache, PatternError, type Replacement } from '../../expression/pattern.ts'
import type { Template } from '../../expression/template.ts'
import type { ActionContext } from '../action.ts'

/** Characters of a URL after a replacement; a request head is not longer either. */
const MAX_URL = 65_536

/** An RE2 expression over the whole URL, with `${…}` in it that are computed before it matches. */
export class UrlPattern {
  readonly #template: Template<PolicyExchange>
  readonly #patterns = new PatternCache()

  constructor(source: string, kind: ProblemKind, context: ActionContext) {
    this.#template = context.template(source, ['from'])
    const { constant } = this.#template
    if (constant === undefined) return
    try {
      this.#patterns.get(constant, new Account())
    } catch (error) {
      if (!(error instanceof PatternError)) throw error
      context.problem(kind, ['from'], `The pattern ${error.message}.`)
    }
  }

  /** Replaces every match. Throws EvaluationError. */
  replace(exchange: PolicyExchange, url: string, replacement: string): Replacement {
    try {
      const pattern = this.#patterns.get(this.#template.render(exchange), exchange.account)
      // Most URLs do not match, and to see that takes less.
      if (!pattern.test(url, exchange.account)) return { text: url, matches: [] }
      const { account } = exchange
      account.spend(pattern.steps(url.length))
      account.hold()
      try {
        return pattern.replaceAll(url, replacement, MAX_URL, account)
      } finally {
        account.release()
      }
    } catch (error) {
      if (!(error instanceof PatternError)) throw error
      throw new EvaluationError(`the pattern ${error.message}`)
    }
  }
}

/** Percent-encodes what cannot stand in a URL (RFC 3986 2); what is encoded already stays. */
export function escapeUrl(text: string): string {
  return text
    .replace(/\p{Surrogate}/gu, '\ufffd')
    .replace(/[^!#-;=?-[\]_a-z~]|%(?![0-9A-Fa-f]{2})/gu, encodeURIComponent)
}
