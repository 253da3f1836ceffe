import type { ProblemKind } from '../../document/problem.ts'
import { requestOf } from '../../exchange/message-head.ts'
import type { PolicyExchange } from '../../exchange/policy-exchange.ts'
import { plainUrl, rawUrl } from '../../exchange/request-view.ts'
import { Account } from '../../expression/cost/account.ts'
import { EvaluationError } from '../../expression/evaluation-error.ts'
import { PatternCache, PatternError, type Replacement } from '../../expression/pattern.ts'
import type { Template } from '../../expression/template.ts'
import type { ActionContext } from '../action.ts'

/** Characters of a URL after a replacement; a request head is not longer either. */
const MAX_URL = 65_536

/** It looks at the scheme alone, as redirects to HTTPS do. */
const SCHEME_ALONE = /^\^https?\??:\/\/$/

/** An RE2 expression over the whole URL, with `${…}` in it that are computed before it matches. */
export class UrlPattern {
  readonly #template: Template<PolicyExchange>
  readonly #patterns = new PatternCache()

  constructor(source: string, kind: ProblemKind, context: ActionContext) {
    this.#template = context.template(source, ['from'])
    const { constant } = this.#template
    if (constant === undefined || !SCHEME_ALONE.test(constant)) context.readPath()
    if (constant === undefined) return
    try {
      this.#patterns.get(constant, new Account())
    } catch (error) {
      if (!(error instanceof PatternError)) throw error
      context.problem(kind, ['from'], `The pattern ${error.message}.`)
    }
  }

  /**
   * Replaces every match in the URL as it came. Where none is in that, but in the spelling that rules
   * are compared with, it replaces those. Throws EvaluationError.
   */
  replace(exchange: PolicyExchange, replacement: string): Replacement {
    const url = rawUrl(requestOf(exchange))
    const replaced = this.#replaceIn(exchange, url, replacement)
    if (replaced.matches.length > 0) return replaced
    const plain = plainUrl(exchange)
    if (plain === url) return replaced
    const found = this.#replaceIn(exchange, plain, replacement)
    return found.matches.length > 0 ? found : replaced
  }

  #replaceIn(exchange: PolicyExchange, url: string, replacement: string): Replacement {
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
