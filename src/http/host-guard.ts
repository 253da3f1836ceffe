import type { Request, RequestHandler } from 'express'
import { AppError } from '../base/app-error.ts'

const HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
}

/** Answers of an API are data: never cached, sniffed, framed or run. */
export const securityHeaders: RequestHandler = (_request, response, next) => {
  for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value)
  next()
}

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?$/

/**
 * Refuses what a web page could make a browser send here: a host name that is not ours, which is
 * how DNS rebinding looks (AppError `misdirected-host`), and changes from another origin
 * (`forbidden`); and two Host fields (`malformed-request`, RFC 9112 section 3.2). `serves` gets the
 * name without its port, lower case; `advice` is a sentence for those whose own name it is.
 */
export function hostGuard(serves: (hostname: string) => boolean, advice = ''): RequestHandler {
  return (request, _response, next) => {
    // Node takes the first of two and goes on; somebody in front may have taken the second.
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

/** Programs send neither header, browsers always one: Fetch Metadata, or the origin itself. */
function isSameOrigin(request: Request, host: string): boolean {
  const site = request.get('sec-fetch-site')
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return false
  const origin = request.get('origin')
  return origin === undefined || origin.toLowerCase().replace(/^https?:\/\//, '') === host
}
