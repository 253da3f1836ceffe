import { Router } from 'express'
import type { ConnectedAgent } from '../../endpoints/connected-agent.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { CredentialStore } from '../../records/credential-store.ts'
import type { Device } from '../../records/device-store.ts'
import { baseUrlOf } from '../body.ts'
import { callerOf, sees } from '../caller.ts'
import { type EndpointsDeps, endpoints as endpointResource } from '../endpoints.ts'
import { type DevicesDeps, devices as deviceResource, shownName } from '../fleet/devices.ts'
import { refuseQuery } from '../page-query.ts'
import { ResourceNotFoundError } from '../resource.ts'

/** More devices than this are for the API: the console shows the newest. */
const MOST_ROWS = 5_000

export interface DeviceRoutesDeps extends DevicesDeps, EndpointsDeps {
  readonly credentials: CredentialStore
  readonly botUsers: BotUserStore
}

/**
 * What the console shows of devices and refreshes all the time: `/device_rows` has all of them in
 * brief, so that it can search and sort without asking, `/device_details` one with its endpoints.
 */
export function deviceRoutes(deps: DeviceRoutesDeps): Router {
  const { devices } = deps
  const resource = deviceResource(deps)
  const router = Router()
  router.get('/device_rows', (request, response) => {
    refuseQuery(request)
    const caller = callerOf(response)
    const own = devices.all().filter(({ ownerId }) => sees(caller, ownerId))
    const rows = own.slice(0, MOST_ROWS).map((device) => viewRow(device, deps))
    response.json({ devices: rows, is_part: own.length > MOST_ROWS })
  })
  router.get('/device_details/:id', (request, response) => {
    refuseQuery(request)
    const device = devices.get(String(request.params.id))
    if (!device || !sees(callerOf(response), device.ownerId)) throw new ResourceNotFoundError()
    const baseUrl = baseUrlOf(request)
    const view = resource.view(device, baseUrl)
    response.json({ ...view, ...viewDetails(device, baseUrl, deps) })
  })
  return router
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
  const endpoints = endpointsOf(devices.sessionsOf(device)).map((endpoint) => ({
    ...view(endpoint, baseUrl),
    history: devices.historyOf(device, endpoint.url) ?? null,
  }))
  return {
    last_endpoints: device.facts.endpoints,
    endpoints,
    owner: ownerId === null ? null : (botUsers.get(ownerId)?.name ?? null),
    authtoken: credentials.get(credentialId ?? '')?.description ?? '',
  }
}

function endpointsOf(sessions: readonly ConnectedAgent[]) {
  return sessions.flatMap((agent) => agent.endpoints())
}
