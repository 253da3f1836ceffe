import { Router } from 'express'
import { methodNotAllowed } from '../http/error-response.ts'

/** `/openapi.json`. Loaded and written when somebody asks: a device rarely hears that question. */
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
