import type { Request, RequestHandler } from 'express'
import * as z from 'zod'
import { changeOf } from '../http/change-audit.ts'
import { jsonBody, limited } from '../http/json-body.ts'
import { parse } from '../http/parse.ts'
import type { Route } from '../http/routes.ts'
import type { ApiTokens } from './api-tokens.ts'
import {
  aboutNew,
  aboutRevoked,
  NewTokenView,
  newTokenView,
  readTokenRequest,
  readTokenRotation,
  TokenRequest,
  TokenRotation,
  TokenView,
  tokenView,
} from './token-view.ts'

const NoQuery = z.strictObject({})

/** `/tokens`: the tokens of this API. */
export function tokenRoutes(tokens: ApiTokens): Route[] {
  return [
    {
      route: 'GET /tokens',
      id: 'listTokens',
      summary: 'List API tokens, oldest first',
      about: 'Tokens for this API.',
      answers: {
        200: {
          means: 'The tokens, without their secrets.',
          schema: { Tokens: z.array(TokenView) },
        },
      },
      before: [refuseQuery],
      handle: (_request, response) => {
        response.json(tokens.list().map(tokenView))
      },
    },
    {
      route: 'POST /tokens',
      id: 'createToken',
      summary: 'Create a token',
      body: { TokenRequest },
      hasLocation: true,
      answers: {
        201: {
          means: 'The token with its secret, which is not shown again.',
          schema: { NewToken: NewTokenView },
        },
      },
      before: [refuseQuery, jsonBody],
      handle: async (request, response) => {
        const token = readTokenRequest(request.body)
        const create = () => tokens.create(token)
        const made = await changeOf(response).run(create, aboutNew, { targetName: token.name })
        response.status(201).location(`/tokens/${made.token.id}`).json(newTokenView(made))
      },
    },
    {
      route: 'GET /tokens/{id}',
      id: 'getToken',
      summary: 'Get a token by id or name',
      answers: { 200: { means: 'The token.', schema: { Token: TokenView } } },
      before: [refuseQuery],
      handle: (request, response) => {
        response.json(tokenView(tokens.find(idOf(request))))
      },
    },
    {
      route: 'POST /tokens/{id}/rotate',
      id: 'rotateToken',
      summary: 'Rotate the secret of a token',
      body: { TokenRotation },
      hasOptionalBody: true,
      answers: {
        200: {
          means: 'The token with its new secret, which is not shown again.',
          schema: { NewToken: NewTokenView },
        },
      },
      before: [refuseQuery, optionalBody],
      handle: async (request, response) => {
        const change = readTokenRotation(request.body ?? {})
        const rotate = () => tokens.rotate(idOf(request), change)
        response.json(newTokenView(await changeOf(response).run(rotate, aboutNew)))
      },
    },
    {
      route: 'DELETE /tokens/{id}',
      id: 'revokeToken',
      summary: 'Revoke a token',
      answers: { 204: { means: 'The token is revoked.' } },
      before: [refuseQuery],
      handle: async (request, response) => {
        await changeOf(response).run(() => tokens.revoke(idOf(request)), aboutRevoked)
        response.status(204).end()
      },
    },
  ]
}

const idOf = ({ params }: Request) => String(params.id)

const refuseQuery: RequestHandler = (request, _response, next) => {
  parse(NoQuery, request.query)
  next()
}

/** A rotation as usual needs no words. */
const optionalBody = limited(jsonBody.maxBytes, (request, response, next) => {
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers
  if (length !== '0' || coding !== undefined) return jsonBody(request, response, next)
  next()
  return undefined
})
