import { type RequestHandler, Router } from 'express'
import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import { type Tunnel, type TunnelSpec, TunnelSpecSchema } from '../agent/tunnel.ts'
import type { SetStep } from '../agent/tunnel-set.ts'
import { AppError } from '../base/app-error.ts'
import { changeOf } from '../http/change-audit.ts'
import { methodNotAllowed } from '../http/error-response.ts'
import { jsonBody, largeJsonBody } from '../http/json-body.ts'
import { parse, parseAsync, readConditions } from '../http/parse.ts'
import { about, readTunnelSet, setEtag, setView, tunnelEtag } from './tunnel-set-view.ts'
import { tunnelSpecView, tunnelStatusView, tunnelView } from './tunnel-view.ts'

/** Query of `GET /tunnels`. */
export const ListQuery = z.strictObject({
  view: z
    .enum(['spec', 'status'], 'must be spec or status')
    .optional()
    .describe('status: with the status of each tunnel; spec: format of PUT /tunnels'),
})
/** Query of `PUT /tunnels`. */
export const SetQuery = z.strictObject({
  dry_run: z
    .enum(['true', 'false'], 'must be true or false')
    .optional()
    .describe('true: return the changes without making them'),
})
/** A thousand tunnels with policies of their own. */
const MAX_SET_BYTES = 4 * 1024 * 1024
const NoQuery = z.strictObject({})

/** `/tunnels`: the agent's tunnels as a REST resource. */
export function tunnelRoutes(agent: Agent): Router {
  const router = Router()
  router.use('/tunnels', (_request, _response, next) => {
    agent.requireRestored()
    next()
  })
  allTunnels(router, agent)
  oneTunnel(router, agent)
  return router
}

/** The whole list, and a new tunnel. */
function allTunnels(router: Router, agent: Agent): void {
  router
    .route('/tunnels')
    .get((request, response) => {
      const { view = 'list' } = parse(ListQuery, request.query)
      const tunnels = agent.list()
      const views: Record<typeof view, (tunnel: Tunnel) => object> = {
        list: (tunnel: Tunnel) => tunnelView(tunnel, JSON.stringify(agent.policyInForce(tunnel))),
        spec: tunnelSpecView,
        status: (tunnel: Tunnel) => tunnelStatusView(tunnel, agent.policyInForce(tunnel)),
      }
      response.setHeader('etag', setEtag(tunnels))
      response.json(tunnels.map((tunnel) => views[view](tunnel)))
    })
    .put(largeJsonBody(MAX_SET_BYTES), async (request, response) => {
      const isDryRun = parse(SetQuery, request.query).dry_run === 'true'
      const conditions = readConditions(request)
      const wanted = await readTunnelSet(request.body)
      let steps: readonly SetStep[] = []
      const replace = () =>
        agent.replaceAll(wanted, {
          isDryRun,
          when: (present) => conditions.require(setEtag(present)),
          onPlan: (plan) => {
            steps = plan
          },
        })
      const change = changeOf(response)
      if (isDryRun) change.waive()
      const outcomes = isDryRun
        ? await replace()
        : await change.run(replace, undefined, {}, () => steps.flatMap(aboutStep))
      const isInForce = outcomes.every((it) => it.step.action === 'delete' || it.isInForce)
      response.status(isDryRun || isInForce ? 200 : 202).json(setView(outcomes, isDryRun))
    })
    .post(refuseQuery, jsonBody, async (request, response) => {
      const conditions = readConditions(request)
      const spec = await parseAsync(TunnelSpecSchema, request.body)
      const { tunnel, pending } = await changeOf(response).run(
        () => agent.create(spec, (present) => conditions.require(setEtag(present))),
        ({ tunnel }) => about(tunnel.id, undefined, tunnel.spec),
        { targetName: spec.domain },
        // Not as it was asked for: an address may have been given.
        (id) => about(id, undefined, agent.find(id).spec),
      )
      response.status(pending ? 202 : 200).json(tunnelView(tunnel, tunnel.spec.policy))
    })
    .all(methodNotAllowed('GET', 'HEAD', 'POST', 'PUT'))
}

function oneTunnel(router: Router, agent: Agent): void {
  router
    .route('/tunnels/:url_part')
    .all(refuseQuery)
    .get((request, response) => {
      const tunnel = agent.find(request.params.url_part)
      response.setHeader('etag', tunnelEtag(tunnel))
      response.json(tunnelStatusView(tunnel, agent.policyInForce(tunnel)))
    })
    .put(jsonBody, async (request, response) => {
      const conditions = readConditions(request)
      const spec = await parseFor(request.params.url_part, request.body)
      const before = agent.list().find((it) => it.spec.domain === spec.domain)
      const { tunnel, pending, created } = await changeOf(response).run(
        () =>
          agent.replace(spec.domain, spec, (present) => {
            conditions.require(present && tunnelEtag(present))
          }),
        ({ tunnel }) => about(tunnel.id, before?.spec, tunnel.spec),
        { targetName: spec.domain },
        (id) => about(id, before?.spec, spec),
      )
      response
        .status(pending ? 202 : created ? 201 : 200)
        .location(`/tunnels/${tunnel.spec.domain}`)
        .json(tunnelView(tunnel, tunnel.spec.policy))
    })
    .delete(async (request, response) => {
      const conditions = readConditions(request)
      const { id, spec } = agent.find(request.params.url_part)
      await changeOf(response).run(
        () => agent.remove(id, (present) => conditions.require(tunnelEtag(present))),
        () => about(id, spec, undefined),
        {},
        () => about(id, spec, undefined),
      )
      response.status(204).end()
    })
    .all(methodNotAllowed('GET', 'HEAD', 'PUT', 'DELETE'))
}

/** A row of the audit trail for each tunnel that changes. */
function aboutStep({ action, before, after }: SetStep) {
  if (action === 'keep') return []
  const { id } = after ?? before ?? { id: '' }
  return [{ action: `tunnel.${action}`, ...about(id, before?.spec, after?.spec) }]
}

const refuseQuery: RequestHandler = (request, _response, next) => {
  parse(NoQuery, request.query)
  next()
}

/** The domain of a PUT stands in the path; the body may leave it out or has to say the same. */
async function parseFor(domain: string, body: unknown): Promise<TunnelSpec> {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body)
  const spec = await parseAsync(TunnelSpecSchema, isObject ? { domain, ...body } : body)
  if (spec.domain === domain.toLowerCase()) return spec
  throw new AppError('invalid-request', 'The domains in body and path differ.', {
    errors: [{ pointer: '/domain', detail: 'must match the domain in the path or be left out' }],
  })
}
