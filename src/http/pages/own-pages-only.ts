import type { RequestHandler } from 'express'
import { AppError } from '../../base/app-error.ts'

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
