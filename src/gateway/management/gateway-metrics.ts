import process from 'node:process'
import { type Metric, PROCESS_METRICS, type Samples, type ValueMetric } from '../../http/metrics.ts'
import type { Database } from '../../store/database.ts'
import type { Endpoint } from '../endpoints/endpoint.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { MAX_NAMED } from '../endpoints/request-series.ts'
import { DURATION_BOUNDS, STATUS_CLASSES } from '../endpoints/request-stats.ts'
import type { TrafficTotal } from '../endpoints/traffic-totals.ts'
import type { Drain } from '../ports/drain.ts'
import type { OtherGateways, SeenGateway } from '../ports/other-gateways.ts'
import type { EventStore } from '../records/event-store.ts'
import type { ReservedDomainStore } from '../records/reserved-domain-store.ts'
import type { Devices } from '../resources/devices/devices.ts'
import type { Notifications } from '../resources/notifications/notifications.ts'
import type { ReservedDomainsDeps } from '../resources/reserved-names/routes.ts'
import type { Webhooks } from '../resources/webhooks/webhooks.ts'

const PROTOCOLS = ['http', 'https', 'tcp', 'tls'] as const
const DEVICE_STATES = ['online', 'away', 'offline', 'never'] as const
/** Endpoints with their own series: those that have been online longest. */
const MAX_ENDPOINTS = 500
const MAX_CODES = 100

export interface GatewayMetricsDeps {
  readonly registry: EndpointRegistry
  readonly devices: Devices
  readonly sessions: { all(): Iterable<unknown> }
  readonly domains: ReservedDomainStore
  readonly domainCertificates: ReservedDomainsDeps['domainCertificates']
  readonly events: EventStore
  readonly webhooks: Webhooks
  readonly notifications: Notifications
  readonly database: Database
  readonly version: string
  readonly others: OtherGateways
  readonly drain: Drain
}

/** Metrics of the gateway. No label contains visitors. */
export function gatewayMetrics(deps: GatewayMetricsDeps): readonly Metric[] {
  return [
    ...presenceMetrics(deps),
    ...trafficMetrics(deps),
    ...requestMetrics(deps),
    ...recordMetrics(deps),
    ...clusterMetrics(deps),
    gauge('storage_writable', '1 while changes can be written.', () =>
      Number(deps.database.fault === undefined),
    ),
    ...PROCESS_METRICS,
  ]
}

function gauge(
  name: string,
  help: string,
  read: ValueMetric['read'],
  labels: readonly string[] = [],
): ValueMetric {
  return { name: `device_gateway_${name}`, type: 'gauge', help, labels, read }
}

function counter(...metric: Parameters<typeof gauge>): ValueMetric {
  return { ...gauge(...metric), type: 'counter' }
}

/** Metrics of connections, and of everything that waits for one. */
function presenceMetrics(deps: GatewayMetricsDeps): readonly Metric[] {
  const { registry, devices, sessions, version } = deps
  return [
    gauge(
      'build_info',
      'Always 1, labeled with the versions of the gateway and Node.js.',
      () => [[{ version, node: process.versions.node }, 1]],
      ['version', 'node'],
    ),
    gauge('sessions', 'Connected agents.', () => count(sessions.all())),
    gauge('devices', 'Devices by state.', () => devicesByState(devices), ['state']),
    gauge(
      'endpoints',
      'Online endpoints by protocol.',
      () => {
        const all = [...registry.all()]
        return PROTOCOLS.map((protocol) => {
          return [{ protocol }, all.filter((it) => it.protocol === protocol).length] as const
        })
      },
      ['protocol'],
    ),
    gauge('names_away', 'Names whose device is disconnected.', () =>
      count(registry.allDisconnected()),
    ),
    gauge('held_requests', 'Requests waiting for a disconnected device.', () => registry.held.size),
  ]
}

