import * as z from 'zod'
import type { Route } from '../../../http/routes.ts'
import type { ConnectedAgent, Endpoint, EndpointTraffic } from '../../endpoints/endpoint.ts'
import { callerOf, sees, type Viewer } from '../../resources/common/caller.ts'
import { askOthers, shownTo } from '../../resources/common/elsewhere.ts'
import { refuseQuery } from '../../resources/common/request.ts'
import type { Device } from '../../resources/devices/device-store.ts'
import { shownName } from '../../resources/devices/routes.ts'
import { conditionOf, type DeviceRoutesDeps } from './device-routes.ts'

/** More endpoints than this are for the API: the console shows these. */
const MAX_ROWS = 5_000
const ROWS = 'endpoint_rows'

const Row = z.object({
  id: z.string(),
  owner_id: z.string().nullable(),
  url: z.string(),
  type: z.enum(['agent', 'cloud']),
  name: z.string(),
  /** The device that serves it. Null for a cloud endpoint. */
  device: z.object({ id: z.string(), name: z.string() }).nullable(),
  /** State for visitors, in the words of the device; `cloud` for a cloud endpoint, `refusing` without a policy that runs. */
  condition: z.string(),
  opened_at: z.string(),
  requests: z.number(),
  errors: z.number(),
  bytes_in: z.number(),
  bytes_out: z.number(),
})
type Row = z.infer<typeof Row>
const Rows = z.object({ rows: z.array(Row) })

/** `/endpoint_rows`: all online endpoints in brief, for search and sorting in the browser. */
export function endpointRows(deps: DeviceRoutesDeps): Route {
  return {
    route: 'GET /endpoint_rows',
    isInternal: true,
    handle: async (request, response) => {
      refuseQuery(request)
      const caller = callerOf(response)
      const { answers, missing } = await askOthers(deps.others, ROWS, {}, Rows)
      const elsewhere = answers.flatMap(({ said }) => said.rows)
      const rows = merged([...rowsHere(deps), ...elsewhere]).filter((row) => isFor(caller, row))
      response.json({
        endpoints: rows.slice(0, MAX_ROWS),
        is_part: rows.length > MAX_ROWS,
        ...(missing.length > 0 && { missing_nodes: shownTo(caller, missing) }),
      })
    },
  }
}

/** Registers the call for endpoints that are online at this node. */
export function answerEndpoints(deps: DeviceRoutesDeps): void {
  deps.others.on(ROWS, () => ({ rows: rowsHere(deps).slice(0, MAX_ROWS) }))
}

const isFor = (caller: Viewer, { owner_id: ownerId }: Row) => sees(caller, ownerId)

function rowsHere(deps: DeviceRoutesDeps): Row[] {
  const { devices, registry } = deps
  const rows: Row[] = []
  for (const device of devices.all()) {
    for (const agent of devices.sessionsOf(device)) rows.push(...rowsOf(device, agent, deps))
  }
  for (const endpoint of registry.all()) {
    if (endpoint.type !== 'cloud') continue
    const condition = endpoint.policyProblem === undefined ? 'cloud' : 'refusing'
    rows.push({ ...rowOf(endpoint), name: endpoint.description, device: null, condition })
  }
  return rows
}

function rowsOf(device: Device, agent: ConnectedAgent, { credentials }: DeviceRoutesDeps): Row[] {
  const of = { id: device.id, name: shownName(device, credentials) }
  return agent.endpoints().map((endpoint) => {
    const { condition } = conditionOf(endpoint, agent)
    return { ...rowOf(endpoint), name: endpoint.name ?? '', device: of, condition }
  })
}

function rowOf(endpoint: Endpoint) {
  const { id, ownerId, url, type, openedAt, traffic } = endpoint
  return {
    ...{ id, owner_id: ownerId, url, type },
    opened_at: new Date(openedAt).toISOString(),
    ...countsOf(traffic),
  }
}

function countsOf({ requests, refused, bytesIn, bytesOut }: EndpointTraffic) {
  return { requests, errors: refused, bytes_in: bytesIn, bytes_out: bytesOut }
}

/** Newest first. Each node counts the traffic that it serves for a cloud endpoint. */
function merged(rows: readonly Row[]): Row[] {
  const byId = new Map<string, Row>()
  for (const row of rows) {
    const same = byId.get(row.id)
    if (!same) byId.set(row.id, row)
    else if (row.type === 'cloud') byId.set(row.id, added(same, row))
  }
  return [...byId.values()].sort((a, b) => (a.id < b.id ? 1 : -1))
}

function added(a: Row, b: Row): Row {
  return {
    ...a,
    requests: a.requests + b.requests,
    errors: a.errors + b.errors,
    bytes_in: a.bytes_in + b.bytes_in,
    bytes_out: a.bytes_out + b.bytes_out,
  }
}
