import * as z from 'zod'
import { headers } from '../document/config-schema.ts'
import { requestOf } from '../exchange/message-head.ts'
import { CONTINUE, respond } from '../exchange/outcome.ts'
import { rawUrl } from '../exchange/request-view.ts'
import { NO_ERROR } from '../exchange/result-error.ts'
import { defineAction } from './action.ts'
import { headerTemplates } from './fields/header-templates.ts'
import { escapeUrl, UrlPattern } from './fields/url-pattern.ts'

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
  // But for a request that is where it is sent to already, which nobody can know beforehand.
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
