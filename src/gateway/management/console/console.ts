import { type RequestHandler, Router } from 'express'
import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import { methodNotAllowed } from '../../../http/error-response.ts'
import { jsonBody } from '../../../http/json-body.ts'
import { BrowserSessions, type SessionRows } from '../../../http/pages/browser-sessions.ts'
import { ownPagesOnly, pageAssets } from '../../../http/pages/page-assets.ts'
import { mountRoutes, type Route } from '../../../http/routes.ts'
import type { Database } from '../../../store/database.ts'
import type { ConsoleSessionStore } from '../../records/console-session-store.ts'
import { keyScopeGuard, versionHeader } from '../../resources/common/caller.ts'
import { noSuchRoute } from '../../resources/common/error-response.ts'
import { parseBody } from '../../resources/common/request.ts'
import { type DeviceRoutesDeps, deviceRoutes } from './device-routes.ts'
import { endpointRows } from './endpoint-rows.ts'
import { errorPagePreview } from './error-page-preview.ts'
import { type SessionRoutesDeps, sessionAuth, sessionRoutes } from './session-routes.ts'

/** Longest join string. Most have one address, and phones read them off a screen. */
const MAX_TEXT = 2_048

const QrCodeCreate = z.strictObject({ text: z.string().min(1).max(MAX_TEXT) })

/** A text as a QR code in SVG. Not a GET request, because URLs are logged. */
const QR_CODES: Route = {
  route: 'POST /qr_codes',
  isInternal: true,
  before: [jsonBody],
  handle: async (request, response) => {
    const { text } = parseBody(QrCodeCreate, request.body)
    // In its own module: dynamic imports of CommonJS modules have no names in the bundle.
    const { drawQrCode } = await import('./qr-drawing.ts')
    const svg = await drawQrCode(text)
    response.status(201).type('image/svg+xml').send(svg)
  },
}

/** Redirects browsers to the console. */
const START: Route = {
  route: 'GET /',
  isInternal: true,
  handle: (request, response, next) => {
    if (request.get('accept')?.includes('text/html')) response.redirect('/console/')
    else next()
  },
}

/** Requests that the console repeats without a user. */
export const LIVE_PATHS: ReadonlySet<string> = new Set([
  '/console/api/device_rows',
  '/console/api/endpoint_rows',
])

export type ConsoleDeps = SessionRoutesDeps &
  DeviceRoutesDeps & {
    readonly noteChange: RequestHandler
  }

/** How old the time of the last use may become that all gateways know. */
const USE_STEP_MS = 60_000
const NOT_ENDED =
  'The session has ended at this gateway. The other gateways are told as soon as ' +
  'PostgreSQL accepts changes again, unless this gateway stops before.'

export interface SiteSessionsOptions {
  readonly database: Pick<Database, 'change'>
  readonly store: Pick<ConsoleSessionStore, 'find' | 'all' | 'insert' | 'noteUse' | 'delete'>
  /** Aborted when nothing is tried again. */
  readonly signal: AbortSignal
  readonly clock: Clock
}

/** Sessions that are good at all gateways of a site: rows that all have in common. */
export function siteSessions({
  database,
  store,
  signal,
  clock,
}: SiteSessionsOptions): BrowserSessions {
  const rows: SessionRows = {
    useStepMs: USE_STEP_MS,
    now: () => clock.now(),
    find: (hash) => store.find(hash),
    all: () => store.all(),
    insert: (session) => store.insert(session),
    noteUse: (hash, at) => store.noteUse(hash, at),
    delete: (hash) => store.delete(hash),
    change: (work) => database.change(work, { withoutBackup: true }),
  }
  return new BrowserSessions(clock, rows, { signal, notEnded: NOT_ENDED })
}

/**
 * The web console under `/console`: its pages, `/console/session` for signing in, and the API for signed-in
 * users under `/console/api`. Browsers are redirected from `/`. Stands after the host check, and before API
 * key authentication.
 */
export function consoleRoutes(deps: ConsoleDeps, resources: readonly Route[]): Router {
  const own = [...deviceRoutes(deps), endpointRows(deps)]
  // With the version header, browsers send a preflight request for other origins.
  const api = Router().use(sessionAuth(deps), versionHeader)
  // A QR code is asked for by POST, and changes nothing.
  api.use(mountRoutes([QR_CODES]), deps.noteChange, keyScopeGuard)
  api.use(mountRoutes([...own, ...resources], methodNotAllowed))
  const session = mountRoutes([...sessionRoutes(deps), errorPagePreview(deps)], methodNotAllowed)
  const router = Router().use(mountRoutes([START]))
  router.use('/console', ownPagesOnly('the console'), session, ...pageAssets('console'))
  router.use('/console/api', api)
  router.use('/console', noSuchRoute)
  return router
}
