import type { Request, RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'

const HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
}

/** API answers are data: they must never be cached, sniffed, framed or executed. */
export const securityHeaders: RequestHandler = (_request, response, next) => {
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value)
  next()
}

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/

/**
 * Rejects requests that a web page could make a browser send:
 *
 * - an unknown host name, as in DNS rebinding (AppError `misdirected-host`)
 * - changes from another origin (`forbidden`)
 *
 * Also rejects two Host fields (`malformed-request`, RFC 9112 section 3.2). `serves` gets the name in lower
 * case, without port. `advice` is a sentence for users of an unknown name.
 */
export function hostGuard(serves: (hostname: string) => boolean, advice = ''): RequestHandler {
  return (request, _response, next) => {
    // Node uses the first Host field. A proxy in front may have used the second.
    if ((request.headersDistinct.host?.length ?? 0) > 1) {
      throw new AppError('malformed-request', 'The request has two Host fields.')
    }
    const host = request.get('host')?.toLowerCase() ?? ''
    const hostname = HOST.exec(host)?.[1]
    if (hostname === undefined || !serves(hostname)) {
      const detail = `The host name is unknown to this API. ${advice}`.trimEnd()
      throw new AppError('misdirected-host', detail)
    }
    if (!SAFE_METHODS.has(request.method) && !isSameOrigin(request, host)) {
      throw new AppError('forbidden', 'Changes from another web origin are not accepted.')
    }
    next()
  }
}

/** Programs send neither header. Browsers always send at least one: Fetch Metadata or the origin. */
function isSameOrigin(request: Request, host: string): boolean {
  const site = request.get('sec-fetch-site')
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return false
  const origin = request.get('origin')
  return origin === undefined || origin.toLowerCase().replace(/^https?:\/\//, '') === host
}
