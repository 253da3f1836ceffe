import { type RequestHandler, Router } from 'express'
import * as z from 'zod'
import { changeOf } from '../http/change-audit.ts'
import { methodNotAllowed } from '../http/error-response.ts'
import { jsonBody } from '../http/json-body.ts'
import { parse } from '../http/parse.ts'
import type { ApiTokens } from './api-tokens.ts'
import {
  aboutNew,
  aboutRevoked,
  newTokenView,
  readTokenRequest,
  readTokenRotation,
  tokenView,
} from './token-view.ts'

const NoQuery = z.strictObject({})

/** `/tokens`: the tokens of this API. */
export function tokenRoutes(tokens: ApiTokens): Router {
  const router = Router()
  router
    .route('/tokens')
    .all(refuseQuery)
    .get((_request, response) => {
      response.json(tokens.list().map(tokenView))
    })
    .post(jsonBody, async (request, response) => {
      const token = readTokenRequest(request.body)
      const create = () => tokens.create(token)
      const made = await changeOf(response).run(create, aboutNew, { targetName: token.name })
      response.status(201).location(`/tokens/${made.token.id}`).json(newTokenView(made))
    })
    .all(methodNotAllowed('GET', 'HEAD', 'POST'))
  router
    .route('/tokens/:id')
    .all(refuseQuery)
    .get((request, response) => {
      response.json(tokenView(tokens.find(request.params.id)))
    })
    .delete(async (request, response) => {
      await changeOf(response).run(() => tokens.revoke(request.params.id), aboutRevoked)
      response.status(204).end()
    })
    .all(methodNotAllowed('GET', 'HEAD', 'DELETE'))
  router
    .route('/tokens/:id/rotate')
    .all(refuseQuery)
    .post(optionalBody, async (request, response) => {
      const change = readTokenRotation(request.body ?? {})
      const rotate = () => tokens.rotate(request.params.id, change)
      response.json(newTokenView(await changeOf(response).run(rotate, aboutNew)))
    })
    .all(methodNotAllowed('POST'))
  return router
}

const refuseQuery: RequestHandler = (request, _response, next) => {
  parse(NoQuery, request.query)
  next()
}

/** A rotation as usual needs no words. */
const optionalBody: RequestHandler = (request, response, next) => {
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers
  if (length !== '0' || coding !== undefined) return jsonBody(request, response, next)
  next()
  return undefined
}
