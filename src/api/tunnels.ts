import { type RequestHandler, Router } from 'express'
import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import { type Tunnel, type TunnelSpec, TunnelSpecSchema } from '../agent/tunnel.ts'
import { AppError } from '../base/app-error.ts'
import { type AuditedChange, fieldChanges } from '../base/audit.ts'
import { changeOf } from '../http/change-audit.ts'
import { jsonBody } from '../http/json-body.ts'
import { methodNotAllowed } from '../http/no-route.ts'
import { parse } from '../http/parse.ts'
import { tunnelStatusView, tunnelView } from './tunnel-view.ts'

/** What `GET /tunnels` takes. */
export const ListQuery = z.strictObject({ view: z.literal('status', 'must be status').optional() })
const NoQuery = z.strictObject({})

/** `/tunnels`: the agent's tunnels as a REST resource. */
export function tunnelRoutes(agent: Agent): Router {
  const router = Router()
  router
    .route('/tunnels')
    .get((request, response) => {
      const { view } = parse(ListQuery, request.query)
      const tunnels = agent.list()
      response.json(
        view === 'status'
          ? tunnels.map((tunnel) => tunnelStatusView(tunnel, agent.policyInForce(tunnel)))
          : tunnels.map((tunnel) =>
              tunnelView(tunnel, JSON.stringify(agent.policyInForce(tunnel))),
            ),
      )
    })
    .post(refuseQuery, jsonBody, async (request, response) => {
      const spec = parse(TunnelSpecSchema, request.body)
      const { tunnel, pending } = await changeOf(response).run(
        () => agent.create(spec),
        ({ tunnel }) => about(tunnel.id, undefined, tunnel.spec),
        { targetName: spec.domain },
        // Not as it was asked for: an address may have been given.
        (id) => about(id, undefined, agent.find(id).spec),
      )
      response.status(pending ? 202 : 200).json(tunnelView(tunnel, tunnel.spec.policy))
    })
    .all(methodNotAllowed('GET', 'HEAD', 'POST'))
  router
    .route('/tunnels/:url_part')
    .all(refuseQuery)
    .get((request, response) => {
      const tunnel = agent.find(request.params.url_part)
      response.json(tunnelStatusView(tunnel, agent.policyInForce(tunnel)))
    })
    .put(jsonBody, async (request, response) => {
      const spec = parseFor(request.params.url_part, request.body)
      const before = agent.list().find((it) => it.spec.domain === spec.domain)
      const { tunnel, pending, created } = await changeOf(response).run(
        () => agent.replace(spec.domain, spec),
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
      const { id, spec } = agent.find(request.params.url_part)
      await changeOf(response).run(
        () => agent.remove(id),
        () => about(id, spec, undefined),
        {},
        () => about(id, spec, undefined),
      )
      response.status(204).end()
    })
    .all(methodNotAllowed('GET', 'HEAD', 'PUT', 'DELETE'))
  return router
}

/** What the audit trail says of a tunnel. Policies hold passwords, and paths may: that they changed. */
function about(
  id: Tunnel['id'],
  before: TunnelSpec | undefined,
  after: TunnelSpec | undefined,
): Partial<AuditedChange> {
  const changes = fieldChanges(shown(before), shown(after), OPEN_FIELDS)
  return { targetId: id, targetName: (after ?? before)?.domain, changes }
}

const OPEN_FIELDS = new Set(['protocol', 'forwards_to', 'upstream.timeout'])

function shown(spec: TunnelSpec | undefined): Readonly<Record<string, unknown>> {
  if (!spec) return {}
  const { protocol, forwardsTo, policy, upstream } = spec
  return {
    protocol,
    forwards_to: forwardsTo,
    policy,
    'upstream.timeout': upstream?.timeout,
    'upstream.health': upstream?.health,
  }
}

const refuseQuery: RequestHandler = (request, _response, next) => {
  parse(NoQuery, request.query)
  next()
}

/** The domain of a PUT stands in the path; the body may leave it out or has to say the same. */
function parseFor(domain: string, body: unknown): TunnelSpec {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body)
  const spec = parse(TunnelSpecSchema, isObject ? { domain, ...body } : body)
  if (spec.domain === domain.toLowerCase()) return spec
  throw new AppError('invalid-request', 'The body and the path name different domains.', {
    errors: [{ pointer: '/domain', detail: 'must be the domain in the path, or left out' }],
  })
}
