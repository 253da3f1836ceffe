import * as z from 'zod'
import type { ProblemKind } from '../document/problem.ts'
import { headers } from '../document/read-config.ts'
import { plainUrl, rawUrl, requestOf } from '../exchange/message-head.ts'
import { CONTINUE, NO_ERROR, respond } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { AMBIGUOUS_PATH, isAmbiguousPath } from '../exchange/request-path.ts'
import { Account } from '../expression/account.ts'
import type { Template } from '../expression/compiled-expression.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { PatternCache, PatternError, type Replacement } from '../expression/pattern.ts'
import { type ActionContext, defineAction } from './action.ts'
import { headerTemplates, MAX_HEADERS } from './headers.ts'

/** Characters of a URL after a replacement; a request head is not longer either. */
const MAX_URL = 65_536

/** It looks at the scheme alone, as redirects to HTTPS do. */
const SCHEME_ALONE = /^\^https?\??:\/\/$/

/** An RE2 expression over the whole URL, with `${…}` in it that are computed before it matches. */
class UrlPattern {
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
   * Replaces every match in the received URL. If there is none, it replaces matches in the normalized URL
   * that rules see. Throws EvaluationError.
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

/** Percent-encodes characters that a URL cannot contain (RFC 3986 2). Existing encodings stay. */
function escapeUrl(text: string): string {
  return text
    .replace(/\p{Surrogate}/gu, '\ufffd')
    .replace(/[^!#-;=?-[\]_a-z~]|%(?![0-9A-Fa-f]{2})/gu, encodeURIComponent)
}

/** Sends the client to another URL; a URL that does not change is not redirected. */
export const redirect = defineAction({
  type: 'redirect',
  phases: ['on_http_request'],
  config: z.strictObject({
    from: z.string().max(1_024).optional(),
    to: z.string().min(1).max(8_192),
    status_code: z.literal([301, 302, 303, 307, 308]).default(302),
    headers: headers(0).default({}),
  }),
  fields: {
    from: 'RE2 pattern, searched in the whole URL, with scheme and host. Default: every request is redirected. May contain expressions.',
    to: 'With from: text for each match; $1 is the first group. Without from: URL, or path on the same host. May contain expressions.',
    status_code: 'Status of the answer.',
    headers: `Further headers of the answer, at most ${MAX_HEADERS}. Values may contain expressions.`,
  },
  example: {
    from: '^http://',
    to: 'https://',
    status_code: 308,
    headers: { 'cache-control': 'no-store' },
  },
  results: {
    matches: 'list(string)',
    url: 'string',
    'error.code': 'string',
    'error.message': 'string',
  },
  // Exception: a request to the target itself, which is known only at run time.
  alwaysEnds: ({ from }) => from === undefined,
  build({ from, to, status_code: status, headers: map }, context) {
    const pattern =
      from === undefined ? undefined : new UrlPattern(from, 'badRedirectPattern', context)
    const target = context.template(to, ['to'])
    const fieldsFor = headerTemplates(map, ['location'], context)
    return (exchange) => {
      const before = rawUrl(requestOf(exchange))
      const wanted = target.render(exchange)
      const { text, matches } = pattern
        ? pattern.replace(exchange, wanted)
        : { text: wanted, matches: [before] }
      const url = escapeUrl(resolve(text, before))
      exchange.results.set('redirect', { matches, url, error: NO_ERROR })
      if (matches.length === 0 || url === before) return CONTINUE
      const list = ['location', url, ...fieldsFor(exchange)]
      return respond({ status, headers: list, body: '' })
    }
  },
})

/** A path stays on the same origin, and is sent with it. */
function resolve(url: string, base: string): string {
  const origin = /^[a-z]+:\/\/[^/?#]*/i.exec(base)?.[0] ?? ''
  return url.startsWith('/') && !url.startsWith('//') ? `${origin}${url}` : url
}

const FORM = /^https?:\/\/(?:[^/?#@]*@)?([^/?#@]+)((?:\/|\?)[^#]*)?$/i

/** Changes the URL that the upstream sees; the client does not notice. */
export const urlRewrite = defineAction({
  type: 'url-rewrite',
  phases: ['on_http_request'],
  config: z.strictObject({ from: z.string().max(1_024).optional(), to: z.string().max(8_192) }),
  fields: {
    from: 'RE2 pattern, searched in the whole URL, with scheme and host. Default: the whole URL. May contain expressions.',
    to: 'With from: text for each match; $1 is the first group. Without from: URL, or path on the same host. May contain expressions.',
  },
  example: { from: '/v1/', to: '/v2/' },
  results: {
    matches: 'list(string)',
    url: 'string',
    'error.code': 'string',
    'error.message': 'string',
  },
  neverEnds: true,
  build({ from, to }, context) {
    const pattern =
      from === undefined ? undefined : new UrlPattern(from, 'badRewritePattern', context)
    const replacement = context.template(to, ['to'])
    return (exchange) => {
      const request = requestOf(exchange)
      const before = rawUrl(request)
      const wanted = replacement.render(exchange)
      const { text: after, matches } = pattern
        ? pattern.replace(exchange, wanted)
        : { text: absolute(before, wanted), matches: [before] }
      const [, host, target = '/'] = FORM.exec(after) ?? []
      if (host === undefined) {
        const error = { code: 'ERR_NGROK_2247', message: 'The new URL is not valid.' }
        exchange.results.set('url_rewrite', { matches, url: before, error })
        return CONTINUE
      }
      if (after !== before) {
        request.target = escapeUrl(target.startsWith('/') ? target : `/${target}`)
        const authority = request.headers.get('host') ?? request.host
        if (host !== authority) request.headers.set('host', escapeUrl(host))
        if (exchange.guardsPath && isAmbiguousPath(request.target)) return AMBIGUOUS_PATH
      }
      exchange.results.set('url_rewrite', { matches, url: after, error: NO_ERROR })
      return CONTINUE
    }
  },
})

/** A path alone stays on the host. */
function absolute(url: string, wanted: string): string {
  return wanted.startsWith('/') ? `${/^[a-z]+:\/\/[^/?#]*/i.exec(url)?.[0] ?? ''}${wanted}` : wanted
}
