import { Router } from 'express'
import type { Agent } from '../agent/agent.ts'
import { methodNotAllowed } from '../http/no-route.ts'
import type { Database } from '../store/database.ts'

/** `/healthz`, open to all: the process turns and its database answers. Never about the network. */
export function healthRoutes(database: Database): Router {
  const router = Router()
  router
    .route('/healthz')
    .get((_request, response) => {
      database.ping()
      response.json({ status: 'ok' })
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}

/** `/readyz`: whether the tunnels carry traffic and changes are taken, else 503 and why not. */
export function readinessRoutes(agent: Agent, database: Database): Router {
  const router = Router()
  router
    .route('/readyz')
    .get((_request, response) => {
      const { ready, notReady } = agent.status()
      const { problem } = database.report()
      const reasons = problem === undefined ? notReady : [...notReady, problem]
      const isReady = ready && problem === undefined
      response.status(isReady ? 200 : 503).json({ ready: isReady, reasons })
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}