function trafficMetrics({ registry }: GatewayMetricsDeps): readonly Metric[] {
  const byProtocol = (of: (total: TrafficTotal) => number) => (): Samples => {
    const totals = registry.totals.byProtocol()
    return PROTOCOLS.map((protocol) => {
      const total = totals.get(protocol)
      return [{ protocol }, total ? of(total) : 0] as const
    })
  }
  const byEndpoint = (of: (endpoint: Endpoint) => number) => (): Samples =>
    oldestEndpoints(registry).map((endpoint) => [{ endpoint: endpoint.url }, of(endpoint)] as const)
  return [
    counter(
      'requests_total',
      'Requests and connections of visitors, by endpoint protocol.',
      byProtocol(({ requests }) => requests),
      ['protocol'],
    ),
    gauge(
      'requests_active',
      'Open requests and connections.',
      byProtocol(({ active }) => active),
      ['protocol'],
    ),
    counter(
      'requests_refused_total',
      'Requests answered by the gateway itself, because of a policy, a device error or a limit.',
      byProtocol(({ refused }) => refused),
      ['protocol'],
    ),
    counter(
      'policy_over_budget_total',
      'Requests whose policy exceeded its time budget.',
      byProtocol(({ overBudget }) => overBudget),
      ['protocol'],
    ),
    counter(
      'received_bytes_total',
      'Bytes from visitors.',
      byProtocol(({ bytesIn }) => bytesIn),
      ['protocol'],
    ),
    counter(
      'sent_bytes_total',
      'Bytes to visitors.',
      byProtocol(({ bytesOut }) => bytesOut),
      ['protocol'],
    ),
    counter(
      'errors_total',
      `Answers of the gateway itself by code: ${MAX_CODES} codes, then "other".`,
      () => errorsByCode(registry.totals.errors()),
      ['code'],
    ),
    counter(
      'endpoint_requests_total',
      `Requests of an endpoint since it opened, for the ${MAX_ENDPOINTS} longest online.`,
      byEndpoint(({ traffic }) => traffic.requests),
      ['endpoint'],
    ),
    counter(
      'endpoint_bytes_total',
      `Bytes of an endpoint in both directions since it opened, for the same ${MAX_ENDPOINTS}.`,
      byEndpoint(({ traffic }) => traffic.bytesIn + traffic.bytesOut),
      ['endpoint'],
    ),
  ]
}

/** Metrics of HTTP requests by endpoint, counted when they end. */
function requestMetrics({ registry }: GatewayMetricsDeps): readonly Metric[] {
  return [
    counter(
      'endpoint_responses_total',
      `Ended HTTP requests of an endpoint by status class, for ${MAX_NAMED} URLs, then "other"; "none": without a response.`,
      () =>
        [...registry.totals.byUrl()].flatMap(([endpoint, { classes }]) =>
          STATUS_CLASSES.map((name, at) => [{ endpoint, class: name }, classes[at] ?? 0] as const),
        ),
      ['endpoint', 'class'],
    ),
    {
      name: 'device_gateway_endpoint_request_duration_seconds',
      type: 'histogram',
      help: 'Time from the head of a request to the end of its response, for the same URLs; without upgraded connections.',
      labels: ['endpoint'],
      bounds: DURATION_BOUNDS,
      read: () =>
        [...registry.totals.byUrl()].map(([endpoint, { buckets, sumSeconds }]) => {
          return [{ endpoint }, { buckets, sum: sumSeconds }] as const
        }),
    },
  ]
}

/** Metrics of the database. */
function recordMetrics(deps: GatewayMetricsDeps): readonly Metric[] {
  const { events, webhooks, notifications } = deps
  return [
    gauge(
      'certificates',
      'Certificates of domains by state: good, being issued, or failed.',
      () => certificatesByState(deps),
      ['state'],
    ),
    counter('events_total', 'Events since the database was created.', () => events.newest),
    gauge(
      'webhooks',
      'Webhooks by state: delivering, failing, or paused.',
      () => webhooksByState(webhooks),
      ['state'],
    ),
    gauge(
      'notification_channels',
      'Notification channels by state: sending, failing, or paused.',
      () => channelsByState(notifications),
      ['state'],
    ),
    gauge('webhook_behind', 'Events waiting for the slowest webhook.', () => {
      const { newest } = events
      const all = webhooks.all().filter(({ isActive }) => isActive)
      return Math.max(
        0,
        ...all.map((it) => newest - (webhooks.statusOf(it)?.position ?? it.delivered)),
      )
    }),
  ]
}

