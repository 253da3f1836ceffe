import * as z from 'zod'
import type { ClusterNode } from '../cluster/cluster-node.ts'
import type { AgentEndpoint, Endpoint } from '../endpoints/endpoint.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { renamedId } from '../records/resource-id.ts'
import { Reference } from './body.ts'
import { livePage } from './live-page.ts'
import type { Resource } from './resource.ts'
import { elsewhere } from './site/elsewhere.ts'
import { Timestamp, timestamp } from './timestamp.ts'

export const TunnelView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  public_url: z.string(),
  proto: z.enum(['http', 'https', 'tcp', 'tls']),
  started_at: Timestamp,
  region: z.string(),
  metadata: z.string(),
  forwards_to: z.string(),
  tunnel_session: Reference,
  endpoint: Reference,
  /** Empty, as are the backends: labeled tunnels are not supported here. */
  labels: z.record(z.string(), z.string()),
  backends: z.array(Reference),
})

export interface TunnelsDeps {
  readonly registry: EndpointRegistry
  readonly node?: ClusterNode | undefined
}

/** What agents have open, under the name that endpoints had first: the same KSUID as `tn_`. */
export function tunnels({ registry, node }: TunnelsDeps): Resource<Tunnel> {
  return {
    path: 'tunnels',
    collection: 'tunnels',
    prefix: 'tn',
    schema: TunnelView,
    page: (request) => livePage(openTunnels(registry.all()), request),
    get: (id) => {
      for (const tunnel of openTunnels(registry.all())) if (tunnel.id === id) return tunnel
      return undefined
    },
    view: viewTunnel,
    ownerOf: ({ endpoint }) => endpoint.ownerId,
    elsewhere: elsewhere(node, 'tunnels'),
  }
}

/** The side of an endpoint that leads to its agent. */
interface Tunnel {
  readonly id: string
  readonly endpoint: AgentEndpoint
}

function* openTunnels(endpoints: Iterable<Endpoint>): Generator<Tunnel> {
  for (const endpoint of endpoints) {
    if (endpoint.type === 'agent') yield { id: renamedId(endpoint.id, 'tn'), endpoint }
  }
}

function viewTunnel({ id, endpoint }: Tunnel, baseUrl: string): z.infer<typeof TunnelView> {
  const { url, protocol, openedAt, metadata, forwardsTo, sessionId } = endpoint
  return {
    id,
    uri: `${baseUrl}/tunnels/${id}`,
    public_url: url,
    proto: protocol,
    started_at: timestamp(openedAt),
    region: '',
    metadata,
    forwards_to: forwardsTo,
    tunnel_session: { id: sessionId, uri: `${baseUrl}/tunnel_sessions/${sessionId}` },
    endpoint: { id: endpoint.id, uri: `${baseUrl}/endpoints/${endpoint.id}` },
    labels: {},
    backends: [],
  }
}
