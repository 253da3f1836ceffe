import type { Request } from 'express'
import * as z from 'zod'
import type { Agent } from '../../agent/agent.ts'
import type { RecordedExchange } from '../../agent/inspection/recorded-exchange.ts'
import { SecretValues } from '../../agent/inspection/secret-values.ts'
import type { Tunnel } from '../../agent/tunnel.ts'
import { writersOnly } from '../../http/caller.ts'
import { changeOf } from '../../http/change-audit.ts'
import { jsonBody } from '../../http/json-body.ts'
import { parse } from '../../http/parse.ts'
import type { Route } from '../../http/routes.ts'
import { IsoTime, isoTime } from '../iso-time.ts'
import { ExchangeLineView, ExchangeView, exchangeLine, exchangeView } from './exchange-view.ts'

const MAX_MINUTES = 60
const MINUTES = `must be a whole number from 1 to ${MAX_MINUTES}`

/** Duration of an inspection. */
const InspectionRequest = z.strictObject({
  minutes: z.int(MINUTES).min(1, MINUTES).max(MAX_MINUTES, MINUTES),
})

const InspectionView = z.strictObject({
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
export function inspectRoutes(agent: Agent): Route[] {
  const { inspections } = agent
  const path = '/tunnels/{url_part}/inspect'
  const tunnelOf = ({ params }: Request): Tunnel => agent.find(String(params.url_part))
  const view = ({ id, spec }: Tunnel): z.infer<typeof InspectionView> => {
    const { state, endsAt } = inspections.status(id)
    const secrets = new SecretValues(spec.policy)
    return {
      state,
      ends_at: endsAt === undefined ? null : isoTime(endsAt),
      exchanges: inspections.list(id).map((it) => secrets.mask(exchangeLine(it), it)),
    }
  }
  return [
    {
      route: `GET ${path}`,
      id: 'getInspection',
      summary: 'Get the inspection of a tunnel',
      answers: {
        200: {
          means: 'State of the inspection and the latest exchanges.',
          schema: { Inspection: InspectionView },
        },
      },
      before: [inspectorsOnly],
      handle: (request, response) => {
        response.json(view(tunnelOf(request)))
      },
    },
    {
      route: `PUT ${path}`,
      id: 'startInspection',
      summary: 'Start or extend an inspection',
      body: { InspectionRequest },
      answers: {
        200: {
          means: 'The inspection is started or extended.',
          schema: { Inspection: InspectionView },
        },
      },
      before: [inspectorsOnly, jsonBody],
      handle: async (request, response) => {
        const { minutes } = parse(InspectionRequest, request.body)
        const tunnel = tunnelOf(request)
        const { id, spec } = tunnel
        const start = () => inspections.start({ id, spec }, minutes * 60_000)
        await changeOf(response).run(start, undefined, {
          action: 'tunnel.inspect',
          targetId: id,
          targetName: spec.domain,
        })
        response.json(view(tunnel))
      },
    },
    {
      route: `DELETE ${path}`,
      id: 'endInspection',
      summary: 'End an inspection and delete its exchanges',
      answers: { 204: { means: 'The inspection has ended.' } },
      before: [inspectorsOnly],
      handle: async (request, response) => {
        const { id, spec } = tunnelOf(request)
        await changeOf(response).run(() => inspections.stop(id), undefined, {
          action: 'tunnel.inspect_end',
          targetId: id,
          targetName: spec.domain,
        })
        response.status(204).end()
      },
    },
    ...exchangeRoutes(inspections, tunnelOf, path),
  ]
}

function exchangeRoutes(
  inspections: Agent['inspections'],
  tunnelOf: (request: Request) => Tunnel,
  path: string,
): Route[] {
  return [
    {
      route: `GET ${path}/{number}`,
      id: 'getExchange',
      summary: 'Get an exchange with headers and bodies',
      answers: { 200: { means: 'The exchange.', schema: { Exchange: ExchangeView } } },
      before: [inspectorsOnly],
      handle: (request, response) => {
        const { id, spec } = tunnelOf(request)
        response.json(maskedView(inspections.find(id, numberOf(request)), spec))
      },
    },
    {
      route: `POST ${path}/{number}/replay`,
      id: 'replayExchange',
      summary: 'Send a recorded request to the upstream again',
      answers: { 200: { means: 'The new exchange.', schema: { Exchange: ExchangeView } } },
      before: [inspectorsOnly],
      handle: async (request, response) => {
        const { id, spec } = tunnelOf(request)
        const replay = () => inspections.replay(id, numberOf(request))
        const made = await changeOf(response).run(replay, undefined, {
          action: 'tunnel.replay',
          targetId: id,
          targetName: spec.domain,
        })
        response.json(maskedView(made, spec))
      },
    },
  ]
}

const maskedView = (exchange: RecordedExchange, { policy }: Tunnel['spec']) =>
  new SecretValues(policy).mask(exchangeView(exchange), exchange)

/** Recordings may contain secrets of visitors. Reading them needs the right to change the tunnel. */
const inspectorsOnly = writersOnly('Inspecting a tunnel')

function numberOf({ params }: Request): number {
  const text = String(params.number)
  return /^\d{1,15}$/.test(text) ? Number(text) : 0
}
