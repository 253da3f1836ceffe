import { type RequestHandler, Router } from 'express'
import type { Metric } from './metrics.ts'
import { methodNotAllowed } from './no-route.ts'

/** `GET /metrics` in the text format of Prometheus. */
export function serveMetrics(metrics: readonly Metric[]): RequestHandler {
  // Loaded late: where nobody watches, nobody needs the library.
  const load = async () => (await import('./metric-registry.ts')).createRegistry(metrics)
  let loaded: ReturnType<typeof load> | undefined
  return async (_request, response) => {
    loaded ??= load()
    const registry = await loaded
    const text = await registry.metrics()
    response.setHeader('content-type', registry.contentType)
    response.end(text)
  }
}

export function metricsRoutes(metrics: readonly Metric[]): Router {
  const router = Router()
  router.route('/metrics').get(serveMetrics(metrics)).all(methodNotAllowed('GET', 'HEAD'))
  return router
}
