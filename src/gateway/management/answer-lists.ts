import type { Clock } from '../../base/clock.ts'
import { sees } from '../resources/common/caller.ts'
import {
  ACT,
  ActSchema,
  LIST,
  ListSchema,
  ONE,
  OneSchema,
  viewerOf,
  type Wire,
} from '../resources/common/elsewhere.ts'
import type { AnyItem, Resource } from '../resources/common/resource.ts'
import { type ElsewherePage, ResourceLists } from '../resources/common/resource-lists.ts'
import { devices } from '../resources/devices/routes.ts'
import { endpoints } from '../resources/endpoints/routes.ts'
import {
  type ConnectedAgents,
  tunnelSessions,
  tunnels,
} from '../resources/tunnel-sessions/routes.ts'
import { type VaultSecretsDeps, vaultSecrets } from '../resources/vaults/routes.ts'
import { answerDevices, type DeviceRoutesDeps } from './console/device-routes.ts'
import { answerEndpoints } from './console/endpoint-rows.ts'

/** Size of a page of one node. The rest comes with the next page. */
const MAX_BYTES = 4_194_304

export interface ElsewhereDeps extends DeviceRoutesDeps, VaultSecretsDeps {
  readonly sessions: ConnectedAgents
  readonly clock: Clock
}

/** Registers the lists that other nodes request: data that exists only in this node's memory. */
export function answerLists(deps: ElsewhereDeps): void {
  const { others, clock } = deps
  answerDevices(deps)
  answerEndpoints(deps)
  const lists = new ResourceLists(clock)
  const resources: readonly Resource<AnyItem>[] = [
    endpoints(deps),
    tunnels(deps),
    tunnelSessions(deps),
    devices(deps),
    vaultSecrets(deps),
  ]
  const known = new Map(resources.map((resource) => [resource.path, resource]))
  const find = async (of: { path: string; id: string } & Wire) => {
    const resource = known.get(of.path)
    const item = await resource?.get(of.id)
    const isSeen = resource && item && sees(viewerOf(of), resource.ownerOf(item))
    return isSeen ? { resource, item } : undefined
  }
  others.on(LIST, async (message) => {
    const {
      limit,
      before_id: beforeId,
      filter,
      base_url: baseUrl,
      ...of
    } = ListSchema.parse(message)
    const resource = known.get(of.path)
    if (!resource) throw new Error(`${of.path} cannot be listed`)
    const query = { limit, beforeId, filter }
    const page = await lists.page(resource, query, { viewer: viewerOf(of), baseUrl })
    return bounded(page)
  })
  others.on(ONE, async (message) => {
    const of = OneSchema.parse(message)
    const found = await find(of)
    return { view: found ? found.resource.view(found.item, of.base_url) : null }
  })
  others.on(ACT, async (message) => {
    const of = ActSchema.parse(message)
    const found = await find(of)
    const action = found?.resource.actions?.[of.action]
    if (!found || !action) return { is_found: false }
    await action.run(undefined, { item: found.item, baseUrl: '' })
    return { is_found: true }
  })
}

function bounded({ views, nextBefore }: ElsewherePage) {
  let bytes = 0
  for (const [at, view] of views.entries()) {
    bytes += Buffer.byteLength(JSON.stringify(view))
    const last = views[at - 1]
    if (bytes > MAX_BYTES && last) return { views: views.slice(0, at), next_before: last.id }
  }
  return { views, next_before: nextBefore ?? null }
}
