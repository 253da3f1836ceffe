import type { CloudEndpoint, Endpoint } from '../../endpoints/endpoint.ts'
import { type EndpointsDeps, EndpointView, endpoints } from '../endpoints.ts'
import { livePage } from '../live-page.ts'
import type { Resource } from '../resource.ts'

/** The cloud endpoints alone: the console shows those of agents with their devices. */
export function cloudEndpoints(deps: EndpointsDeps): Resource<Endpoint> {
  const { get, view, ownerOf } = endpoints(deps)
  return {
    path: 'cloud_endpoints',
    collection: 'cloud_endpoints',
    prefix: 'ep',
    schema: EndpointView,
    page: (request) => livePage(onlyCloud(deps.registry.all()), request),
    get,
    view,
    ownerOf,
  }
}

function* onlyCloud(endpoints: Iterable<Endpoint>): Generator<CloudEndpoint> {
  for (const endpoint of endpoints) if (endpoint.type === 'cloud') yield endpoint
}
