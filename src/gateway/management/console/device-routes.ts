import * as z from 'zod'
import type { Route } from '../../../http/routes.ts'
import type { AgentEndpoint, ConnectedAgent } from '../../endpoints/endpoint.ts'
import type { VisitorState } from '../../endpoints/visitor-outcomes.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { CredentialStore } from '../../records/credential-store.ts'
import { ResourceNotFoundError } from '../../records/service-error.ts'
import { callerOf, sees } from '../../resources/common/caller.ts'
import { askOthers, shownTo } from '../../resources/common/elsewhere.ts'
import { baseUrlOf, refuseQuery } from '../../resources/common/request.ts'
import type { Device } from '../../resources/devices/device-store.ts'
import {
  type DevicesDeps,
  devices as deviceResource,
  shownName,
} from '../../resources/devices/routes.ts'
import {
  type EndpointsDeps,
  endpoints as endpointResource,
} from '../../resources/endpoints/routes.ts'
import { viewRefused } from '../../resources/tunnel-sessions/routes.ts'

/** More devices than this are for the API: the console shows the newest. */
const MAX_ROWS = 5_000

export interface DeviceRoutesDeps extends DevicesDeps, EndpointsDeps {
  readonly credentials: CredentialStore
  readonly botUsers: BotUserStore
}

/**
 * Device data that the console refreshes: `/device_rows` has all devices in brief, for search and sorting in
 * the browser. `/device_details` has one device with its endpoints.
 */
export function deviceRoutes(deps: DeviceRoutesDeps): Route[] {
  const { devices } = deps
  const resource = deviceResource(deps)
  return [
    {
      route: 'GET /device_rows',
      isInternal: true,
      handle: async (request, response) => {
        refuseQuery(request)
        const caller = callerOf(response)
        const own = devices.all().filter(({ ownerId }) => sees(caller, ownerId))
        const { live, missing } = await rowsElsewhere(deps)
        const rows = own
          .slice(0, MAX_ROWS)
          .map((device) => ({ ...viewRow(device, deps), ...live.get(device.id) }))
        const part = missing.length > 0 && { missing_nodes: shownTo(caller, missing) }
        response.json({ devices: rows, is_part: own.length > MAX_ROWS, ...part })
      },
    },
    {
      route: 'GET /device_details/{id}',
      isInternal: true,
      handle: async (request, response) => {
        refuseQuery(request)
        const device = devices.get(String(request.params.id))
        if (!device || !sees(callerOf(response), device.ownerId)) throw new ResourceNotFoundError()
        const baseUrl = baseUrlOf(request)
        const view = resource.view(device, baseUrl)
        const there = await detailsElsewhere(device, baseUrl, deps)
        response.json(there ?? { ...view, ...viewDetails(device, baseUrl, deps) })
      },
    },
  ]
}

const [ROWS, DETAILS] = ['device_rows', 'device_details'] as const
const RowsSchema = z.object({ rows: z.array(z.looseObject({ id: z.string() })) })
const DetailsQuestion = z.strictObject({ id: z.string(), base_url: z.string() })
const DetailsSchema = z.object({ details: z.looseObject({ id: z.string() }).nullable() })

/** Registers the call for devices that are connected to this node. */
export function answerDevices(deps: DeviceRoutesDeps): void {
  const { others, devices } = deps
  others.on(ROWS, () => {
    const here = devices.all().filter((device) => devices.sessionsOf(device).length > 0)
    return { rows: here.slice(0, MAX_ROWS).map((device) => viewRow(device, deps)) }
  })
  others.on(DETAILS, (message) => {
    const { id, base_url: baseUrl } = DetailsQuestion.parse(message)
    const device = devices.get(id)
    if (!device || devices.sessionsOf(device).length === 0) return { details: null }
    const view = deviceResource(deps).view(device, baseUrl)
    return { details: { ...view, ...viewDetails(device, baseUrl, deps) } }
  })
}

/** By id, as the nodes see them that they are connected to. */
async function rowsElsewhere({ others }: DeviceRoutesDeps) {
  const { answers, missing } = await askOthers(others, ROWS, {}, RowsSchema)
  return {
    live: new Map<string, object>(
      answers.flatMap(({ said }) => said.rows.map((row) => [row.id, row])),
    ),
    missing,
  }
}

/**
 * Details from the node that the device is connected to. Undefined if that is this node, or does not answer.
 */
async function detailsElsewhere({ id, facts }: Device, baseUrl: string, deps: DeviceRoutesDeps) {
  const { others } = deps
  if (facts.node === undefined || facts.node === others.self) return undefined
  try {
    const said = await others.ask(facts.node, DETAILS, { id, base_url: baseUrl })
    return DetailsSchema.parse(said).details ?? undefined
  } catch {
    return undefined
  }
}

function viewRow(device: Device, { devices, credentials }: DeviceRoutesDeps): object {
  const { id, tags, since, goneReason, facts, duplicate } = device
  const sessions = devices.sessionsOf(device)
  const sums = { requests: 0, bytes_in: 0, bytes_out: 0 }
  let count = sessions.length === 0 ? facts.endpoints.length : 0
  for (const { traffic } of endpointsOf(sessions)) {
    count += 1
    sums.requests += traffic.requests
    sums.bytes_in += traffic.bytesIn
    sums.bytes_out += traffic.bytesOut
  }
  return {
    id,
    name: shownName(device, credentials),
    tags,
    state: devices.stateOf(device),
    since: since && new Date(since).toISOString(),
    reason: goneReason,
    ip: facts.ip,
    version: facts.agentVersion,
    endpoints: count,
    is_duplicate: duplicate !== null,
    ...sums,
  }
}

function viewDetails(device: Device, baseUrl: string, deps: DeviceRoutesDeps): object {
  const { devices, credentials, botUsers } = deps
  const { view } = endpointResource(deps)
  const { ownerId, credentialId } = device
  const endpoints = devices.sessionsOf(device).flatMap((agent) =>
    agent.endpoints().map((endpoint) => ({
      ...view(endpoint, baseUrl),
      ...conditionOf(endpoint, agent),
      history: devices.historyOf(device, endpoint.url) ?? null,
    })),
  )
  return {
    last_endpoints: device.facts.endpoints,
    endpoints,
    refused_endpoints: devices
      .sessionsOf(device)
      .flatMap((agent) => agent.refusedEndpoints().map(viewRefused)),
    owner: ownerId === null ? null : (botUsers.get(ownerId)?.name ?? null),
    authtoken: credentials.get(credentialId ?? '')?.description ?? '',
  }
}

function endpointsOf(sessions: readonly ConnectedAgent[]) {
  return sessions.flatMap((agent) => agent.endpoints())
}

/** Round trip in milliseconds from which a link is slow, as on the device. */
const SLOW_LINK_MS = 1_000
/** Words of the device for what visitors met last. */
const OF_VISITORS: Readonly<Partial<Record<VisitorState, string>>> = {
  slow: 'service_slow',
  busy: 'busy',
  garbage: 'service_down',
  unreachable: 'service_down',
}

/**
 * State of an online endpoint for its visitors, in the words of the device. `condition_at`: when its last visitors
 * met that. The service may be back since then.
 */
export function conditionOf({ traffic }: AgentEndpoint, { latencyMs = 0 }: ConnectedAgent) {
  const { state, judgedAt } = traffic.outcomes
  const ofVisitors = OF_VISITORS[state]
  if (ofVisitors) return { condition: ofVisitors, condition_at: new Date(judgedAt).toISOString() }
  return { condition: latencyMs >= SLOW_LINK_MS ? 'slow_link' : 'working', condition_at: null }
}
