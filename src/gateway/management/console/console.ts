import { type RequestHandler, Router } from 'express'
import { BrowserSessions } from '../../../http/pages/browser-sessions.ts'
import { ownPagesOnly } from '../../../http/pages/own-pages-only.ts'
import { pageAssets } from '../../../http/pages/page-assets.ts'
import { versionHeader } from '../api-key-auth.ts'
import { keyScopeGuard } from '../caller.ts'
import { noSuchRoute } from '../error-response.ts'
import { resourceRoutes } from '../resource.ts'
import type { ResourceLists } from '../resource-lists.ts'
import { cloudEndpoints } from './cloud-endpoints.ts'
import { type DeviceRoutesDeps, deviceRoutes } from './device-routes.ts'
import { qrCodeRoutes } from './qr-code.ts'
import { sessionAuth } from './session-auth.ts'
import { type SessionRoutesDeps, sessionRoutes } from './session-routes.ts'
import { SiteSessions, type SiteSessionsOptions } from './site-sessions.ts'

/** What the console asks for by itself, again and again. */
export const LIVE_PATHS: ReadonlySet<string> = new Set([
  '/console/api/device_rows',
  '/console/api/cloud_endpoints',
])

export type ConsoleDeps = Omit<SessionRoutesDeps, 'consoleSessions'> &
  DeviceRoutesDeps & {
    readonly database: SiteSessionsOptions['database']
    readonly consoleSessionStore: SiteSessionsOptions['store']
    readonly lists: ResourceLists
    readonly noteChange: RequestHandler
  }

/**
 * The web console under `/console`: its pages, `/console/session` for signing in, and below
 * `/console/api` the resources of this API for those who did. Browsers that ask for `/` are led to
 * it. Stands behind the host guard, and before whatever asks for an API key.
 */
export function consoleRoutes(deps: ConsoleDeps, resources: readonly RequestHandler[]): Router {
  const { node, database, consoleSessionStore: store, clock } = deps
  const consoleSessions = node
    ? new SiteSessions({ database, store, signal: node.stopping, clock })
    : new BrowserSessions(clock)
  const withSessions = { ...deps, consoleSessions }
  // The version header makes a cross-origin request one that browsers ask about first.
  const api = Router().use(sessionAuth(withSessions), versionHeader)
  const live = [deviceRoutes(deps), resourceRoutes(cloudEndpoints(deps), deps.lists)]
  // A QR code is asked for by POST, and changes nothing.
  api.use(qrCodeRoutes(), deps.noteChange, keyScopeGuard, live, ...resources)
  const router = Router()
  router.get('/', (request, response, next) => {
    if (request.get('accept')?.includes('text/html')) response.redirect('/console/')
    else next()
  })
  router.use(
    '/console',
    ownPagesOnly('the console'),
    sessionRoutes(withSessions),
    ...pageAssets('console'),
  )
  router.use('/console/api', api)
  router.use('/console', noSuchRoute)
  return router
}
