import * as z from 'zod'
import { isInternal } from '../domain-name.ts'
import type { Endpoint } from '../endpoint.ts'
import type { EndpointRegistry } from '../endpoint-registry.ts'
import type { ReservedDomainStore } from '../reserved-domain-store.ts'
import { ServiceError } from '../service-error.ts'
import { Reference } from './body.ts'
import { livePage } from './live-page.ts'
import type { Resource } from './resource.ts'
import { Timestamp, timestamp } from './timestamp.ts'

export const EndpointView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  created_at: Timestamp,
  updated_at: Timestamp,
  public_url: z.string(),
  url: z.string(),
  proto: z.enum(['http', 'https']),
  scheme: z.enum(['http', 'https']),
  hostport: z.string(),
  host: z.string(),
  port: z.number(),
  type: z.literal('ephemeral'),
  metadata: z.string(),
  domain: Reference.nullable(),
  tunnel_session: Reference,
  upstream_url: z.string(),
  traffic_policy: z.string(),
  bindings: z.array(z.string()),
  pooling_enabled: z.boolean(),
  region: z.string(),
  /** Since it opened; what only this gateway tells. */
  traffic: z.strictObject({
    requests: z.number(),
    refused: z.number(),
    bytes_in: z.number(),
    bytes_out: z.number(),
  }),
})

export interface EndpointsDeps {
  readonly registry: EndpointRegistry
  readonly domains: ReservedDomainStore
}

/** The endpoints that agents have online. They come and go with their agents alone. */
export function endpoints({ registry, domains }: EndpointsDeps): Resource<Endpoint> {
  const refuse = () => {
    throw new ServiceError(248, 'Endpoints are opened by agents; there are no others here.')
  }
  return {
    path: 'endpoints',
    collection: 'endpoints',
    prefix: 'ep',
    schema: EndpointView,
    page: (request) => livePage(registry.all(), request),
    get: (id) => {
      for (const endpoint of registry.all()) if (endpoint.id === id) return endpoint
      return undefined
    },
    view: (endpoint, baseUrl) => {
      const domain = domains.findCovering(endpoint.host)
      return viewEndpoint(endpoint, domain?.id, baseUrl)
    },
    create: refuse,
    update: refuse,
    remove: refuse,
  }
}

function viewEndpoint(
  endpoint: Endpoint,
  domainId: string | undefined,
  baseUrl: string,
): z.infer<typeof EndpointView> {
  const { id, url, host, protocol, openedAt, sessionId, traffic } = endpoint
  const port = Number(new URL(url).port) || (protocol === 'https' ? 443 : 80)
  return {
    id,
    uri: `${baseUrl}/endpoints/${id}`,
    created_at: timestamp(openedAt),
    updated_at: timestamp(openedAt),
    public_url: url,
    url,
    proto: protocol,
    scheme: protocol,
    hostport: `${host}:${port}`,
    host,
    port,
    type: 'ephemeral',
    metadata: endpoint.metadata,
    domain: domainId ? { id: domainId, uri: `${baseUrl}/reserved_domains/${domainId}` } : null,
    tunnel_session: { id: sessionId, uri: `${baseUrl}/tunnel_sessions/${sessionId}` },
    upstream_url: endpoint.forwardsTo,
    traffic_policy: endpoint.trafficPolicy ?? '',
    bindings: [isInternal(host) ? 'internal' : 'public'],
    pooling_enabled: false,
    region: '',
    traffic: {
      requests: traffic.requests,
      refused: traffic.refused,
      bytes_in: traffic.bytesIn,
      bytes_out: traffic.bytesOut,
    },
  }
}
