import { Router } from 'express'

/** `/openapi.json`. Loaded and written when somebody asks. */
export function openApiRoutes(): Router {
  const router = Router()
  router.get('/openapi.json', async (_request, response) => {
    const { managementApiDocument } = await import('./openapi-document.ts')
    response.json(managementApiDocument())
  })
  return router
}
