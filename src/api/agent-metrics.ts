import process from 'node:process'
import type { Agent } from '../agent/agent.ts'
import type { AgentStatus } from '../agent/agent-status.ts'
import { type Metric, oneOf, PROCESS_METRICS, type Samples } from '../http/metrics.ts'
import type { Database } from '../store/database.ts'
import type { EventFeed } from './events/event-feed.ts'
import { AGENT_EVENT_TYPES } from './events/event-log.ts'
import { StatusView } from './status-view.ts'
import { TunnelStatusView } from './tunnel-view.ts'

const LINK_STATES = StatusView.shape.link.shape.state.options
const TUNNEL_STATES = TunnelStatusView.shape.state.options
const UPSTREAM_STATES = TunnelStatusView.shape.upstream.options
/** Tunnels that have a series of their own, the oldest. */
const MAX_TUNNELS = 200

export interface AgentMetricsDeps {
  readonly agent: Pick<Agent, 'status' | 'list'>
  readonly database: Database
  readonly feed: Pick<EventFeed, 'countOf' | 'subscribers'>
}

type Gauge = (
  name: string,
  help: string,
  read: (status: AgentStatus) => number | undefined | Samples,
  labels?: readonly string[],
) => Metric

/** The metrics of `/metrics` of the agent. */
export function agentMetrics({ agent, database, feed }: AgentMetricsDeps): readonly Metric[] {
  const gauge: Gauge = (name, help, read, labels = []) => ({
    name: `device_agent_${name}`,
    type: 'gauge',
    help,
    labels,
    read: () => read(agent.status()),
  })
  return [
    ...linkMetrics(gauge),
    ...tunnelMetrics(gauge, agent),
    gauge(
      'default_policy_good',
      '0 if the file of the default policy is missing or invalid.',
      (status) => Number(status.defaultPolicy.problem === undefined),
    ),
    gauge('storage_writable', '1 if the storage is writable.', () =>
      Number(database.fault === undefined),
    ),
    gauge('clock_skew_seconds', 'Clock of the device minus clock of the gateway.', ({ clock }) =>
      clock.skewMs === undefined ? undefined : clock.skewMs / 1_000,
    ),
    gauge('event_readers', 'Open connections to /events.', () => feed.subscribers),
    {
      name: 'device_agent_events_total',
      type: 'counter',
      help: 'Events since the start by type: changes of tunnels, link, storage and policy.',
      labels: ['type'],
      read: () => AGENT_EVENT_TYPES.map((type) => [{ type }, feed.countOf(type)] as const),
    },
    ...PROCESS_METRICS,
  ]
}

function linkMetrics(gauge: Gauge): Metric[] {
  return [
    gauge(
      'build_info',
      'Always 1, labelled with the versions of agent, Node.js and SDK.',
      ({ versions }) => [[{ ...versions, node: process.versions.node }, 1]],
      ['agent', 'node', 'sdk'],
    ),
    gauge('healthy', '1 if every tunnel is online and no problem needs attention.', (status) =>
      Number(status.healthy),
    ),
    gauge('ready', '1 if all tunnels are restored and the link is up.', (status) =>
      Number(status.ready),
    ),
    gauge(
      'link_state',
      '1 for the current state of the link to the gateway, 0 for other states.',
      ({ link }) => oneOf(LINK_STATES, link.state),
      ['state'],
    ),
    gauge('link_latency_seconds', 'Round-trip time of the last heartbeat.', ({ link }) =>
      link.latencyMs === undefined ? undefined : link.latencyMs / 1_000,
    ),
  ]
}

function tunnelMetrics(gauge: Gauge, agent: AgentMetricsDeps['agent']): Metric[] {
  return [
    gauge(
      'tunnels',
      'Tunnels by state.',
      ({ tunnels }) => TUNNEL_STATES.map((state) => [{ state }, tunnels[state]] as const),
      ['state'],
    ),
    gauge(
      'tunnel_online',
      `1 if the tunnel is online, else 0; for the oldest ${MAX_TUNNELS} tunnels.`,
      () =>
        agent
          .list()
          .slice(0, MAX_TUNNELS)
          .map(({ id, spec, status }) => {
            return [{ tunnel: spec.domain || id }, Number(status.state === 'online')] as const
          }),
      ['tunnel'],
    ),
    gauge(
      'upstreams',
      'Tunnels by state of their upstream.',
      () => {
        const counts = new Map<string, number>(UPSTREAM_STATES.map((state) => [state, 0]))
        for (const { status } of agent.list()) {
          counts.set(status.upstream, (counts.get(status.upstream) ?? 0) + 1)
        }
        return [...counts].map(([state, count]) => [{ state }, count] as const)
      },
      ['state'],
    ),
  ]
}
