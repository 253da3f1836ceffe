import { Router } from 'express'
import { methodNotAllowed } from '../http/error-response.ts'

/** `/openapi.json`. The document is loaded at the first request: few devices are asked for it. */
export function openApiRoutes(): Router {
  const router = Router()
  router
    .route('/openapi.json')
    .get(async (_request, response) => {
      const { agentApiDocument } = await import('./openapi-document.ts')
      response.json(agentApiDocument())
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}
