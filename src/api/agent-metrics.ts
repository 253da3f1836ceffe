import process from 'node:process'
import type { Agent } from '../agent/agent.ts'
import type { AgentStatus } from '../agent/agent-status.ts'
import { type Metric, oneOf, PROCESS_METRICS, type Samples } from '../http/metrics.ts'
import type { Database } from '../store/database.ts'
import type { EventFeed } from './events/event-feed.ts'
import { AGENT_EVENT_TYPES } from './events/event-log.ts'

const LINK_STATES = [
  'connecting',
  'up',
  'suspect',
  'waiting',
  'refused',
  'duplicate',
  'parked',
  'stopped',
] as const
const TUNNEL_STATES = ['opening', 'online', 'waiting', 'refused', 'closing'] as const
const UPSTREAM_STATES = ['up', 'down', 'slow', 'garbage', 'untrusted', 'unknown'] as const
/** Tunnels that have a series of their own, the oldest. */
const MOST_TUNNELS = 200

export interface AgentMetricsDeps {
  readonly agent: Pick<Agent, 'status' | 'list'>
  readonly database: Database
  readonly feed: Pick<EventFeed, 'countOf' | 'subscribers'>
}

/** What `/metrics` of the agent says. */
export function agentMetrics({ agent, database, feed }: AgentMetricsDeps): readonly Metric[] {
  const gauge = (
    name: string,
    help: string,
    read: (status: AgentStatus) => number | undefined | Samples,
    labels: readonly string[] = [],
  ): Metric => ({
    name: `device_agent_${name}`,
    type: 'gauge',
    help,
    labels,
    read: () => read(agent.status()),
  })
  return [
    gauge(
      'build_info',
      '1, with the versions of the agent, of Node and of the SDK.',
      ({ versions }) => [[{ ...versions, node: process.versions.node }, 1]],
      ['agent', 'node', 'sdk'],
    ),
    gauge('healthy', '1 when every tunnel is online and nothing waits for a person.', (status) =>
      Number(status.healthy),
    ),
    gauge('ready', '1 when the restore is over and the link is up.', (status) =>
      Number(status.ready),
    ),
    gauge(
      'link_state',
      '1 for the state that the link to the service is in, 0 for the others.',
      ({ link }) => oneOf(LINK_STATES, link.state),
      ['state'],
    ),
    gauge('link_latency_seconds', 'Round trip of the last heartbeat.', ({ link }) =>
      link.latencyMs === undefined ? undefined : link.latencyMs / 1_000,
    ),
    gauge(
      'tunnels',
      'Tunnels by state.',
      ({ tunnels }) => TUNNEL_STATES.map((state) => [{ state }, tunnels[state]] as const),
      ['state'],
    ),
    gauge(
      'tunnel_online',
      `1 for a tunnel that is online, 0 for one that is not: the oldest ${MOST_TUNNELS}.`,
      () =>
        agent
          .list()
          .slice(0, MOST_TUNNELS)
          .map(({ id, spec, status }) => {
            return [{ tunnel: spec.domain || id }, Number(status.state === 'online')] as const
          }),
      ['tunnel'],
    ),
    gauge(
      'upstreams',
      'Tunnels by how the service behind them does.',
      () => {
        const counts = new Map<string, number>(UPSTREAM_STATES.map((state) => [state, 0]))
        for (const { status } of agent.list()) {
          counts.set(status.upstream, (counts.get(status.upstream) ?? 0) + 1)
        }
        return [...counts].map(([state, count]) => [{ state }, count] as const)
      },
      ['state'],
    ),
    gauge(
      'default_policy_good',
      '0 when the file of the default policy is missing or wrong.',
      (status) => Number(status.defaultPolicy.problem === undefined),
    ),
    gauge('storage_writable', '1 while changes can be written.', () =>
      Number(database.fault === undefined),
    ),
    gauge('clock_skew_seconds', 'How far the clock is ahead of the service.', ({ clock }) =>
      clock.skewMs === undefined ? undefined : clock.skewMs / 1_000,
    ),
    gauge('event_readers', 'Readers of /events.', () => feed.subscribers),
    {
      name: 'device_agent_events_total',
      type: 'counter',
      help: 'Events by type since the start: changes of tunnels, the link, the storage and the policy.',
      labels: ['type'],
      read: () => AGENT_EVENT_TYPES.map((type) => [{ type }, feed.countOf(type)] as const),
    },
    ...PROCESS_METRICS,
  ]
}
