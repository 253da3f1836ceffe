import { existsSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import express, { type RequestHandler } from 'express'
import { AppError } from '../../base/app-error.ts'
import { packageRoot } from '../../base/file.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD'])

/**
 * Takes changes only with a browser's word that they come from a page of ours. The host guard has
 * refused the word of another origin by now; a cookie without any word is refused here. `pages`
 * names them: `the console`.
 */
export function ownPagesOnly(pages: string): RequestHandler {
  return (request, _response, next) => {
    const site = request.get('sec-fetch-site')
    const isOurs = site === undefined ? request.get('origin') !== undefined : site === 'same-origin'
    if (!isOurs && !SAFE_METHODS.has(request.method)) {
      throw new AppError('forbidden', `Changes are only accepted from the pages of ${pages}.`)
    }
    next()
  }
}

/** Where pages lie: a checkout has them among the sources, a package beside the bundle. */
const FOLDERS = {
  console: ['src/gateway/management/console-assets', 'dist/pages/console'],
  device: ['src/api/page-assets', 'dist/pages/device'],
  parts: ['src/http/pages/parts', 'dist/pages/parts'],
} as const

/** Only what this server serves runs, and nothing that stands inside a page. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

/**
 * The files of a page, and below the same path the parts that pages share: the same for everybody,
 * so a browser may keep what did not change.
 */
export function pageAssets(page: 'console' | 'device'): RequestHandler[] {
  return [FOLDERS[page], FOLDERS.parts].map((places) => {
    const folder = places.map((path) => join(packageRoot(), path)).find(existsSync)
    if (!folder) throw new Error(`the files of the page ${page} are missing from this installation`)
    return express.static(folder, { setHeaders: setPageHeaders })
  })
}

function setPageHeaders(response: ServerResponse): void {
  response.setHeader('cache-control', 'no-cache')
  response.setHeader('content-security-policy', CONTENT_SECURITY_POLICY)
  response.setHeader('cross-origin-opener-policy', 'same-origin')
  response.setHeader('cross-origin-resource-policy', 'same-origin')
}
