import { Router } from 'express'
import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import { methodNotAllowed } from '../http/error-response.ts'
import type { Database } from '../store/database.ts'

export const HealthView = z.strictObject({ status: z.literal('ok') })
export const ReadinessView = z.strictObject({
  ready: z.boolean(),
  reasons: z
    .array(z.string())
    .readonly()
    .describe('reasons for not being ready, one sentence each'),
  unverified: z
    .array(z.string())
    .readonly()
    .describe('facts that the device cannot verify, one sentence each; no known problem'),
})

/** `/healthz`, open to all: the process turns and its database answers. Never about the network. */
export function healthRoutes(database: Database): Router {
  const router = Router()
  router
    .route('/healthz')
    .get((_request, response) => {
      database.ping()
      response.json({ status: 'ok' } satisfies z.infer<typeof HealthView>)
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
      const { ready, notReady, unverified } = agent.status()
      const { problem } = database.report()
      const reasons = problem === undefined ? notReady : [...notReady, problem]
      const isReady = ready && problem === undefined
      const view: z.infer<typeof ReadinessView> = { ready: isReady, reasons, unverified }
      response.status(isReady ? 200 : 503).json(view)
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}
