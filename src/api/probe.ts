import { Router } from 'express'
import type { Agent } from '../agent/agent.ts'
import { PROBE_PATH } from '../agent/probes/self-probe.ts'
import { AppError } from '../base/app-error.ts'

/** The agent's own question to itself through its public domain; needs no token, the nonce is one. */
export function probeRoutes(agent: Agent): Router {
  const router = Router()
  router.get(`${PROBE_PATH}/:nonce`, (request, response) => {
    const answer = agent.answerProbe(request.params.nonce)
    if (answer === undefined)
      throw new AppError('not-found', 'This path is only for the self-test of the agent.')
    response.type('text/plain').send(answer)
  })
  return router
}
