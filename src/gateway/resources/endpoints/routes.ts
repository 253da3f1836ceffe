import * as z from 'zod'
import type { LimiterFigures } from '../../../policy/limit/rate-limiter.ts'
import type { CompiledPolicy } from '../../../policy/policy.ts'
import { lostNameOf } from '../../access/acl.ts'
import type { Authority } from '../../access/authority.ts'
import { type CloudEndpoint, type Endpoint, endpointFacts } from '../../endpoints/endpoint.ts'
import { bindingOf } from '../../endpoints/endpoint-host.ts'
import { refusedTodayText } from '../../endpoints/endpoint-policies.ts'
import { isPooled } from '../../endpoints/endpoint-pool.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import { STATUS_CLASSES } from '../../endpoints/request-stats.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import { renamedId } from '../../records/resource-id.ts'
import { ResourceNotFoundError, ServiceError } from '../../records/service-error.ts'
import { type Caller, ownerFor, refuseOwnerOnly, renamed } from '../common/caller.ts'
import { elsewhere } from '../common/elsewhere.ts'
import { itemFields, Reference, Timestamp, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import { livePage } from '../common/resource-lists.ts'
import type { CloudEndpointAuthor, CloudEndpoints } from './cloud-endpoints.ts'

const settings = {
  ...texts,
  bindings: z.array(z.string()).optional(),
  pooling_enabled: z.boolean().optional(),
  /** Whether policies of all accounts find it; below `.internal` only. */
  shared: z.boolean().optional(),
}
const EndpointCreate = z.strictObject({
  ...settings,
  url: z.string(),
  /** Only `cloud` can be created; other types have their own error code. */
  type: z.string().default('cloud'),
  traffic_policy: z.string(),
  /** Unless given, the owner of its domain. */
  owner_id: z.string().nullable().optional(),
})
const EndpointUpdate = z.strictObject({
  ...settings,
  url: z.string().optional(),
  traffic_policy: z.string().optional(),
})

type StatusClass = (typeof STATUS_CLASSES)[number]

/** A field for each class of status, such as `status_2xx`. HTTP requests count in it when they end. */
function byStatusClass<Value>(read: (at: number) => Value) {
  const fields = STATUS_CLASSES.map((name, at) => [`status_${name}`, read(at)])
  return Object.fromEntries(fields) as Record<`status_${StatusClass}`, Value>
}

/** Sums over all rate limits of a policy. Only this gateway has this field. */
const RateLimitsView = z.strictObject({
  keys: z.number(),
  max_keys: z.number(),
  bytes: z.number(),
  /** Decisions about keys without their own bucket, and the refusals among them. */
  shared: z.number(),
  shared_refused: z.number(),
})

export const EndpointView = z.strictObject({
  ...itemFields,
  updated_at: Timestamp,
  public_url: z.string(),
  url: z.string(),
  proto: z.enum(['http', 'https', 'tcp', 'tls']),
  scheme: z.enum(['http', 'https', 'tcp', 'tls']),
  hostport: z.string(),
  host: z.string(),
  port: z.number(),
  /** `ephemeral`: it comes and goes with its agent. */
  type: z.enum(['ephemeral', 'cloud']),
  /** That an agent gave its endpoint; empty for others. */
  name: z.string(),
  description: z.string(),
  metadata: z.string(),
  domain: Reference.nullable(),
  /**
   * For a cloud endpoint whose name belongs partly or wholly to another account, from before overlaps were
   * refused.
   */
  overlap: z.strictObject({ msg: z.string() }).optional(),
  /** For a cloud endpoint whose stored policy cannot run in this version. It refuses all traffic. */
  policy_problem: z.strictObject({ msg: z.string() }).optional(),
  /** For a policy that runs, although a new one like it is refused. */
  warning: z.strictObject({ msg: z.string() }).optional(),
  /** Null for a cloud endpoint, as is its session: no agent serves it. */
  tunnel: Reference.nullable(),
  tunnel_session: Reference.nullable(),
  upstream_url: z.string(),
  traffic_policy: z.string(),
  bindings: z.array(z.string()),
  /** Each member of a pool is a separate endpoint. */
  pooling_enabled: z.boolean(),
  /** Owner: policies of this account find it below `.internal`. Null for the gateway's owner. */
  owner_id: z.string().nullable(),
  /** Whether policies of all accounts do. */
  shared: z.boolean(),
  region: z.string(),
  /** Since it opened, or the gateway started. Only this gateway has this field. */
  traffic: z.strictObject({
    requests: z.number(),
    refused: z.number(),
    policy_over_budget: z.number(),
    bytes_in: z.number(),
    bytes_out: z.number(),
    ...byStatusClass(() => z.number()),
  }),
  rate_limits: RateLimitsView,
})

type Viewed = z.infer<typeof EndpointView>

export interface EndpointsDeps {
  readonly registry: EndpointRegistry
  readonly authority: Authority
  readonly cloudEndpoints: CloudEndpoints
  readonly others: OtherGateways
}

/** Online endpoints. Agents open and close theirs; cloud endpoints are created here. */
export function endpoints({
  registry,
  authority,
  cloudEndpoints,
  others,
}: EndpointsDeps): Resource<Endpoint> {
  const placeOf = (endpoint: Endpoint) => {
    const { owners } = authority
    const domain = owners.reservationOf(endpoint.host)
    // A domain of another account is not shown.
    const isShown = domain?.ownerId === null || domain?.ownerId === endpoint.ownerId
    return {
      domainId: isShown ? domain?.id : undefined,
      lost: endpoint.type === 'cloud' ? lostNameOf(endpoint, owners) : undefined,
    }
  }
  const view = (endpoint: Endpoint, baseUrl: string) =>
    viewEndpoint(endpoint, baseUrl, {
      ...placeOf(endpoint),
      isShared: registry.isShared(endpoint),
    })
  return {
    path: 'endpoints',
    noun: 'Endpoint',
    about: 'Online endpoints, and management of cloud endpoints.',
    collection: 'endpoints',
    prefix: 'ep',
    schema: EndpointView,
    page: (request) => livePage(registry.all(), request),
    get: (id) => registry.find(id),
    view,
    keptView: (id, baseUrl) => {
      const kept = cloudEndpoints.beingKept(id)
      if (!kept) return undefined
      const { endpoint, isShared } = kept
      return viewEndpoint(endpoint, baseUrl, { ...placeOf(endpoint), isShared })
    },
    ownerOf: ({ ownerId }) => ownerId,
    elsewhere: elsewhere(others, 'endpoints'),
    isEverywhere: ({ type }) => type === 'cloud',
    combine: (views) => combineEndpoints(views as [Viewed, ...Viewed[]]),
    refuseElsewhere: (it) => ofAgent((it as Viewed).url),
    checkChange: (_caller, endpoint) => {
      if (endpoint) cloudOnly(endpoint)
    },
    create: withBody({ EndpointCreate }, async (body, { baseUrl, caller }) => {
      const { type, owner_id, ...settings } = body
      if (type !== 'cloud') {
        throw new ServiceError(
          248,
          `Endpoints of the type ${JSON.stringify(type.slice(0, 64))} cannot be created, only of the type "cloud".`,
        )
      }
      const { traffic_policy: trafficPolicy, ...change } = settings
      const asked = owner_id && renamed(owner_id, 'bot')
      const ownerId = caller.isOwnerOnly ? ownerFor(caller, asked) : asked
      const request = { ...changeOf(change, caller), trafficPolicy, ownerId }
      return view(await cloudEndpoints.create(request, authorOf(caller)), baseUrl)
    }),
    update: withBody({ EndpointUpdate }, async (body, { item, caller }) => {
      const { id } = item
      const { traffic_policy: trafficPolicy, ...settings } = body
      const change = { ...changeOf(settings, caller), trafficPolicy }
      if (Object.values(change).every((value) => value === undefined)) {
        throw new ServiceError(
          18004,
          'The request changes nothing. Set url, traffic_policy, description, metadata, bindings, shared or pooling_enabled.',
        )
      }
      const updated = await cloudEndpoints.update(id, change, authorOf(caller))
      if (!updated) throw new ResourceNotFoundError()
      return updated
    }),
    remove: (endpoint) => cloudEndpoints.delete(cloudOnly(endpoint)),
  }
}

/** Only callers that manage all accounts may share with all accounts. */
function changeOf<
  Settings extends { pooling_enabled?: boolean | undefined; shared?: boolean | undefined },
>({ pooling_enabled: isPooled, shared: isShared, ...change }: Settings, caller: Caller) {
  if (isShared) refuseOwnerOnly(caller, 'it cannot share endpoints with other accounts')
  return { ...change, isPooled, isShared }
}

/** The gateway's own domains are for keys that are not bound to an owner. */
function authorOf({ isOwnerOnly }: Caller): CloudEndpointAuthor {
  return { isGranted: !isOwnerOnly }
}

/** Throws ServiceError 248. */
function cloudOnly(endpoint: Endpoint): CloudEndpoint {
  if (endpoint.type === 'cloud') return endpoint
  throw ofAgent(endpoint.url)
}

function ofAgent(url: string): ServiceError {
  return new ServiceError(
    248,
    `The endpoint ${url} belongs to an agent. Change or close it on the device.`,
  )
}

/** Each node counts the traffic that it serves for a cloud endpoint. */
function combineEndpoints([first, ...rest]: readonly [Viewed, ...Viewed[]]): Viewed {
  const sum = <Counts extends Record<string, number>>(of: (it: Viewed) => Counts): Counts => {
    const counts: Record<string, number> = { ...of(first) }
    for (const it of rest) {
      for (const [name, value] of Object.entries(of(it))) counts[name] = (counts[name] ?? 0) + value
    }
    return counts as Counts
  }
  return { ...first, traffic: sum((it) => it.traffic), rate_limits: sum((it) => it.rate_limits) }
}

function viewEndpoint(
  endpoint: Endpoint,
  baseUrl: string,
  {
    domainId,
    lost,
    isShared,
  }: { domainId: string | undefined; lost: string | undefined; isShared: boolean },
): z.infer<typeof EndpointView> {
  const { id, url, protocol, openedAt, traffic } = endpoint
  const { host, port } = endpointFacts(endpoint)
  const warning = refusedTodayText(endpoint.policy)
  const classes = traffic.stats?.classes ?? []
  return {
    id,
    uri: `${baseUrl}/endpoints/${id}`,
    created_at: timestamp(openedAt),
    public_url: url,
    url,
    proto: protocol,
    scheme: protocol,
    hostport: `${host}:${port}`,
    host,
    port,
    ...ownFields(endpoint, baseUrl),
    metadata: endpoint.metadata,
    domain: domainId ? { id: domainId, uri: `${baseUrl}/reserved_domains/${domainId}` } : null,
    ...(lost !== undefined && { overlap: { msg: lost } }),
    ...(warning !== undefined && { warning: { msg: warning } }),
    traffic_policy: endpoint.trafficPolicy ?? '',
    bindings: [bindingOf(host)],
    pooling_enabled: isPooled(endpoint),
    owner_id: endpoint.ownerId,
    shared: isShared,
    region: '',
    traffic: {
      requests: traffic.requests,
      refused: traffic.refused,
      policy_over_budget: traffic.overBudget,
      bytes_in: traffic.bytesIn,
      bytes_out: traffic.bytesOut,
      ...byStatusClass((at) => classes[at] ?? 0),
    },
    rate_limits: viewRateLimits(endpoint.policy),
  }
}

function viewRateLimits({ limiters }: CompiledPolicy): z.infer<typeof RateLimitsView> {
  const figures = limiters.map((limiter) => limiter.figures)
  const sum = (what: keyof LimiterFigures) => figures.reduce((all, one) => all + one[what], 0)
  return {
    keys: sum('buckets'),
    max_keys: sum('maxBuckets'),
    bytes: sum('bytes'),
    shared: sum('shared'),
    shared_refused: sum('sharedRefused'),
  }
}

/** Fields that differ between the two types of endpoints. */
function ownFields(endpoint: Endpoint, baseUrl: string) {
  if (endpoint.type === 'cloud') {
    return {
      type: 'cloud' as const,
      updated_at: timestamp(endpoint.updatedAt),
      name: '',
      description: endpoint.description,
      tunnel: null,
      tunnel_session: null,
      upstream_url: '',
      ...(endpoint.policyProblem !== undefined && {
        policy_problem: { msg: endpoint.policyProblem },
      }),
    }
  }
  const { id, openedAt, updatedAt = openedAt, sessionId, forwardsTo } = endpoint
  const { name = '', description = '' } = endpoint
  const tunnelId = renamedId(id, 'tn')
  return {
    type: 'ephemeral' as const,
    updated_at: timestamp(updatedAt),
    name,
    description,
    tunnel: { id: tunnelId, uri: `${baseUrl}/tunnels/${tunnelId}` },
    tunnel_session: { id: sessionId, uri: `${baseUrl}/tunnel_sessions/${sessionId}` },
    upstream_url: forwardsTo,
  }
}