function clusterMetrics(deps: GatewayMetricsDeps): readonly Metric[] {
  return [
    gauge('lease_held', 'Cluster only: 1 while this node holds its lease.', () =>
      ofCluster(deps, ({ lease }) => Number(lease?.state === 'held')),
    ),
    gauge('draining', 'Cluster only: 1 while this node is draining.', () =>
      ofCluster(deps, () => Number(deps.drain.isOn)),
    ),
    gauge(
      'nodes',
      'Nodes of the cluster by state, as seen by this node.',
      () => nodesByState(deps),
      ['state'],
    ),
    gauge(
      'node_link_up',
      'By other node: 1 while visitors can be forwarded to it.',
      () => linkSamples(deps, ({ isLinked }) => Number(isLinked)),
      ['node'],
    ),
    gauge(
      'node_link_latency_seconds',
      'Round trip of the last heartbeat to each other node.',
      () => linkSamples(deps, ({ latencyMs }) => latencyMs && latencyMs / 1_000),
      ['node'],
    ),
  ]
}

const NODE_STATES = { serving: 'live', draining: 'draining', lost: 'gone', left: 'gone' } as const

/** A figure of this node; undefined for a gateway without others. */
function ofCluster<Value>(
  { others }: GatewayMetricsDeps,
  read: (self: SeenGateway) => Value,
): Value | undefined {
  const self = others.find(others.self)
  return self?.lease ? read(self) : undefined
}

function nodesByState(deps: GatewayMetricsDeps): Samples | undefined {
  const counts = { live: 0, draining: 0, gone: 0 }
  for (const { standing, serves } of deps.others.all()) {
    const isLive = standing === 'lost' && serves
    counts[isLive ? 'live' : NODE_STATES[standing]] += 1
  }
  return ofCluster(deps, () =>
    Object.entries(counts).map(([state, number]) => [{ state }, number] as const),
  )
}

/** There are a few nodes, and each has the name of its id alone. */
function linkSamples(
  deps: GatewayMetricsDeps,
  of: (node: SeenGateway) => number | undefined,
): Samples {
  const linked = deps.others.all().filter(({ isSelf, standing }) => !isSelf && standing !== 'left')
  return linked.flatMap((node) => {
    const value = of(node)
    return value === undefined ? [] : [[{ node: node.id }, value] as const]
  })
}

function count(items: Iterable<unknown>): number {
  let number = 0
  for (const _ of items) number += 1
  return number
}

/** A set that changes as little as can be. */
function oldestEndpoints(registry: EndpointRegistry): Endpoint[] {
  return [...registry.all()].sort((a, b) => (a.id < b.id ? -1 : 1)).slice(0, MAX_ENDPOINTS)
}

function devicesByState(devices: Devices): Samples {
  const counts = new Map<string, number>(DEVICE_STATES.map((state) => [state, 0]))
  for (const device of devices.all()) {
    const state = devices.stateOf(device)
    counts.set(state, (counts.get(state) ?? 0) + 1)
  }
  return [...counts].map(([state, number]) => [{ state }, number] as const)
}

function errorsByCode(errors: ReadonlyMap<string, number>): Samples {
  const all = [...errors].sort()
  const rest = all.slice(MAX_CODES).reduce((sum, [, number]) => sum + number, 0)
  const named = all.slice(0, MAX_CODES).map(([code, number]) => [{ code }, number] as const)
  return rest === 0 ? named : [...named, [{ code: 'other' }, rest]]
}

function certificatesByState({ domains, domainCertificates }: GatewayMetricsDeps): Samples {
  const counts = { good: 0, pending: 0, failed: 0 }
  for (const domain of domains.all()) {
    const { job } = domainCertificates.statusOf(domain)
    if (!job) counts.good += 1
    else if (job.error === undefined) counts.pending += 1
    else counts.failed += 1
  }
  return Object.entries(counts).map(([state, number]) => [{ state }, number] as const)
}

function channelsByState(notifications: Notifications): Samples {
  const counts = { sending: 0, failing: 0, paused: 0 }
  for (const channel of notifications.all()) {
    if (!channel.isActive) counts.paused += 1
    else if ((notifications.stateOf(channel)?.failures ?? 0) > 0) counts.failing += 1
    else counts.sending += 1
  }
  return Object.entries(counts).map(([state, number]) => [{ state }, number] as const)
}

function webhooksByState(webhooks: Webhooks): Samples {
  const counts = { taken: 0, failing: 0, paused: 0 }
  for (const endpoint of webhooks.all()) {
    if (!endpoint.isActive) counts.paused += 1
    else if ((webhooks.statusOf(endpoint)?.failures ?? 0) > 0) counts.failing += 1
    else counts.taken += 1
  }
  return Object.entries(counts).map(([state, number]) => [{ state }, number] as const)
}
