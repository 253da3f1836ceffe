import * as z from 'zod'
import { formBody } from '../../../http/json-body.ts'
import type { Route } from '../../../http/routes.ts'
import { ERROR_KINDS, type ErrorKind, KIND_TEXTS } from '../../error-pages/error-kind.ts'
import { PageProblem, PageTemplate } from '../../error-pages/page-template.ts'
import { parseBody } from '../../resources/common/request.ts'
import { type SessionAuthDeps, sessionAuth } from './session-routes.ts'

/** A page of 64 KiB, in which a form may escape every byte. */
const MAX_FORM_BYTES = 256 * 1_024
/** No script, no form, nothing from other sites: the origin of the frame is none. */
const PREVIEW_POLICY = [
  'sandbox',
  "default-src 'none'",
  "style-src 'unsafe-inline'",
  'img-src data:',
  "base-uri 'none'",
  "frame-ancestors 'self'",
].join('; ')

/** Status and code that stand in the preview of a kind. */
const EXAMPLES: Readonly<Record<ErrorKind, readonly [status: number, code: string]>> = {
  unknown: [404, 'ERR_NGROK_3200'],
  offline: [503, 'ERR_GATEWAY_AWAY'],
  busy: [503, 'ERR_GATEWAY_BUSY'],
  too_many_requests: [429, ''],
  upstream_failed: [502, 'ERR_NGROK_8012'],
  default: [403, 'ERR_NGROK_3205'],
}

const Preview = z.strictObject({ kind: z.enum(ERROR_KINDS), html: z.string() })

/**
 * Shows an own page with example values in a frame of the console. A form posts it, because a page in the
 * console's own document would have the console's content policy.
 */
export function errorPagePreview(deps: SessionAuthDeps): Route {
  return {
    route: 'POST /error_page_preview',
    isInternal: true,
    before: [sessionAuth(deps), formBody(MAX_FORM_BYTES)],
    handle: (request, response) => {
      const { kind, html } = parseBody(Preview, { ...request.body })
      response.setHeader('content-security-policy', PREVIEW_POLICY)
      try {
        // A form has the line ends of its own.
        const template = PageTemplate.parse(html.replaceAll('\r\n', '\n'))
        response.type('html').send(template.render(exampleOf(kind)))
      } catch (error) {
        if (!(error instanceof PageProblem)) throw error
        response.status(422).type('text').send(error.message)
      }
    },
  }
}

function exampleOf(kind: ErrorKind) {
  const [status, code] = EXAMPLES[kind]
  const { title, message = 'Your IP address is not allowed at this endpoint.' } = KIND_TEXTS[kind]
  const shared = { host: 'camera.example.com', requestId: '3f9a01c2d4e5', retryAfterS: 5 }
  return { status, title, message, code, ...shared }
}
