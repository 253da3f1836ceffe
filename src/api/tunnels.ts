import type { Request, RequestHandler } from 'express'
import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import {
  type Tunnel as StoredTunnel,
  TunnelBody,
  type TunnelSpec,
  TunnelSpecSchema,
} from '../agent/tunnel.ts'
import type { SetStep } from '../agent/tunnel-set.ts'
import { AppError } from '../base/app-error.ts'
import { changeOf } from '../http/change-audit.ts'
import { jsonBody, largeJsonBody } from '../http/json-body.ts'
import { parse, readConditions } from '../http/parse.ts'
import type { Route } from '../http/routes.ts'
import { inspectRoutes } from './inspection/inspect.ts'
import {
  about,
  readTunnelSet,
  setEtag,
  setView,
  TunnelSetBody,
  TunnelSetView,
  tunnelEtag,
} from './tunnel-set-view.ts'
import {
  TunnelSpecView,
  TunnelStatusView,
  TunnelView,
  tunnelSpecView,
  tunnelStatusView,
  tunnelView,
} from './tunnel-view.ts'

/** Query of `GET /tunnels`. */
const ListQuery = z.strictObject({
  view: z
    .enum(['spec', 'status'], 'must be spec or status')
    .optional()
    .describe('status: with the status of each tunnel; spec: format of PUT /tunnels'),
})
/** Query of `PUT /tunnels`. */
const SetQuery = z.strictObject({
  dry_run: z
    .enum(['true', 'false'], 'must be true or false')
    .optional()
    .describe('true: return the changes without making them'),
})
/** A thousand tunnels with policies of their own. */
const MAX_SET_BYTES = 4 * 1024 * 1024
const NoQuery = z.strictObject({})

// The domain may be left out: the gateway gives one, or it is in the path.
const TunnelSpecBody = TunnelBody.partial({ domain: true })
const TunnelReplacement = TunnelBody.partial({ domain: true })
const Tunnels = z.union([z.array(TunnelView), z.array(TunnelSpecView), z.array(TunnelStatusView)])
const Tunnel = { Tunnel: TunnelView }
const PENDING = { means: 'The tunnel is stored and opens when the link is back.', schema: Tunnel }

/** `/tunnels`: the agent's tunnels as a REST resource, and their inspections. */
export function tunnelRoutes(agent: Agent): Route[] {
  const restoredOnly: RequestHandler = (_request, _response, next) => {
    agent.requireRestored()
    next()
  }
  const routes = [...listAndCreate(agent), replaceTunnels(agent), ...oneTunnel(agent)]
  return [...routes, ...inspectRoutes(agent)].map((route) => ({
    ...route,
    before: [restoredOnly, ...(route.before ?? [])],
  }))
}

function listAndCreate(agent: Agent): Route[] {
  return [
    {
      route: 'GET /tunnels',
      id: 'listTunnels',
      summary: 'List tunnels, oldest first',
      about: 'Tunnels of the device.',
      query: ListQuery,
      hasEtag: true,
      answers: {
        200: {
          means: 'The tunnels; with view=status, including their status.',
          schema: { Tunnels },
        },
      },
      handle: (request, response) => {
        const { view = 'list' } = parse(ListQuery, request.query)
        agent.refreshServices()
        const tunnels = agent.list()
        const views: Record<typeof view, (tunnel: StoredTunnel) => object> = {
          list: (tunnel) => tunnelView(tunnel, JSON.stringify(agent.policyInForce(tunnel))),
          spec: tunnelSpecView,
          status: (tunnel) => tunnelStatusView(tunnel, agent.policyInForce(tunnel)),
        }
        response.setHeader('etag', setEtag(tunnels))
        response.json(tunnels.map((tunnel) => views[view](tunnel)))
      },
    },
    {
      route: 'POST /tunnels',
      id: 'createTunnel',
      summary: 'Create a tunnel',
      description:
        'Stores the tunnel, opens it and responds with the outcome. A tunnel that the gateway refuses is deleted. Without a domain, the gateway gives a random name, or a free port for tcp. The tunnel keeps the name; it keeps the port while the device is away for less than an hour. Without a policy, the default policy of the device applies. The Location header has the path of the tunnel.',
      obeysConditions: true,
      hasLocation: true,
      body: { TunnelSpec: TunnelSpecBody },
      answers: {
        200: { means: 'The tunnel is stored and online.', schema: Tunnel },
        202: {
          ...PENDING,
          means:
            'The tunnel is stored and opens when the link is back. Without a domain in the request, url and domain may be empty until then.',
        },
      },
      before: [refuseQuery, jsonBody],
      handle: async (request, response) => {
        const conditions = readConditions(request)
        const spec = parse(TunnelSpecSchema, await agent.withReadPolicies(request.body))
        const { tunnel, pending } = await changeOf(response).run(
          () => agent.create(spec, (present) => conditions.require(setEtag(present))),
          ({ tunnel }) => about(tunnel.id, undefined, tunnel.spec),
          { targetName: spec.domain },
          // Not as it was asked for: the gateway may have given the domain.
          (id) => about(id, undefined, agent.find(id).spec),
        )
        response
          .status(pending ? 202 : 200)
          .location(`${request.baseUrl}${locationOf(tunnel)}`)
          .json(tunnelView(tunnel, tunnel.spec.policy))
      },
    },
  ]
}

