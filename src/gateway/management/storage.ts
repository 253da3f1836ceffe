import { type RequestHandler, Router } from 'express'
import { changeOf } from '../../http/change-audit.ts'
import { storageView } from '../../store/storage-view.ts'
import type { GatewayDatabase } from '../records/gateway-database.ts'
import { callerOf, refuseForeign } from './caller.ts'

const CONFIRM = { action: 'storage.confirm', targetId: undefined }

/** `/storage`: how the database is, and that somebody has seen what may be missing from it. */
export function storageRoutes(database: GatewayDatabase['database']): Router {
  const router = Router()
  router.get('/storage', gatewayOnly, (_request, response) => {
    response.json(storageView(database.report()))
  })
  router.post('/storage/confirm', gatewayOnly, async (_request, response) => {
    await changeOf(response).run(() => database.confirmLosses(), undefined, CONFIRM)
    response.json(storageView(database.report()))
  })
  return router
}

/** For what is told of the gateway as a whole. */
export const gatewayOnly: RequestHandler = (_request, response, next) => {
  refuseForeign(callerOf(response), 'its files and figures')
  next()
}
