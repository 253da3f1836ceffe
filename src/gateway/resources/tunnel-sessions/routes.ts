import * as z from 'zod'
import type {
  AgentCommand,
  AgentEndpoint,
  ConnectedAgent,
  Endpoint,
  RefusedEndpoint,
} from '../../endpoints/endpoint.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import { renamedId } from '../../records/resource-id.ts'
import { elsewhere } from '../common/elsewhere.ts'
import { Reference, Timestamp, timestamp } from '../common/request.ts'
import type { Action, Resource } from '../common/resource.ts'
import { livePage } from '../common/resource-lists.ts'

const TunnelView = z.strictObject({
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

interface TunnelsDeps {
  readonly registry: EndpointRegistry
  readonly others: OtherGateways
}

/** Endpoints of agents under their earlier name: the same KSUID as `tn_`. */
export function tunnels({ registry, others }: TunnelsDeps): Resource<Tunnel> {
  return {
    path: 'tunnels',
    noun: 'Tunnel',
    about: 'Online endpoints of devices.',
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
    elsewhere: elsewhere(others, 'tunnels'),
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

const RefusedEndpointView = z.strictObject({
  id: z.string(),
  url: z.string(),
  since: Timestamp,
  error_code: z.string(),
  text: z.string(),
})

const TunnelSessionView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  agent_version: z.string(),
  credential: Reference,
  ip: z.string(),
  metadata: z.string(),
  os: z.string(),
  region: z.string(),
  started_at: Timestamp,
  transport: z.literal('ngrok/v2'),
  /** The following fields exist only at this gateway. */
  arch: z.string(),
  hostname: z.string(),
  /** Round trip of the last heartbeat. */
  latency_ms: z.number().nullable(),
  /** Another process with the identity of this device, the last time that it was refused. */
  duplicate: z.strictObject({ seen_at: Timestamp, ip: z.string() }).nullable(),
  endpoints: z.array(Reference),
  /** Endpoints that the agent considers online, but the gateway does not serve, with the reason. */
  refused_endpoints: z.array(RefusedEndpointView),
})

/** The agents that are connected, as far as this resource needs to know them. */
export interface ConnectedAgents {
  all(): Iterable<ConnectedAgent>
  find(id: string): ConnectedAgent | undefined
}

export interface TunnelSessionsDeps {
  readonly sessions: ConnectedAgents
  readonly others: OtherGateways
}

/** The connected agents. Commands are requests to the agent. */
export function tunnelSessions({ sessions, others }: TunnelSessionsDeps): Resource<ConnectedAgent> {
  const tell = (command: AgentCommand, summary: string): Action<ConnectedAgent> => ({
    summary,
    run: async (_body, { item }) => {
      await item.command(command)
      return undefined
    },
  })
  return {
    path: 'tunnel_sessions',
    noun: 'TunnelSession',
    about: 'Connected devices.',
    collection: 'tunnel_sessions',
    prefix: 'ts',
    schema: TunnelSessionView,
    page: (request) => livePage(sessions.all(), request),
    get: (id) => sessions.find(id),
    view: viewSession,
    ownerOf: ({ identity }) => identity.ownerId,
    elsewhere: elsewhere(others, 'tunnel_sessions'),
    actions: {
      restart: tell('restart', 'Restart the session of the agent'),
      stop: tell('stop', 'Stop the agent'),
      update: tell('update', 'Update the agent'),
    },
  }
}

function viewSession(agent: ConnectedAgent, baseUrl: string): z.infer<typeof TunnelSessionView> {
  const { id, identity, startedAt, latencyMs, duplicate } = agent
  const { credentialId, agentVersion, remoteAddress, metadata, os, arch, hostname } = identity
  return {
    id,
    uri: `${baseUrl}/tunnel_sessions/${id}`,
    agent_version: agentVersion,
    credential: { id: credentialId, uri: `${baseUrl}/credentials/${credentialId}` },
    ip: remoteAddress.replace(/:\d+$/, '').replace(/^\[|\]$/g, ''),
    metadata,
    os,
    region: '',
    started_at: timestamp(startedAt),
    transport: 'ngrok/v2',
    arch,
    hostname,
    latency_ms: latencyMs === undefined ? null : Math.round(latencyMs * 1_000) / 1_000,
    duplicate: duplicate ? { seen_at: timestamp(duplicate.seenAt), ip: duplicate.ip } : null,
    endpoints: agent.endpoints().map((it) => ({ id: it.id, uri: `${baseUrl}/endpoints/${it.id}` })),
    refused_endpoints: agent.refusedEndpoints().map(viewRefused),
  }
}

export function viewRefused(refused: RefusedEndpoint): z.infer<typeof RefusedEndpointView> {
  const { id, url, since, code, message } = refused
  return { id, url, since: timestamp(since), error_code: `ERR_NGROK_${code}`, text: message }
}