function replaceTunnels(agent: Agent): Route {
  return {
    route: 'PUT /tunnels',
    id: 'replaceTunnels',
    summary: 'Replace all tunnels of the device',
    description:
      'Creates, replaces and deletes tunnels in one write. If the device refuses one tunnel, nothing changes. A tunnel that the gateway refuses is kept, shown as refused, and retried.',
    query: SetQuery,
    obeysConditions: true,
    body: { TunnelSet: TunnelSetBody },
    answers: {
      200: {
        means: 'All tunnels are stored and online, or the request was a dry run.',
        schema: { SetOutcome: TunnelSetView },
      },
      202: {
        means: 'All tunnels are stored; some are not online yet or were refused.',
        schema: { SetOutcome: TunnelSetView },
      },
    },
    before: [largeJsonBody(MAX_SET_BYTES)],
    handle: async (request, response) => {
      const isDryRun = parse(SetQuery, request.query).dry_run === 'true'
      const conditions = readConditions(request)
      const wanted = readTunnelSet(await agent.withReadPolicies(request.body))
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
    },
  }
}

function oneTunnel(agent: Agent): Route[] {
  const path = '/tunnels/{url_part}'
  return [
    {
      route: `GET ${path}`,
      id: 'getTunnel',
      summary: 'Get a tunnel and its status',
      hasEtag: true,
      answers: { 200: { means: 'The tunnel.', schema: { TunnelStatus: TunnelStatusView } } },
      before: [refuseQuery],
      handle: (request, response) => {
        const tunnel = agent.find(urlPartOf(request))
        response.setHeader('etag', tunnelEtag(tunnel))
        response.json(tunnelStatusView(tunnel, agent.policyInForce(tunnel)))
      },
    },
    {
      route: `PUT ${path}`,
      id: 'replaceTunnel',
      summary: 'Create or replace a tunnel',
      body: { TunnelReplacement },
      obeysConditions: true,
      hasLocation: true,
      answers: {
        200: { means: 'The tunnel was replaced.', schema: Tunnel },
        201: { means: 'The tunnel was created.', schema: Tunnel },
        202: PENDING,
      },
      before: [refuseQuery, jsonBody],
      handle: async (request, response) => {
        const conditions = readConditions(request)
        const spec = parseFor(urlPartOf(request), await agent.withReadPolicies(request.body))
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
          .location(`${request.baseUrl}${locationOf(tunnel)}`)
          .json(tunnelView(tunnel, tunnel.spec.policy))
      },
    },
    {
      route: `DELETE ${path}`,
      id: 'deleteTunnel',
      summary: 'Close and delete a tunnel',
      obeysConditions: true,
      answers: { 204: { means: 'The tunnel is closed and deleted.' } },
      before: [refuseQuery],
      handle: async (request, response) => {
        const conditions = readConditions(request)
        const { id, spec } = agent.find(urlPartOf(request))
        await changeOf(response).run(
          () => agent.remove(id, (present) => conditions.require(tunnelEtag(present))),
          () => about(id, spec, undefined),
          {},
          () => about(id, spec, undefined),
        )
        response.status(204).end()
      },
    },
  ]
}

const locationOf = ({ id, spec }: StoredTunnel) => `/tunnels/${spec.domain || id}`
const urlPartOf = ({ params }: Request) => String(params.url_part)

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
function parseFor(domain: string, body: unknown): TunnelSpec {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body)
  const spec = parse(TunnelSpecSchema, isObject ? { domain, ...body } : body)
  if (spec.domain === domain.toLowerCase()) return spec
  throw new AppError('invalid-request', 'The domains in body and path differ.', {
    errors: [{ pointer: '/domain', detail: 'must match the domain in the path or be left out' }],
  })
}
