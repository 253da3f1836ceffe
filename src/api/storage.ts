import { Router } from 'express'
import { changeOf } from '../http/change-audit.ts'
import { methodNotAllowed } from '../http/error-response.ts'
import type { Database } from '../store/database.ts'
import { storageView } from '../store/storage-view.ts'

const CONFIRM = { action: 'storage.confirm', targetId: undefined }

/** `/storage`: how the database is, and that somebody has seen what may be missing from it. */
export function storageRoutes(database: Database): Router {
  const router = Router()
  router
    .route('/storage')
    .get((_request, response) => {
      response.json(storageView(database.report()))
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  router
    .route('/storage/confirm')
    .post(async (_request, response) => {
      await changeOf(response).run(() => database.confirmLosses(), undefined, CONFIRM)
      response.json(storageView(database.report()))
    })
    .all(methodNotAllowed('POST'))
  return router
}
