import { Router } from 'express'
import type { Agent } from '../agent/agent.ts'
import { methodNotAllowed } from '../http/error-response.ts'
import type { Database } from '../store/database.ts'
import { statusView } from './status-view.ts'
import type { OwnUpdate } from './update/update-view.ts'

/** `/status`: how the device is. */
export function statusRoutes(agent: Agent, database: Database, update?: OwnUpdate): Router {
  const router = Router()
  router
    .route('/status')
    .get((_request, response) => {
      response.json(statusView(agent.status(), database.report(), update?.report()))
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}
