import * as z from 'zod'
import { headers, problem } from '../document/config-schema.ts'
import { respond } from '../exchange/outcome.ts'
import { HTTP_PHASES } from '../phase.ts'
import { defineAction } from './action.ts'
import { headerTemplates } from './fields/header-templates.ts'

/** Statuses whose answer has no content (RFC 9110 15.3.5, 15.3.6, 15.4.5). */
const BODILESS = new Set([204, 205, 304])

const config = z
  .strictObject({
    status_code: z.int().min(200).max(599).default(200),
    body: z.string().optional(),
    /** As documents before 2024-10 name the body. */
    content: z.string().optional(),
    headers: headers(0).default({}),
  })
  .refine(({ body, content }) => body === undefined || content === undefined, {
    path: ['content'],
    ...problem('badValue', 'content is the old name of body. Use only one of the two.'),
  })

/** Answers instead of the upstream, or in place of what the upstream answered. */
export const customResponse = defineAction({
  type: 'custom-response',
  phases: HTTP_PHASES,
  config,
  example: {
    status_code: 503,
    body: 'Back in a minute.',
    headers: { 'content-type': 'text/plain' },
  },
  isTerminating: true,
  build({ status_code: status, body, content, headers: map }, context) {
    const field = content === undefined ? 'body' : 'content'
    const text = context.template(body ?? content ?? '', [field])
    if (BODILESS.has(status) && text.constant !== '') {
      context.problem(
        'bodyNotAllowed',
        [field],
        `A response with status ${status} cannot have a body.`,
      )
    }
    const fieldsFor = headerTemplates(map, [], context)
    const hasType = Object.keys(map).some((name) => name.toLowerCase() === 'content-type')
    return (exchange) => {
      const answer = text.render(exchange)
      const fields = fieldsFor(exchange)
      const needsType = !hasType && answer !== ''
      const headers = needsType ? [...fields, 'content-type', typeOf(answer)] : fields
      return respond({ status, headers, body: answer }, context.phase === 'on_http_request')
    }
  },
})

/** The media type that a body looks like. */
function typeOf(body: string): string {
  if (/^\s*<(?:!doctype html|html)/i.test(body)) return 'text/html; charset=utf-8'
  if (!/^\s*[[{]/.test(body)) return 'text/plain; charset=utf-8'
  try {
    JSON.parse(body)
    return 'application/json'
  } catch {
    return 'text/plain; charset=utf-8'
  }
}
