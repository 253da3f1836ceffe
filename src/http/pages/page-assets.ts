import { existsSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import express, { type RequestHandler } from 'express'
import { AppError } from '../../base/app-error.ts'
import { packageRoot } from '../../base/file.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD'])

/**
 * Admits changes only if the browser confirms that they come from one of our pages. The host guard has
 * already rejected other origins. This rejects requests without confirmation. `pages` is the name in
 * messages, for example `the console`.
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

/** Folders of pages: in a checkout among the sources, in a package next to the bundle. */
const FOLDERS = {
  console: ['src/gateway/management/console-assets', 'dist/pages/console'],
  device: ['src/api/page-assets', 'dist/pages/device'],
  parts: ['src/http/pages/parts', 'dist/pages/parts'],
} as const

/** Only files of this server may run, no inline code. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
]
/** The console shows own error pages in a frame, which a form fills. */
const MORE_POLICY = {
  console: ["form-action 'self'", "frame-src 'self'", "frame-ancestors 'none'"],
  device: ["form-action 'none'", "frame-ancestors 'none'"],
} as const

/**
 * Serves the files of a page, and the shared parts below the same path. They are the same for all users, so
 * browsers may cache them.
 */
export function pageAssets(page: 'console' | 'device'): RequestHandler[] {
  return [FOLDERS[page], FOLDERS.parts].map((places) => {
    const folder = places.map((path) => join(packageRoot(), path)).find(existsSync)
    if (!folder) throw new Error(`the files of the page ${page} are missing from this installation`)
    const setHeaders = (response: ServerResponse) => setPageHeaders(response, page)
    return express.static(folder, { setHeaders })
  })
}

function setPageHeaders(response: ServerResponse, page: keyof typeof MORE_POLICY): void {
  response.setHeader('cache-control', 'no-cache')
  const policy = [...CONTENT_SECURITY_POLICY, ...MORE_POLICY[page]]
  response.setHeader('content-security-policy', policy.join('; '))
  // With `no-referrer`, browsers would not name the origin of a form.
  if (page === 'console') response.setHeader('referrer-policy', 'same-origin')
  response.setHeader('cross-origin-opener-policy', 'same-origin')
  response.setHeader('cross-origin-resource-policy', 'same-origin')
}
