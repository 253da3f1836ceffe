import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import type { Route } from '../http/routes.ts'
import type { Database } from '../store/database.ts'

const HealthView = z.strictObject({ status: z.literal('ok') })
const ReadinessView = z.strictObject({
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
export function healthRoute(database: Database): Route {
  return {
    route: 'GET /healthz',
    id: 'getHealth',
    summary: 'Liveness: the process and its database work',
    about: 'For process supervisors; no token needed.',
    answers: { 200: { means: 'Yes.', schema: { Health: HealthView } } },
    isOpen: true,
    handle: (_request, response) => {
      database.ping()
      response.json({ status: 'ok' } satisfies z.infer<typeof HealthView>)
    },
  }
}

/** `/readyz`: whether the tunnels carry traffic and changes are taken, else 503 and why not. */
export function readinessRoute(agent: Agent, database: Database): Route {
  return {
    route: 'GET /readyz',
    id: 'getReadiness',
    summary: 'Readiness: tunnels carry traffic and changes are accepted',
    about: 'For load balancers and monitors.',
    answers: {
      200: { means: 'Yes.', schema: { Readiness: ReadinessView } },
      503: { means: 'No.', schema: { Readiness: ReadinessView } },
    },
    handle: (_request, response) => {
      const { ready, notReady, unverified } = agent.status()
      const { problem } = database.report()
      const reasons = problem === undefined ? notReady : [...notReady, problem]
      const isReady = ready && problem === undefined
      const view: z.infer<typeof ReadinessView> = { ready: isReady, reasons, unverified }
      response.status(isReady ? 200 : 503).json(view)
    },
  }
}
