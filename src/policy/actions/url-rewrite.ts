import * as z from 'zod'
import { requestOf } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import { AMBIGUOUS_PATH, isAmbiguousPath } from '../exchange/request-path.ts'
import { rawUrl } from '../exchange/request-view.ts'
import { NO_ERROR } from '../exchange/result-error.ts'
import { defineAction } from './action.ts'
import { escapeUrl, UrlPattern } from './fields/url-pattern.ts'

const FORM = /^https?:\/\/(?:[^/?#@]*@)?([^/?#@]+)((?:\/|\?)[^#]*)?$/i

/** Changes the URL that the upstream sees; the client does not notice. */
export const urlRewrite = defineAction({
  type: 'url-rewrite',
  phases: ['on_http_request'],
  config: z.strictObject({ from: z.string().max(1_024).optional(), to: z.string().max(8_192) }),
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
