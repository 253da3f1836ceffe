import { type ErrorRequestHandler, type RequestHandler, Router } from 'express'
import type { Logger } from '../../base/logger.ts'
import { scopeGuard } from '../../http/caller.ts'
import { methodNotAllowed, noRoute } from '../../http/error-response.ts'
import { BrowserSessions } from '../../http/pages/browser-sessions.ts'
import { ownPagesOnly, pageAssets } from '../../http/pages/page-assets.ts'
import { mountRoutes, type Route } from '../../http/routes.ts'
import { isLocalPeer } from './page-address.ts'
import { pageAuth, type SessionRoutesDeps, sessionRoutes } from './session-routes.ts'

/** Files and polling requests of the page. Its changes are in the audit trail. */
export function isQuietOnPage(path: string): boolean {
  return path.startsWith('/page/') && path !== '/page/session'
}

export type PageDeps = Omit<SessionRoutesDeps, 'sessions'> & {
  /** The routes of the API that the page uses. */
  readonly resources: RequestHandler
  readonly changeAudit: readonly [RequestHandler, ErrorRequestHandler]
  readonly log: Logger
}

/**
 * The device page under `/page`: its files, `/page/session` for signing in, and the API for signed-in users
 * under `/page/api`. Browsers are redirected from `/`. Stands after the host check, and before token
 * authentication. All listeners use one instance, because they share the sessions.
 */
export function pageRoutes(deps: PageDeps): Router {
  const withSessions = { ...deps, sessions: new BrowserSessions(deps.clock) }
  const [noteChange, noteRefusal] = deps.changeAudit
  const api = Router()
  api.use(pageAuth(withSessions), noteChange, scopeGuard({ noun: 'token' }))
  api.use(deps.resources, noRoute, noteRefusal)
  const session = mountRoutes(sessionRoutes(withSessions), methodNotAllowed)
  const router = Router().use(mountRoutes([START]))
  router.use('/page', ownPagesOnly('the device'), session, ...pageAssets('device'))
  router.use('/page/api', api)
  router.use('/page', noRoute)
  return router
}

/** Redirects browsers to the page. */
const START: Route = {
  route: 'GET /',
  isInternal: true,
  handle: (request, response, next) => {
    if (request.get('accept')?.includes('text/html')) response.redirect('/page/')
    else next()
  },
}

/** Lets peers on this machine pass; to others there is no page at this listener. */
export const localPeersOnly: RequestHandler = (request, _response, next) => {
  if (isLocalPeer(request.socket.remoteAddress)) next()
  else next('router')
}
