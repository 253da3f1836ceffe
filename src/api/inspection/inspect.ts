import { type RequestHandler, Router } from 'express'
import * as z from 'zod'
import type { Agent } from '../../agent/agent.ts'
import { AppError } from '../../base/app-error.ts'
import { callerOf } from '../../http/caller.ts'
import { changeOf } from '../../http/change-audit.ts'
import { methodNotAllowed } from '../../http/error-response.ts'
import { jsonBody } from '../../http/json-body.ts'
import { parse } from '../../http/parse.ts'
import { IsoTime, isoTime } from '../iso-time.ts'
import { ExchangeLineView, exchangeLine, exchangeView } from './exchange-view.ts'

const MAX_MINUTES = 60
const MINUTES = `must be a whole number from 1 to ${MAX_MINUTES}`

/** Duration of an inspection. */
export const InspectionRequest = z.strictObject({
  minutes: z.int(MINUTES).min(1, MINUTES).max(MAX_MINUTES, MINUTES),
})

export const InspectionView = z.strictObject({
  state: z
    .enum(['off', 'starting', 'on', 'ending'])
    .describe('starting, ending: the tunnel is being switched to or from the inspector'),
  ends_at: IsoTime.nullable(),
  exchanges: z
    .array(ExchangeLineView)
    .describe(
      'latest exchanges, at most 200, oldest first; readable for ten minutes after the end',
    ),
})

/** `/tunnels/{url_part}/inspect`: records the requests and responses of one tunnel for a limited time. */
export function inspectRoutes(agent: Agent): Router {
  const { inspections } = agent
  const router = Router()
  const idOf = (urlPart: string) => agent.find(urlPart).id
  const view = (id: string): z.infer<typeof InspectionView> => {
    const { state, endsAt } = inspections.status(id)
    return {
      state,
      ends_at: endsAt === undefined ? null : isoTime(endsAt),
      exchanges: inspections.list(id).map(exchangeLine),
    }
  }
  router
    .route('/tunnels/:url_part/inspect')
    .all(writersOnly)
    .get((request, response) => {
      response.json(view(idOf(request.params.url_part)))
    })
    .put(jsonBody, async (request, response) => {
      const { minutes } = parse(InspectionRequest, request.body)
      const { id, spec } = agent.find(request.params.url_part)
      const start = () => inspections.start({ id, spec }, minutes * 60_000)
      await changeOf(response).run(start, undefined, {
        action: 'tunnel.inspect',
        targetId: id,
        targetName: spec.domain,
      })
      response.json(view(id))
    })
    .delete(async (request, response) => {
      const { id, spec } = agent.find(request.params.url_part)
      await changeOf(response).run(() => inspections.stop(id), undefined, {
        action: 'tunnel.inspect_end',
        targetId: id,
        targetName: spec.domain,
      })
      response.status(204).end()
    })
    .all(methodNotAllowed('GET', 'HEAD', 'PUT', 'DELETE'))
  router
    .route('/tunnels/:url_part/inspect/:number')
    .all(writersOnly)
    .get((request, response) => {
      const { url_part: urlPart, number } = request.params
      response.json(exchangeView(inspections.find(idOf(urlPart), numberOf(number))))
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  router
    .route('/tunnels/:url_part/inspect/:number/replay')
    .all(writersOnly)
    .post(async (request, response) => {
      const { id, spec } = agent.find(request.params.url_part)
      const number = numberOf(request.params.number)
      const made = await changeOf(response).run(() => inspections.replay(id, number), undefined, {
        action: 'tunnel.replay',
        targetId: id,
        targetName: spec.domain,
      })
      response.json(exchangeView(made))
    })
    .all(methodNotAllowed('POST'))
  return router
}

/** Recordings may contain secrets of visitors. Reading them needs the right to change the tunnel. */
const writersOnly: RequestHandler = (_request, response, next) => {
  const { actor, scope } = callerOf(response)
  if (scope === 'write') return next()
  const detail = `The token "${actor.name}" has the scope "read". Inspecting a tunnel requires the scope "write".`
  throw new AppError('insufficient-scope', detail)
}

function numberOf(text: string): number {
  return /^\d{1,15}$/.test(text) ? Number(text) : 0
}
